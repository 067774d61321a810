"""Strangers on the network of a job on two nodes: they connect, flood, say nothing, or nonsense."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.faults.planting import Fault, Scene, Unavailable
from tests.job.nodes import Nodes, missing
from tests.job.nodes import Unavailable as NoNodes
from tests.launcher import environment, run_job

#: Says where it listens, computes for some seconds, and ends; "parts": rank 1 ends before that.
PROGRAM = """
import os, sys, time
import distarray, distarray.numpy as np
from distarray.comm.waits import watch
mesh = distarray.default_mesh()
wire = watch._watch.speakers[0].scope.wire
doors = [wire._door.getsockname(), wire._ear.getsockname()]
with open(f"new-{mesh.rank}", "w") as file:
    print(*doors[0], file=file)
os.rename(f"new-{mesh.rank}", f"port-{mesh.rank}")
inodes = {os.readlink(f"/proc/self/fd/{wire._door.fileno()}")[8:-1]}
listening = [line.split()[1] for line in open("/proc/net/tcp") if line.split()[9] in inodes]
here = [door[:8] != "00000000" for door in listening]
sys.stdout.write(f"listens {doors[0] == doors[1]} {all(here)} {len(here)}\\n")
sys.stdout.flush()
x = np.ones(800_000)
time.sleep(1)  # the strangers come
if sys.argv[1] == "parts" and mesh.rank == 1: sys.exit()
total = 0
for _ in range(50):
    total += float(x.sum())
    time.sleep(0.03)
sys.stdout.write(f"sum {total}\\n")
"""
#: Attacks the addresses that the ranks have written, as soon as they have, for as long as it lives.
STRANGER = """
import os, socket, threading, time
while not all(map(os.path.exists, ("port-0", "port-1"))): time.sleep(0.05)
def lines(address, most, says, pause, keep):
    kept = []
    while True:
        try:
            line = socket.create_connection(address, 1)
            line.sendall(says)
            kept.append(line)
            while len(kept) > keep: kept.pop(0).close()
            if len(kept) >= most:
                for line in kept: line.sendall(b"x")
        except OSError:
            kept = kept[1:]
        time.sleep(pause)
def datagrams(address):
    line = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    while True:
        try: line.sendto(os.urandom(500), address)
        except OSError: pass
        time.sleep(0.0005)
for rank in (0, 1):
    host, port = open(f"port-{rank}").read().split()
    address = host, int(port)
    silent, slow, nonsense = (200, b"", 0.01), (20, b"x", 0.2), (9999, os.urandom(900), 0.002)
    for arguments in ((*silent, 200), (*slow, 20), (*nonsense, 5)):
        threading.Thread(target=lines, args=(address, *arguments), daemon=True).start()
    threading.Thread(target=datagrams, args=(address,), daemon=True).start()
time.sleep(200)
"""
SOON = 60.0


@contextmanager
def nodes(scene: Scene, count: int) -> Iterator[Nodes]:
    """Some nodes of this machine."""
    if missing() or scene.is_openmpi:
        raise Unavailable(f"no nodes: {missing() or 'their launcher is of MPICH'}")
    try:
        with Nodes(count, scene.directory) as made:
            yield made
    except NoNodes as why:
        raise Unavailable(f"no nodes: {why}") from None


def attacked(scene: Scene, how: str) -> tuple[int | None, str]:
    """Run the program on two nodes while a third attacks both; its status and output."""
    (scene.directory / "program.py").write_text(PROGRAM)
    (scene.directory / "stranger.py").write_text(STRANGER)
    with nodes(scene, 3) as made:
        command = [*made.inside(3), sys.executable, "stranger.py"]
        stranger = subprocess.Popen(command, cwd=scene.directory)
        try:
            argv = [*made.launcher(scene.mpiexec, (1, 1)), sys.executable, "program.py", how]
            env = environment(DISTARRAY_WAIT_LIMIT="4")
            return run_job(argv, timeout=100, cwd=scene.directory, env=env)
        finally:
            assert stranger.poll() is None, "the stranger has ended before the job"
            stranger.kill()
            stranger.wait()


def computes(scene: Scene) -> str:
    """A job that computes is not disturbed, and each rank listens at one address alone."""
    began = time.monotonic()
    status, output = attacked(scene, "computes")
    assert status == 0, f"status {status}: {output}"
    assert output.count("sum 40000000.0") == 2, output
    assert output.count("listens True True 1") == 2, output
    assert time.monotonic() - began < SOON, f"{time.monotonic() - began:.1f} s"
    return f"ended after {time.monotonic() - began:.1f} s"


def parts(scene: Scene) -> str:
    """A job whose ranks wait in vain is ended, with the name of the rank that has left."""
    began = time.monotonic()
    status, output = attacked(scene, "parts")
    assert status not in (0, None), f"status {status}: {output}"
    assert "They wait in vain" in output, output
    assert "rank 1 has ended by sys.exit() at program.py" in output, output
    assert time.monotonic() - began < SOON, f"{time.monotonic() - began:.1f} s"
    return f"ended after {time.monotonic() - began:.1f} s"


FAULTS = (
    Fault("strangers: a job that computes", computes, quick=True),
    Fault("strangers: a job that waits in vain", parts),
)
