"""A real Slurm of one node: submitted, preempted, requeued, resumed on another number of ranks.

Skipped where Slurm is not installed (Debian: ``apt-get install slurm-wlm munge``).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.job.cluster import Cluster, Unavailable, missing
from tests.launcher import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "examples" / "jobs"
#: Seconds that the job to be preempted would take by itself.
LONG = 3.0


def finished(log: Path) -> tuple[int, float]:
    """How many steps took how many seconds, as the program says at its end."""
    found = re.search(r"finished (\d+) steps in ([\d.]+) s", log.read_text())
    assert found is not None, log.read_text()
    return int(found[1]), float(found[2])


def has(log: Path, words: str) -> bool:
    return log.exists() and words in log.read_text()


@pytest.mark.skipif(bool(missing()), reason=f"no Slurm on this machine: no {missing()}")
def test_a_preempted_job_goes_on_elsewhere(
    mpiexec: tuple[str, ...], tmp_path: Path, capfd: Any
) -> None:
    search = f"{Path(sys.executable).parent}:{Path(mpiexec[0]).parent}:{os.environ['PATH']}"
    variables = {"PATH": search, "PROGRAM": str(JOBS / "diffusion.py"), "PYTHONPATH": str(ROOT)}
    variables |= SETTINGS
    mpich = "--oversubscribe" not in mpiexec
    low, high, alone = (tmp_path / name for name in ("low", "high", "alone"))
    for directory in (low, high, alone):
        directory.mkdir()
    with ExitStack() as stack:
        try:
            slurm = stack.enter_context(Cluster(tmp_path / "slurm"))
        except Unavailable as why:
            pytest.skip(f"Slurm's daemons do not start here: {why}")
        # Undisturbed, by srun: it also tells how fast this machine is.
        script = "slurm_srun.sh" if mpich else "slurm_mpiexec.sh"
        first = slurm.submit(
            high, "-n2", str(JOBS / script), "--size=96", "--steps=150", **variables
        )
        slurm.finish(first, high / f"diffusion.{first}.log")
        done, seconds = finished(high / f"diffusion.{first}.log")
        steps = max(200, int(done * LONG / max(seconds, 0.05)))
        size = ["--size=96", f"--steps={steps}"]
        # On three ranks, and in the way of a job that matters more.
        job = slurm.submit(low, "-n3", "-t5", str(JOBS / "slurm_mpiexec.sh"), *size, **variables)
        log = low / f"diffusion.{job}.log"
        slurm.wait(lambda: has(log, "from step 0 on 3 ranks"), "the second job to start")
        slurm.submit(high, "-phigh", "-n4", "--wrap=true")
        slurm.wait(lambda: slurm.state(job) == "PENDING", "the second job to be requeued")
        slurm.run("scontrol", "update", f"JobId={job}", "NumCPUs=2", "NumTasks=2")
        slurm.finish(job, log)
    told = log.read_text()
    with capfd.disabled():
        print(f"\n{told.strip()}")
    # The same by one process, without Slurm.
    subprocess.run(
        [sys.executable, variables["PROGRAM"], *size],
        cwd=alone,
        env=os.environ | variables,
        check=True,
        timeout=200,
    )
    assert "time left: " in told
    left = [int(text) for text in re.findall(r"time left: (\d+) s", told)]
    assert len(left) == 2
    assert all(200 < seconds <= 300 for seconds in left)
    stopped = re.search(r"stopped before step (\d+): SIGTERM", told)
    assert stopped is not None
    assert f"from step {stopped[1]} on 2 ranks" in told
    assert 0 < int(stopped[1]) < steps
    resumed, undisturbed = (np.load(where / "result.npy") for where in (low, alone))
    assert resumed.tobytes() == undisturbed.tobytes()
