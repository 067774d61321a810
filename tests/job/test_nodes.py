"""Ranks on several nodes: what talks, and what reads and writes files, and what is counted.

Skipped where the machine cannot be divided into nodes (:mod:`tests.job.nodes`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.job.nodes import Nodes, Unavailable, missing
from tests.launcher import ONCE_MORE, ROOT, once_more, run_job

#: Ranks on each node.
RANKS = (2, 1, 1)
TALKING = [f"tests/{room}" for room in ("comm", "io", "checkpoint", "torch")]

COUNTED = """
import distarray
import distarray.numpy as np

group = distarray.comm.world_group()
x = np.arange(800_000.0)
with distarray.trace() as borders:
    (x[1:] - x[:-1]).to_local()
with distarray.trace() as sums:
    x.sum()
found = group.allgather_object((borders.away, sums.away))
if group.rank == 0:
    print(found, str(sums).splitlines()[-1].partition("1  ")[2])
"""


@pytest.fixture
def launcher(mpiexec: tuple[str, ...], tmp_path: Path) -> Iterator[list[str]]:
    if missing() or "--oversubscribe" in mpiexec:
        pytest.skip(f"no nodes here: {missing() or 'their launcher is of MPICH'}")
    try:
        with Nodes(len(RANKS), tmp_path) as nodes:
            yield nodes.launcher(mpiexec, RANKS)
    except Unavailable as why:
        pytest.skip(f"no nodes here: {why}")


@pytest.mark.suite
def test_what_talks(launcher: list[str]) -> None:
    argv = [*launcher, sys.executable, "-m", "pytest", "--mpi", *TALKING, *ONCE_MORE]
    settings = once_more(DISTARRAY_TEST_EXAMPLES="3", PYTHONFAULTHANDLER="1")
    code, output = run_job(argv, timeout=1800, cwd=ROOT, env=settings)
    assert code == 0, output[-8000:]


def test_messages_between_nodes_are_counted(launcher: list[str], tmp_path: Path) -> None:
    program = tmp_path / "counted.py"
    program.write_text(COUNTED)
    code, output = run_job([*launcher, sys.executable, str(program)], timeout=100, cwd=tmp_path)
    assert code == 0, output
    # Each rank but the first sends its first element to the one before it.
    assert output.strip() == "[(0, 1), (0, 1), (1, 1), (1, 1)] 1 to other nodes"
