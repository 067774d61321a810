"""What killed jobs leave behind goes with the next save; what a living one writes stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import distarray as da
import distarray.io as io
from distarray import DeviceMesh, checkpoint
from distarray.comm import run_threads
from distarray.io import directories, leftovers
from tests.checkpoint.states import small_chunks
from tests.io.helpers import hidden
from tests.io.jobs import run_job

__all__ = ["small_chunks"]

pytest.importorskip("google_crc32c")
pytestmark = pytest.mark.usefixtures("own_processes")
GONE = 4_000_000  # larger than any process has
ELSEWHERE = "another-node"


def made(path: Path, old: float = 0.0) -> Path:
    """A directory with a file in it, last written so many seconds ago."""
    (path / "x").mkdir(parents=True)
    (path / "x" / "c.0").write_bytes(b"some bytes")
    then = time.time() - old
    for entry in (path / "x" / "c.0", path / "x", path):
        os.utime(entry, (then, then))
    return path


def named(of: str, what: str, host: str = "", pid: object = GONE) -> str:
    return f".{of}~{host or leftovers._host()}~{pid}~0.{what}"


def save(path: Path, step: int | None, keep: int | None = None) -> None:
    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (group.size,))
        checkpoint.save(path, {"x": np.arange(5.0)}, step=step, keep=keep, mesh=mesh)

    run_threads(2, program)


def test_a_save_of_any_step_clears_what_no_living_job_owns(tmp_path: Path) -> None:
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    ended = subprocess.Popen([sys.executable, "-c", ""])
    time.sleep(0.5)  # it has ended, and waits for us: a zombie
    alive = f"{sleeper.pid}-{leftovers._began(sleeper.pid)}"
    run = tmp_path / "run"
    goes = [
        named("step-00000001", "partial"),
        named("step-00000002", "removed"),
        named("step-00000003", "removed", ELSEWHERE),  # being removed: whoever does it
        named("step-00000004", "partial", pid=os.getpid()),  # of this process, which has no such
        named("step-00000005", "partial", pid=f"{sleeper.pid}-1"),  # its number is used again
        named("step-00000006", "partial", pid=ended.pid),
        named("step-00000007", "removed", pid=alive),
        named("step-00000010", "previous"),  # its successor is there
    ]
    stays = [
        named("step-00000001", "partial", ELSEWHERE),
        named("step-00000002", "partial", pid=alive),
        named("step-00000003", "partial", pid=sleeper.pid),
    ]
    try:
        save(run, 10)
        for name in (*goes, *stays):
            made(run / name)
        idle = made(run / named("step-00000008", "partial", ELSEWHERE), 2 * leftovers.IDLE)
        made(run / named("step-00000009", "previous"))
        save(run, 11)
        assert sorted(hidden(run)) == sorted(stays)
        assert not idle.exists()
        assert sorted(n for n in os.listdir(run) if not n.startswith(".")) == [
            "step-00000009", "step-00000010", "step-00000011",
        ]  # fmt: skip
    finally:
        sleeper.kill()
        sleeper.wait()
        ended.wait()
    save(run, 12)
    assert hidden(run) == stays[:1]


def test_a_checkpoint_that_was_moved_away_is_found(tmp_path: Path) -> None:
    """By whoever asks for the steps, the last one, or all of them."""
    for ask in (
        lambda mesh: checkpoint.latest(tmp_path / "run", mesh=mesh).name == "step-00000002",
        lambda mesh: checkpoint.steps(tmp_path / "run", mesh=mesh) == [1, 2],
        lambda mesh: checkpoint.load(tmp_path / "run", mesh=mesh)["x"][4] == 4,
    ):
        save(tmp_path / "run", 1)
        save(tmp_path / "run", 2)
        (tmp_path / "run" / "step-00000002").rename(
            tmp_path / "run" / named("step-00000002", "previous")
        )
        assert all(run_threads(2, lambda group, ask=ask: ask(DeviceMesh(group, (2,)))))
        assert hidden(tmp_path / "run") == []


def test_a_living_job_may_finish_its_exchange(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks for the checkpoint meanwhile waits, and takes it for lost only after a while."""
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    alive = f"{sleeper.pid}-{leftovers._began(sleeper.pid)}"
    previous = tmp_path / named("run", "previous", pid=alive)
    try:
        monkeypatch.setattr(directories, "_PATIENCE", 0.3)
        save(tmp_path / "run", None)
        (tmp_path / "run").rename(previous)
        before = time.monotonic()
        assert run_threads(1, lambda group: checkpoint.latest(tmp_path / "run") is not None) == [
            True
        ]
        assert time.monotonic() - before >= 0.3
        assert hidden(tmp_path) == []
    finally:
        sleeper.kill()
        sleeper.wait()


def test_who_has_taken_over_an_idle_save_wins(tmp_path: Path) -> None:
    """A job that was idle for an hour is told that it has lost its directory; it loses no other."""
    save(tmp_path / "run", None)
    aside = directories.begin(tmp_path / "run")
    leftovers.active.discard(aside)
    directories.tidy(tmp_path)
    with pytest.raises(FileNotFoundError, match="another job has removed"):
        directories.commit(aside, tmp_path / "run")
    assert run_threads(1, lambda group: checkpoint.load(tmp_path / "run")["x"][4]) == [4.0]


def test_files_with_long_names(tmp_path: Path) -> None:
    """As long as the file system takes them, in any letters; and what is left of them goes."""
    name = "\u00e9" * 110 + "x" * 30 + ".npy"
    assert len(os.fsencode(name)) == 254
    made(tmp_path / named(leftovers.short(name), "partial"))
    made(tmp_path / named("something else", "partial"))

    def program(group: Any) -> None:
        mesh = DeviceMesh(group, (2,))
        x = da.distribute(np.arange(7.0), mesh, [da.Shard(0)], src=None)
        io.write(tmp_path / name, x)
        checkpoint.save(tmp_path / ("y" * 250), {"x": x})
        checkpoint.save(tmp_path / ("y" * 250), {"x": x})
        assert float(io.read(tmp_path / name, mesh=mesh).sum()) == 21.0

    run_threads(2, program)
    assert sorted(os.listdir(tmp_path)) == ["y" * 250, name]


KILLED = r"""
import os, sys
import numpy as np
import distarray as da
from distarray import checkpoint
mesh = da.default_mesh()
x = da.distribute(np.zeros(100_000), mesh, [da.Shard(0)], src=None)
first = (checkpoint.steps("run") or [0])[-1]
for number in range(first + 1, first + 4):
    checkpoint.save("run", {"x": x + number}, step=number, keep=2)
mesh.group.barrier()
if mesh.rank == 0:
    os.kill(os.getpid(), 9)
mesh.group.barrier()
"""


def test_jobs_killed_when_save_has_returned_leave_nothing(
    mpiexec: tuple[str, ...], tmp_path: Path
) -> None:
    for kill in range(1, 4):
        job = run_job(mpiexec, 2, KILLED, tmp_path)
        assert job.returncode != 0, job.stdout
        assert sorted(os.listdir(tmp_path / "run")) == [
            f"step-{3 * kill - 1:08d}",
            f"step-{3 * kill:08d}",
        ], job.stderr
