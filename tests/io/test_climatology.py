"""The climatology example, on a data set larger than a rank's memory limit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.launcher import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, str(ROOT / "examples" / "climatology.py")]
#: KiB that a rank may have: the libraries take 150 MB, a quarter of the data set 85 MB.
LIMIT = 300_000

h5py = pytest.importorskip("h5py")
pytest.importorskip("matplotlib")


def run(command: list[str], where: Path, limit: int | None = None) -> str:
    line = shlex.join(command)
    environment = os.environ | SETTINGS | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", line if limit is None else f"ulimit -d {limit}; exec {line}"],
        cwd=where,
        env=environment | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_more_data_than_memory(mpiexec: tuple[str, ...], tmp_path: Path) -> None:
    size = ["--years=40", "--rows=54"]
    run([*mpiexec, "-n", "2", *PROGRAM, "--make", "planet.h5", *size], tmp_path)
    study = [*PROGRAM, "planet.h5", "--picture", "planet.png"]
    told = run([*mpiexec, "-n", "4", *study], tmp_path, LIMIT)
    assert re.search(r"341 MB; memory of a rank: 307 MB", told), told
    assert (tmp_path / "planet.png").stat().st_size > 10_000
    # One process has no memory for it.
    alone = [sys.executable, "-c", "import h5py; h5py.File('planet.h5')['t2m'][...]"]
    with pytest.raises(AssertionError, match="MemoryError"):
        run(alone, tmp_path, LIMIT)
    with h5py.File(tmp_path / "planet.h5") as file:
        values = file["t2m"][...].reshape(40, 365, 54, 108)
    mean_year = values.mean(axis=0, dtype="f8")
    low, high = map(float, re.findall(r"mean year: (\S+) to (\S+) ", told)[0])
    np.testing.assert_allclose([low, high], [mean_year.min(), mean_year.max()], atol=0.006)
    found = re.search(r"holds (\d+) MB of it; its memory at the highest: (\d+) MB", told)
    assert found is not None
    assert int(found[1]) <= 90
