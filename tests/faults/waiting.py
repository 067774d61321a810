"""Ranks that are stopped or killed, and threads that cannot start."""

from __future__ import annotations

import re

from tests.faults.planting import Fault, Scene

__all__ = ["FAULTS"]

_HEAD = """
import os, resource, signal, subprocess, sys, threading, time
import numpy
import distarray as da
import distarray.numpy as np
from distarray import Shard, checkpoint

def no_more_threads():
    pages = int(open("/proc/self/statm").read().split()[0])
    most = pages * resource.getpagesize() + (1 << 21)
    resource.setrlimit(resource.RLIMIT_AS, (most, -1))
    try:
        threading.Thread(target=int).start()
    except RuntimeError:
        return
    raise SystemExit("a thread has started")
"""
_MESH = """
mesh = da.default_mesh()
x = da.distribute(numpy.ones(30_000), mesh, [Shard(0)], src=None)
x.sum()
"""
STOPPED = """
if mesh.rank == 1:
    subprocess.Popen(["sh", "-c", f"sleep 5; kill -CONT {os.getpid()}"])
x.sum()  # the others wait for it while that is started
if mesh.rank == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
if x.sum() == 30_000 and mesh.rank == 0:
    print("right", flush=True)
"""
KILLED = """
if mesh.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
x.sum()
"""
UNENDED = """
if mesh.rank == 0:
    no_more_threads()
x.sum() if mesh.rank == 0 else np.sort(x)
"""
SAVED = """
checkpoint.save("./run", {"x": x})
limits = resource.getrlimit(resource.RLIMIT_AS)
if mesh.rank < 2:
    no_more_threads()
saving = checkpoint.save("./run", {"x": x + 1}, asynchronous=True)
resource.setrlimit(resource.RLIMIT_AS, limits)
saving.wait()
assert (checkpoint.load("./run")["x"].full() == 2).all()
print("saved", mesh.rank, flush=True)
"""
UNWATCHED = """
from distarray.comm import world_group
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 1:
    start = threading.Thread.start
    def refuse(thread):
        raise RuntimeError("can't start new thread")
    threading.Thread.start = refuse
"""
CROWDED = """
from mpi4py import MPI
meshes = [da.DeviceMesh(MPI.COMM_WORLD.Dup()) for _ in range(600)]
xs = [da.distribute(numpy.ones(300), mesh, [Shard(0)], src=None) for mesh in meshes]
for x in xs:
    x.sum()
xs[0].sum() if MPI.COMM_WORLD.rank == 0 else xs[1].sum()
"""


def ran(scene: Scene, program: str, ranks: int = 3, limit: str = "1") -> tuple[int | None, str]:
    """Run a program, and return its status and what it has written; it must end."""
    path = scene.directory / "program.py"
    path.write_text(_HEAD + program)
    status, output = scene.run(ranks, str(path), timeout=400, DISTARRAY_WAIT_LIMIT=limit)
    assert status is not None, f"it hangs\n{output}"
    return status, output


def stopped(scene: Scene) -> None:
    """The ranks wait for it, say so, and go on with it."""
    status, output = ran(scene, _MESH + STOPPED)
    assert status == 0, output
    assert "right" in output, output
    assert re.search(r"2 of 3 ranks wait in DistArray.sum at .*; rank 1 is stopped", output), output


def killed(scene: Scene) -> None:
    """The job is over within seconds."""
    status, output = ran(scene, _MESH + KILLED)
    assert status != 0, output


def ended_without_a_thread(scene: Scene) -> None:
    """The job is ended by a rank that cannot start a thread for that."""
    status, output = ran(scene, _MESH + UNENDED, 2)
    assert status != 0, output
    assert "in vain, and the job is ended" in output, output


def saved_without_a_thread(scene: Scene) -> None:
    """The rank saves at once, the others behind the program's back; nobody raises."""
    status, output = ran(scene, _MESH + SAVED, limit="60")
    assert status == 0, output
    assert output.count("saved") == 3, output
    for rank in (0, 1):
        assert re.search(rf"rank {rank} saves \S*run while the program waits: can't start", output)


def unwatched(scene: Scene) -> None:
    """A rank whose watch cannot start says so; the program runs."""
    status, output = ran(scene, UNWATCHED + _MESH + 'print("right", flush=True)')
    assert status == 0, output
    assert output.count("right") == 3, output
    assert "this rank's waits are not watched: can't start new thread" in output, output
    assert "make their first mesh" not in output, output


def crowded(scene: Scene) -> None:
    """Reports of ranks that are in hundreds of communicators fit their place."""
    status, output = ran(scene, CROWDED, 2)
    assert status != 0, output
    assert "no longer watched" not in output, output
    assert "in vain, and the job is ended" in output, output


FAULTS = (
    Fault("waiting: stopped rank", stopped, quick=True),
    Fault("waiting: killed rank", killed),
    Fault("waiting: no thread for the end", ended_without_a_thread),
    Fault("waiting: no thread for a save", saved_without_a_thread, quick=True),
    Fault("waiting: no thread for the watch", unwatched),
    Fault("waiting: 600 communicators", crowded),
)
