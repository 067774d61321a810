"""Saves that are killed: ``python killing.py DIRECTORY SAVES`` prints how many, of how many kinds.

``python killing.py DIRECTORY SAVES jobs`` kills jobs of MPI, of which a rank or all are killed.

First at every single call that changes the file system, one after the other: a forked child stops
there for good, as a kill or a power cut would have it, and what it leaves is looked at. Then at
random instants, by SIGKILL, while saves follow one another. Whenever it happens, there must be a
whole checkpoint, the old one or the new one, and never less than what a save had returned for.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import distarray as da
from distarray import DeviceMesh, Shard, checkpoint
from distarray.comm import run_threads
from distarray.io import chunk_grids, leftovers

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from launcher import SETTINGS, find_mpiexec  # noqa: E402

#: Calls that change what is on disk.
CALLS = ("mkdir", "open", "writev", "fsync", "rename", "unlink", "rmdir")


#: Seconds that a child which is killed at random has at the most, to begin with.
_LONGEST = 0.1


def save_one(path: Path, number: int, ranks: int, step: int | None, asynchronous: bool) -> None:
    """Save a state that says in every element which one it is."""

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (ranks,))
        x = da.distribute(np.full((9, 5), float(number)), mesh, [Shard(0)], src=None)
        state = {"x": x, "n": number, "deep": [{"y": np.arange(4) + number}]}
        checkpoint.save(path, state, step=step, keep=step and 2, asynchronous=asynchronous).wait()

    run_threads(ranks, program)


def load_one(path: Path) -> int | None:
    """Which state is there; fails if it is not whole."""

    def program(group: Any) -> int | None:
        mesh = DeviceMesh(group, (1,))
        if checkpoint.latest(path, mesh=mesh) is None:
            return None
        found = checkpoint.load(path, mesh=mesh)
        number = int(found["n"])
        assert (found["x"].full() == number).all()
        assert (found["deep"][0]["y"] == np.arange(4) + number).all()
        return number

    return run_threads(1, program)[0]


def stop_at(call: int) -> None:
    """Make this process stop for good at the so-and-so-many-th change of the file system."""
    left = [call]

    def wrapped(function: Any) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os._exit(9)
            return function(*args, **kwargs)

        return run

    for name in CALLS:
        setattr(os, name, wrapped(getattr(os, name)))


def everywhere(directory: Path, step: int | None, two_steps: bool = False) -> int:
    """Stop at each call in turn; the number of places."""
    path = directory / f"everywhere-{step}-{two_steps}"
    if two_steps:  # a system that cannot exchange names at once
        da.io.directories._exchange_at_once = lambda a, b: False
    save_one(path, 0, 1, step, False)
    kept, place = 0, 0
    while True:
        child = os.fork()
        if child == 0:
            stop_at(place)
            save_one(path, kept + 1, 1, step and step + kept + 1, False)
            os._exit(0)
        finished = os.waitpid(child, 0)[1] == 0
        found = load_one(path)
        assert found in (kept, kept + 1), (place, found, kept)
        if finished:
            assert found == kept + 1
            assert leftover(path) == []  # of any of those that were stopped before
            return place
        kept, place = found, place + 1


def leftover(path: Path) -> list[str]:
    """What is unfinished, beside a checkpoint and in it."""
    return [name for d in (path, path.parent) for name in os.listdir(d) if name.startswith(".")]


def at_random(directory: Path, saves: int) -> tuple[int, int]:
    """Kill at random instants, until so many saves are done; the numbers of kills and of saves.

    A child has time for a few saves, often for less than one; for more once none gets done.
    """
    path, told, done, kills = directory / "random", directory / "told", 0, 0
    rng, longest = random.Random(5), _LONGEST
    while done < saves:
        child = os.fork()
        if child == 0:
            for save in range(done + 1, done + 1000):
                save_one(path, save, 3, save, save % 2 == 0)
                with told.open("a") as file:
                    file.write(f"{save}\n")
            os._exit(0)
        time.sleep(rng.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        said = max([done, *map(int, told.read_text().split())] if told.exists() else [done])
        found = load_one(path) or 0
        assert found in (said, said + 1), (kills, found, said)
        longest = 1.3 * longest if found == done else _LONGEST
        done = found
    save_one(path, done + 1, 1, done + 1, False)
    assert leftover(path) == []
    return kills, done


def killed_job(
    mpiexec: Sequence[str], path: Path, victim: int | None, delay: float, first: int = 1
) -> list[int]:
    """Start a job of 2 ranks that saves, and kill one of them or all; the saves it has told of."""
    job = subprocess.Popen(
        [*mpiexec, "-n", "2", sys.executable, str(HERE / "killing.py"), str(path), "mpi",
         str(9 if victim is None else victim), str(int(1000 * delay)), str(first)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True,
        cwd=HERE.parents[1],
        env={**os.environ, **SETTINGS, "PYTHONPATH": str(HERE.parents[1])},
    )  # fmt: skip
    assert job.stdout is not None
    said = []
    if victim is None:
        said.append(job.stdout.readline())
        time.sleep(delay)
        os.killpg(job.pid, signal.SIGKILL)
    said += job.communicate(timeout=60)[0].splitlines()
    assert job.returncode != 0
    until = time.monotonic() + 30  # ranks may outlive their launcher for a moment
    while (_runs_in(path) or _is_owned(path)) and time.monotonic() < until:
        time.sleep(0.01)
    return [int(found[1]) for found in map(re.compile(r"saved (\d+)\n?").fullmatch, said) if found]


def _runs_in(path: Path) -> bool:
    """Whether a process lives that was started with this path."""
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(path) in command.read_text(errors="replace").split("\0"):
                return True
    return False


def _is_owned(path: Path) -> bool:
    """Whether what was being written has an owner: one that ends loses its command first."""
    found = [*leftovers.leftovers(path.parent), *leftovers.leftovers(path)]
    return not all(map(leftovers.is_abandoned, found))


def jobs(directory: Path, saves: int) -> tuple[int, int]:
    """Kill jobs at random instants, until so many saves are done; as :func:`at_random`."""
    rng, done, kills = random.Random(5), 0, 0
    while done < saves:
        victim = rng.choice([0, 1, None])
        delay = rng.uniform(0.0, 0.4)
        said = killed_job(find_mpiexec(), directory / "jobs", victim, delay, done + 1)
        kills += 1
        found = load_one(directory / "jobs") or 0
        assert found >= max(said, default=done), (kills, victim, found, said)
        done = found
    return kills, done


def under_mpi(directory: Path) -> None:
    """One of several processes that save until one of them is killed; see test_faults.py."""
    mesh = da.default_mesh()
    victim, seconds, first = (int(word) for word in sys.argv[3:6])
    x = da.distribute(np.zeros((9, 5)), mesh, [Shard(0)], src=None)
    for number in range(first, first + 1000):
        state = {"x": x + number, "n": number, "deep": [{"y": np.arange(4) + number}]}
        checkpoint.save(directory, state, step=number, keep=2, asynchronous=number % 2 == 0)
        if mesh.rank == 0 and number % 2:
            print("saved", number, flush=True)
        if mesh.rank == victim and number == first:
            threading.Timer(seconds / 1000, os.kill, (os.getpid(), signal.SIGKILL)).start()


def main() -> None:
    """Count."""
    chunk_grids.CHUNK, chunk_grids.LEAST = 64, 64
    directory = Path(sys.argv[1])
    if sys.argv[2] == "mpi":
        under_mpi(directory)
        return
    if sys.argv[3:] == ["jobs"]:
        print("killed {} jobs in {} saves".format(*jobs(directory, int(sys.argv[2]))))
        return
    print("stopped at", everywhere(directory, None), "places of a save that replaces")
    print("stopped at", everywhere(directory, 100), "places of a save of a step")
    print("killed {} times in {} saves".format(*at_random(directory, int(sys.argv[2]))))
    print("stopped at", everywhere(directory, None, True), "places where names change in two steps")


if __name__ == "__main__":
    main()
