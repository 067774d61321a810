"""A save behind the program's back that fails when the program has come to its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.io.jobs import ROOT, run_job

pytest.importorskip("google_crc32c")

PROGRAM = r"""
import atexit, os, resource, signal, sys
import numpy
import distarray as da
from distarray import checkpoint
atexit.register(lambda: sys.stdout.write("a handler of before\n"))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
mesh = da.default_mesh()
x = da.distribute(numpy.zeros(1_000_000), mesh, [da.Shard(0)], src=None)
checkpoint.save("good", {"x": x}, asynchronous=True).wait()
if mesh.rank == mesh.size() - 1:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, -1))
saving = checkpoint.save("bad", {"x": x}, asynchronous=True)
atexit.register(lambda: sys.stdout.write("a handler of after\n"))
if mesh.size() == 1:
    if os.fork() == 0:
        checkpoint.background.finish()  # the child has no thread that saves
        os._exit(0)
    assert os.wait()[1] == 0
HOW
"""
WORDS = ("File too large", "bad is not saved", "a handler of before", "a handler of after")


@pytest.mark.parametrize("runner", [False, True])
def test_the_job_ends_with_a_status(mpiexec: tuple[str, ...], tmp_path: Path, runner: bool) -> None:
    """Handlers have run by then, and the other rank has come to its end."""
    words = ("-m", "distarray") if runner else ()
    job = run_job(mpiexec, 2, PROGRAM.replace("HOW", "print('the end')"), tmp_path, *words)
    assert job.returncode == (1 if runner else 120), job.stderr
    for words in (*WORDS, "the end"):
        assert words in job.stdout + job.stderr, job.stdout + job.stderr
    assert sorted(os.listdir(tmp_path)) == ["good"]


@pytest.mark.parametrize("how", ["sys.exit()", "sys.exit(0)", "saving.wait()"])
def test_one_process_ends_with_a_status(own_processes: None, tmp_path: Path, how: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("HOW", how)], cwd=tmp_path, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == (1 if "wait" in how else 120), run.stderr
    assert run.stderr.count("OSError: [Errno 27] File too large") == 1, run.stderr
    assert run.stdout == "a handler of after\na handler of before\n"
    assert sorted(os.listdir(tmp_path)) == ["good"]


def test_a_save_that_nobody_waits_for_is_whole(mpiexec: tuple[str, ...], tmp_path: Path) -> None:
    program = PROGRAM.replace("100_000, -1", "-1, -1").replace("HOW", "")
    job = run_job(mpiexec, 2, program, tmp_path)
    assert job.returncode == 0, job.stderr
    assert sorted(os.listdir(tmp_path)) == ["bad", "good"]
