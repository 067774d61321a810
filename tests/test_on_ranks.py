"""The same tests under MPI: one `mpiexec` launch per rank count.

Plain `pytest` runs the suite on thread ranks; this file starts
`mpiexec -n P python -m pytest --mpi tests` once for each P in 6, 4, 3, 2, 1: one launch per count,
since starting interpreters costs more than the tests, and the longest first, since `make test` runs
them beside the tests on thread ranks. Operations run on 1, 3 and 4 processes: uneven blocks, and a
mesh of 2 x 2. On 2 and 6 groups, files, movement and modules are tested, and the operations by
thread ranks alone. A launch that does not end in time is a hang: every rank then prints its stacks
(faulthandler) and the job is ended.

`DISTARRAY_TEST_RANKS=3` or `=2,4` chooses the counts; `=` (empty) skips this file.
`DISTARRAY_TEST_RANKS_ARGS="-k reductions"` hands options to the inner pytest.
"""

from __future__ import annotations

import faulthandler
import os
import re
import shlex
import signal
import sys
from collections.abc import Sequence

import pytest

from tests.launcher import ROOT, SETTINGS, run_job

pytestmark = pytest.mark.suite

RANKS = [int(p) for p in os.environ.get("DISTARRAY_TEST_RANKS", "6,4,3,2,1").split(",") if p]
STALL = 120  # seconds one test may take on every rank before it counts as hung
#: The numbers of processes that operations are tested on.
FOR_OPERATIONS = (1, 3, 4)
LIMIT = float(os.environ.get("DISTARRAY_TEST_RANKS_TIMEOUT", "900"))  # seconds a launch may take


def command(launcher: Sequence[str], ranks: int) -> list[str]:
    """One launch: the inner pytest leaves out the tests that start processes of their own."""
    inner = ["-m", "pytest", "--mpi", "tests", "-q", "-p", "no:cacheprovider", "--tb=short"]
    inner += ["-o", f"faulthandler_timeout={STALL}", "-o", "faulthandler_exit_on_timeout=true"]
    left = ["test_on_ranks.py", "test_house.py", "runner"]
    if ranks not in FOR_OPERATIONS:
        left += ["ops", "test_coverage.py", "test_ledger.py"]
    inner += [f"--ignore=tests/{name}" for name in left]
    inner += shlex.split(os.environ.get("DISTARRAY_TEST_RANKS_ARGS", ""))
    return [*launcher, "-n", str(ranks), sys.executable, *inner]


def launch(argv: list[str], ranks: int) -> tuple[int | None, str]:
    """Run the tests of one launch; after LIMIT every rank writes its stacks, and is ended."""
    settings = dict(os.environ, PYTHONFAULTHANDLER="1") | SETTINGS
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
    faulthandler.cancel_dump_traceback_later()  # the ranks watch over themselves
    code, output = launch(command(mpiexec, ranks), ranks)
    if code is None:
        pytest.fail(f"hung: {ranks} ranks did not end in {LIMIT:.0f} s\n{report(output)}", False)
    if code != 0:
        pytest.fail(f"{ranks} ranks: exit status {code}\n{report(output)}", pytrace=False)
