"""The runner's tests start jobs, every one of them; they share `launching`."""

import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite("launching")
sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(autouse=True)
def starts_jobs(mpiexec: tuple[str, ...]) -> None:
    """Leave these tests out where no job can be started."""
