"""The runner of NumPy's own tests counts what it says it counts."""

import subprocess
import sys
from fnmatch import fnmatchcase

from tests.launcher import ROOT, environment
from tests.numpy_suite import left_out
from tests.numpy_suite.__main__ import files


def test_each_pattern_leaves_something_out():
    patterns = [pattern for listed in left_out.listed(2).values() for pattern in listed]
    found = files([])
    for pattern in patterns:
        of_file = pattern.partition("::")[0]
        assert any(fnmatchcase(file, of_file) for file in found), pattern
    assert left_out.reason("_core/tests/test_nditer.py::test_iter_refcount") is not None
    assert left_out.reason("lib/tests/test_utils.py::test_info_method_heading") is None
    mapped = "_core/tests/test_memmap.py::TestMemmap::test_roundtrip"
    assert left_out.reason(mapped) is None is not left_out.reason(mapped, ranks=3)


def test_a_file(mpiexec):
    argv = [sys.executable, "-m", "tests.numpy_suite", "--ranks", "2", "--cut"]
    run = subprocess.run(
        [*argv, "--files", "lib/tests/test_ufunclike.py"],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    file, ranks, passed, failed, *_ = run.stdout.splitlines()[1].split()
    assert (file, ranks, failed) == ("lib/tests/test_ufunclike.py", "2", "0")
    assert int(passed) > 3
