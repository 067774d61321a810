"""The job scripts of other schedulers than Slurm, with stand-ins for the schedulers' programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launcher import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "examples" / "jobs"


def test_scripts_are_bash() -> None:
    scripts = sorted(JOBS.glob("*.sh"))
    assert len(scripts) == 5
    for script in scripts:
        assert os.access(script, os.X_OK)
        subprocess.run(["bash", "-n", str(script)], check=True)


@pytest.mark.parametrize(("script", "again"), [("pbs.sh", "qrerun"), ("lsf.sh", "brequeue")])
def test_a_job_that_runs_out_of_time_is_started_again(
    mpiexec: tuple[str, ...], tmp_path: Path, script: str, again: str
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / again).write_text(f'#!/bin/sh\necho {again} "$@" >> {tmp_path}/calls\n')
    (tools / "mpiexec").write_text(f'#!/bin/sh\nexec {" ".join(mpiexec)} "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (tmp_path / "nodes").write_text("localhost\nlocalhost\n")
    search = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    scheduler = {"PBS_NODEFILE": str(tmp_path / "nodes"), "PBS_JOBID": "77.here"}
    scheduler |= {"PBS_O_WORKDIR": str(tmp_path), "LSB_DJOB_NUMPROC": "2", "LSB_JOBID": "77"}
    environment = os.environ | SETTINGS | scheduler
    environment |= {"PATH": search, "PROGRAM": str(JOBS / "diffusion.py")}
    environment |= {"PYTHONPATH": str(ROOT)}

    def run(margin: int) -> str:
        done = subprocess.run(
            ["bash", str(JOBS / script), "--size=32", "--steps=5", f"--margin={margin}"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    told = run(margin=3600)
    assert "time left: 1" in told
    assert "stopped before step 0: the time is up" in told
    assert (tmp_path / "calls").read_text().startswith(f"{again} 77")
    assert "finished 5 steps" in run(margin=60)
    assert (tmp_path / "result.npy").exists()
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
