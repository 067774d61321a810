"""The tests of arrays and operations once more, in a process where all that can be is put off."""

import subprocess
import sys

import pytest

from tests.launcher import ONCE_MORE, ROOT, once_more

ROOMS = ["tests/array", "tests/ops", "tests/explore"]
#: Says how much memory one operation after the other takes.
LEFT = "tests/array/test_temporaries.py"


@pytest.mark.suite
def test_families_that_wait(own_processes: None) -> None:
    settings = {"WAITING": "1", "THREADS": "1,3", "EXAMPLES": "3"}
    env = once_more(**{f"DISTARRAY_TEST_{name}": text for name, text in settings.items()})
    argv = [sys.executable, "-m", "pytest", *ONCE_MORE]
    argv += [*ROOMS, f"--ignore={LEFT}", "-m", "not suite and not launches"]
    done = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
