"""The same tests under MPI: one `mpiexec` launch per rank count.

Plain `pytest` runs the suite on thread ranks; this file starts
`mpiexec -n P python -m pytest --mpi tests` once for each P in 3, 6, 4, 2, 1: one launch per count,
since starting interpreters costs more than the tests, and the longest first, since `make test` runs
them beside the tests on thread ranks. Operations, which know no transport, run on 3 processes,
uneven blocks, and of each test every third row; thread ranks test all on every count. Groups,
meshes and files are tested on every count; arrays and modules on 3, and every third row of their
tests on 1, 2 and 4, of arrays on 6 as well.

On 4 processes the short ways in C are switched off.

`DISTARRAY_TEST_RANKS=3` or `=2,4` chooses the counts; `=` (empty) skips this file.
`DISTARRAY_TEST_RANKS_ARGS="-k reductions"` hands options to the inner pytest;
`DISTARRAY_TEST_SHARE=1` runs every row.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence

import pytest

from tests.launcher import ONCE_MORE, ROOT, once_more, run_job

pytestmark = pytest.mark.suite

RANKS = [int(p) for p in os.environ.get("DISTARRAY_TEST_RANKS", "3,6,4,2,1").split(",") if p]
#: The numbers of processes that operations are tested on, and where these tests are.
FOR_OPERATIONS = (3,)
OPERATIONS = ["ops", "benchmarks", "explore", "test_array_api.py", "test_coverage.py"]
OPERATIONS += ["profiling", "torch/models_table", "torch/opinfo", "torch/tensor"]
OPERATIONS += [f"array/test_{name}.py" for name in ("making", "methods", "retyping", "whole")]
#: Modules, and the manual's examples, are tested on no more; modules on 6 thread ranks as well.
MOST_FOR_MODULES = 4
#: The number of processes on which everything is in Python.
IN_PYTHON = 4
LIMIT = 2400.0  # seconds a launch may take


def command(launcher: Sequence[str], ranks: int) -> list[str]:
    """One launch: the inner pytest leaves out the tests that start processes of their own."""
    inner = ["-m", "pytest", "--mpi", "tests", *ONCE_MORE]
    left = ["test_on_ranks.py", "test_house.py", "runner"]
    if ranks not in FOR_OPERATIONS:
        left += OPERATIONS
    if ranks > MOST_FOR_MODULES:
        left += ["torch", "test_docs.py"]
    inner += [f"--ignore=tests/{name}" for name in left]
    inner += shlex.split(os.environ.get("DISTARRAY_TEST_RANKS_ARGS", ""))
    return [*launcher, "-n", str(ranks), sys.executable, *inner]


def launch(argv: list[str], ranks: int) -> tuple[int | None, str]:
    """Run the tests of one launch; after LIMIT every rank writes its stacks, and is ended."""
    shared = OPERATIONS if ranks in FOR_OPERATIONS else ["array", "torch"]
    settings = once_more(*(f"tests/{name}" for name in shared), PYTHONFAULTHANDLER="1")
    settings["DISTARRAY_SPEEDUPS"] = str(int(ranks != IN_PYTHON))
    # The same examples as on thread ranks, which have drawn many more: what is new is MPI.
    settings.setdefault("DISTARRAY_TEST_EXAMPLES", str(min(4, 12 // ranks)))
    return run_job(argv, timeout=LIMIT, cwd=ROOT, env=settings, stop=signal.SIGABRT)


def report(output: str, lines: int = 100) -> str:
    """What failed, first; where ranks were stuck; then the end of what they wrote."""
    failed = sorted(set(re.findall(r"^(?:FAILED|ERROR) .*$", output, re.MULTILINE)))
    stuck = []
    for stack in re.split(r"^Timeout \(.*$", output, flags=re.MULTILINE)[1:]:
        frames = re.findall(rf'^  File "{re.escape(str(ROOT))}/(.*)$', stack, re.MULTILINE)
        stuck += ["a rank was stuck here:", *(f"    {frame}" for frame in frames)]
    tail = [] if stuck else output.splitlines()[-lines:]
    return "\n".join([*failed, *stuck, "-" * 40, *tail])


@pytest.mark.parametrize("ranks", RANKS)
def test_suite_on_ranks(mpiexec: tuple[str, ...], ranks: int) -> None:
    code, output = launch(command(mpiexec, ranks), ranks)
    if code is None:
        pytest.fail(f"hung: {ranks} ranks did not end in {LIMIT:.0f} s\n{report(output)}", False)
    if code != 0:
        pytest.fail(f"{ranks} ranks: exit status {code}\n{report(output)}", pytrace=False)
