"""SciPy, scikit-learn, xarray, einops and opt_einsum take distributed arrays, on 1 to 3 ranks."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("consumers.py")
#: Calls that give numbers.
LOCAL = {"r2", "mixture"}

NEEDED = ("scipy", "sklearn", "xarray", "einops", "opt_einsum")
missing = [name for name in NEEDED if find_spec(name) is None]
pytestmark = pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="module")
def verdicts(own_processes):
    """What the program says: (ranks, library, call) -> "distributed" or what is wrong."""
    run = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "PYTHONPATH": str(PROGRAM.parent.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    lines = [line.split("\t") for line in run.stdout.splitlines()]
    return {(int(ranks), library, name): said for ranks, library, name, said in lines}


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("library", ["scipy", "scikit-learn", "xarray", "einops", "opt_einsum"])
def test_library(verdicts, library, number):
    said = {key[2]: text for key, text in verdicts.items() if key[:2] == (number, library)}
    assert len(said) >= 3
    wrong = {
        name: text
        for name, text in said.items()
        if text != ("local" if name in LOCAL else "distributed")
    }
    assert wrong == {}
