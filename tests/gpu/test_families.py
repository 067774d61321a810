"""The families' own tests once more, with blocks on the stand-in for CuPy.

In processes of their own: on thread ranks, and once under ``mpiexec -n 2``. Some rows of each test,
and a few examples, are enough: what goes wrong on a device goes wrong for nearly every one.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.launcher import ONCE_MORE, ROOT, once_more

ROOMS = ["tests/ops", "tests/array", "tests/comm", "tests/torch/bridge/test_gpu_blocks.py"]
#: Under MPI what differs from threads is the transport: families that talk in every way.
TALKING = [
    "tests/ops/test_reductions.py",
    "tests/ops/test_statistics.py",
    "tests/ops/test_scans.py",
    "tests/ops/test_contractions.py",
    "tests/ops/indexing",
]
OPTIONS = [*ONCE_MORE, "--device", "standin"]
#: Once more beside the stand-in for nccl4py, by which all goes that can.
BY_NCCL = [*ONCE_MORE, "--device", "nccl"]
NCCL_TESTS = ["tests/gpu/test_nccl.py", "tests/gpu/test_nccl_torch.py"]


def check(argv: list[str], examples: int, limit: float) -> None:
    env = once_more(DISTARRAY_TEST_EXAMPLES=str(examples))
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=limit)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.mark.suite
def test_on_thread_ranks(own_processes: None) -> None:
    check([sys.executable, "-m", "pytest", *ROOMS, *OPTIONS], examples=3, limit=1800)


@pytest.mark.suite
def test_by_nccl_on_thread_ranks(own_processes: None) -> None:
    argv = [sys.executable, "-m", "pytest", *NCCL_TESTS, *TALKING, *BY_NCCL]
    check(argv, examples=3, limit=1800)


@pytest.mark.suite
def test_by_nccl_under_mpi(mpiexec: tuple[str, ...]) -> None:
    argv = [*mpiexec, "-n", "2", sys.executable, "-m", "pytest", "--mpi", *NCCL_TESTS, *BY_NCCL]
    check(argv, examples=3, limit=900)


@pytest.mark.suite
def test_under_mpi(mpiexec: tuple[str, ...]) -> None:
    argv = [*mpiexec, "-n", "2", sys.executable, "-m", "pytest", "--mpi", *TALKING, *OPTIONS]
    check(argv, examples=3, limit=900)
