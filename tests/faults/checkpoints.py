"""Checkpoints that are loaded while another job saves to the same path, and while it is killed."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.faults.planting import Fault, Scene, Unavailable
from tests.launcher import environment

#: ``checkpoints.py save STEPS ASYNCHRONOUS`` saves until there is a file ``stop``;
#: ``checkpoints.py load COUNT HOW`` loads, and says how often that went well.
PROGRAM = r"""
import os, sys
import numpy as np
import distarray as da
from distarray import checkpoint, Replicate, Shard

mesh = da.default_mesh()

def save(keep, late):
    x = da.distribute(np.zeros(400_000), mesh, [Shard(0)], src=None)
    k = 0
    while not mesh.group.broadcast_object(os.path.exists("stop"), 0):
        k += 1
        state = {"k": k, "x": x + k, "y": np.full(9, k), "z": [x[:1000] - k]}
        step = {"step": checkpoint.steps("run")[-1:][0] + 1 if checkpoint.latest("run") else 1,
                "keep": keep} if keep else {}
        checkpoint.save("run", state, asynchronous=late and k % 2 == 0, **step)

def one(how, number):
    if how == "into":
        state = {"k": 0, "x": da.distribute(np.zeros(400_000), mesh, [Shard(0)], src=None),
                 "z": [da.distribute(np.zeros(1000), mesh, [Replicate()], src=None)]}
        return checkpoint.load("run", state)
    if how == "verify":
        checkpoint.verify("run")
    return checkpoint.load("run", placements=[[Shard(0)], [Replicate()]][number % 2])

def load(count, how):
    good = mixed = 0
    said = set()
    for number in range(count):
        try:
            state = one(how, number)
        except Exception as error:
            said.add(f"{type(error).__name__}: {str(error)[:160]}")
            continue
        found = {state["k"], *np.unique(state["x"].full()), *-np.unique(state["z"][0].full())}
        found.update(np.unique(state.get("y", state["k"])))
        mixed += len(found) > 1
        good += len(found) == 1
    if mesh.rank == 0:
        print("good", good, "mixed", mixed, "of", count, *said, flush=True)

if sys.argv[1] == "save":
    save(int(sys.argv[2]), sys.argv[3] == "late")
else:
    load(int(sys.argv[2]), sys.argv[3])
"""


def _started(scene: Scene, ranks: int, *words: str) -> subprocess.Popen[bytes]:
    argv = [*scene.mpiexec, "-n", str(ranks), sys.executable, "program.py", *words]
    return subprocess.Popen(
        argv, cwd=scene.directory, env=environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


@contextlib.contextmanager
def _saving(scene: Scene, ranks: int, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A job that saves until the block ends; begins once there is a checkpoint."""
    stop = scene.directory / "stop"
    (scene.directory / "program.py").write_text(PROGRAM)
    job = _started(scene, ranks, "save", *words)
    try:
        until = time.monotonic() + 120
        while not any(scene.directory.glob("run/**/zarr.json")):
            assert job.poll() is None, "the job that saves has ended"
            assert time.monotonic() < until, "the job that saves does not save"
            time.sleep(0.02)
        yield job
    finally:
        stop.touch()
        try:
            job.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait(60)


def _counted(output: str, count: int) -> str:
    """The line of a job that has loaded; fails unless all is well."""
    found = re.search(r"good (\d+) mixed (\d+) of (\d+)(.*)", output)
    assert found, f"the job that loads says {output[-500:]!r}"
    assert int(found[3]) == count
    assert found[2] == "0", f"{found[2]} of {count} loads are of two saves"
    assert int(found[1]) >= 0.975 * count, f"{found[1]} of {count} loads succeeded:{found[4]}"
    return f"{found[1]} of {count} loads whole, none mixed{found[4]}"


def _beside(
    scene: Scene,
    count: int,
    how: str = "new",
    keep: int = 0,
    late: bool = False,
    savers: int = 2,
    loaders: int = 2,
) -> str:
    """Load so often while another job saves."""
    with _saving(scene, savers, str(keep), "late" if late else "now") as job:
        _, output = scene.run(loaders, "program.py", "load", str(count), how, timeout=500)
        assert job.poll() is None, "the job that saves has ended"
    assert job.returncode == 0, f"the job that saves ended with {job.returncode}"
    return _counted(output, count)


def _beside_kills(scene: Scene, count: int) -> str:
    """Load so often while jobs that save are killed, one after the other."""
    (scene.directory / "program.py").write_text(PROGRAM)
    rng, kills = random.Random(7), 0
    with _saving(scene, 2, "0", "late") as job:
        argv = [*scene.mpiexec, "-n", "2", sys.executable, "program.py", "load", str(count), "new"]
        with (scene.directory / "said").open("wb") as said:
            loads = subprocess.Popen(
                argv, cwd=scene.directory, env=environment(), stdin=subprocess.DEVNULL,
                stdout=said, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        until = time.monotonic() + 500
        while loads.poll() is None and time.monotonic() < until:
            time.sleep(rng.uniform(0.0, 2.0))
            os.killpg(job.pid, signal.SIGKILL)
            job.wait(60)
            while ranks := _savers(scene.directory):  # they may outlive their launcher
                for rank in ranks:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(rank, signal.SIGKILL)
                time.sleep(0.01)
            kills += 1
            job = _started(scene, 2, "save", "0", "late")
            time.sleep(1.5)  # until it saves
        if loads.poll() is None:
            os.killpg(loads.pid, signal.SIGKILL)
        loads.wait(60)
        (scene.directory / "stop").touch()
        job.wait(60)
    return f"{_counted((scene.directory / 'said').read_text(), count)}, {kills} kills"


def _savers(directory: Path) -> list[int]:
    """The processes that save in a directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"save" in words and os.readlink(process / "cwd") == str(directory.resolve()):
                found.append(int(process.name))
    return found


def _misplaced(scene: Scene) -> None:
    """A chunk of another step, and two exchanged files: refused by loads and by verify."""
    (scene.directory / "program.py").write_text(
        "import sys, numpy as np\n"
        "from distarray import checkpoint\n"
        "if sys.argv[1] == 'save':\n"
        "    for k in (1, 2):\n"
        "        state = {'x': np.full(1000, k), 'y': np.full(1000, -k)}\n"
        "        checkpoint.save('run', state, step=k)\n"
        "for k in (1, 2):\n"
        "    for ask in (checkpoint.verify, checkpoint.load):\n"
        "        try:\n"
        "            ask('run', step=k)\n"
        "        except checkpoint.CheckpointError as error:\n"
        "            assert 'of another checkpoint or from another place' in str(error), error\n"
        "            print('refused', flush=True)\n"
    )
    status, output = scene.run(2, "program.py", "save")
    assert status == 0, output
    assert "refused" not in output, output
    one, two = (scene.directory / "run" / f"step-0000000{k}" for k in (1, 2))
    shutil.copy(one / "x/c.0", two / "x/c.0")
    aside = Path(shutil.move(one / "x/c.0", scene.directory / "aside"))
    shutil.move(one / "y/c.0", one / "x/c.0")
    shutil.move(aside, one / "y/c.0")
    status, output = scene.run(2, "program.py", "load")
    assert status == 0, output
    assert output.count("refused") == 8, output


def _needs_checksums(plant: partial[str | None]) -> partial[str | None]:
    """A fault that is planted only where checkpoints can be saved."""

    def planted(scene: Scene) -> str | None:
        try:
            import google_crc32c  # noqa: F401
        except ImportError:
            raise Unavailable("google_crc32c is not installed") from None
        return plant(scene)

    return partial(planted)


_PLANTS: tuple[tuple[str, partial[str | None], bool], ...] = (
    ("chunks of another step and exchanged", partial(_misplaced), True),
    ("30 loads beside saves", partial(_beside, count=30), True),
    ("200 loads beside saves", partial(_beside, count=200), False),
    ("200 loads beside saves in the background", partial(_beside, count=200, late=True), False),
    (
        "200 loads beside saves of steps, keep=1",
        partial(_beside, count=200, keep=1, loaders=3),
        False,
    ),
    ("200 loads beside saves of steps, keep=3", partial(_beside, count=200, keep=3), False),
    ("200 loads into arrays", partial(_beside, count=200, how="into", savers=3), False),
    ("100 checks and loads", partial(_beside, count=100, how="verify", loaders=1), False),
    ("200 loads beside saves that are killed", partial(_beside_kills, count=200), False),
)
FAULTS = tuple(
    Fault(f"checkpoints: {name}", _needs_checksums(act), quick) for name, act, quick in _PLANTS
)
