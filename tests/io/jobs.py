"""Programs of several MPI processes that tests of files start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.launcher import SETTINGS

ROOT = Path(__file__).resolve().parents[2]


def run_job(
    mpiexec: Sequence[str], ranks: int, program: str, where: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """Run a program in a directory; `words` stand before ``-c``."""
    return subprocess.run(
        [*mpiexec, "-n", str(ranks), sys.executable, *words, "-c", program],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=where,
        env={**os.environ, **SETTINGS, "PYTHONPATH": str(ROOT)},
    )
