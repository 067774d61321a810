"""The job scripts of other schedulers than Slurm, with stand-ins for the schedulers' programs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
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


class Jobs:
    """A directory with stand-ins for what a scheduler brings, in which job scripts run."""

    def __init__(self, where: Path, mpiexec: tuple[str, ...], again: str) -> None:
        self.where, tools = where, where / "tools"
        tools.mkdir()
        (tools / again).write_text(f'#!/bin/sh\necho {again} "$@" >> {where}/calls\n')
        (tools / "mpiexec").write_text(f'#!/bin/sh\nexec {" ".join(mpiexec)} "$@"\n')
        for tool in tools.iterdir():
            tool.chmod(0o755)
        (where / "nodes").write_text("localhost\nlocalhost\n")
        search = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        scheduler = {"PBS_NODEFILE": str(where / "nodes"), "PBS_JOBID": "77.here"}
        scheduler |= {"PBS_O_WORKDIR": str(where), "LSB_DJOB_NUMPROC": "2", "LSB_JOBID": "77"}
        self.environment = os.environ | SETTINGS | scheduler
        self.environment |= {"PATH": search, "PROGRAM": str(JOBS / "diffusion.py")}
        self.environment |= {"PYTHONPATH": str(ROOT)}

    def start(self, script: str, steps: int, margin: int) -> subprocess.Popen[str]:
        """Start a script in a session of its own, as a scheduler does."""
        return subprocess.Popen(
            ["bash", str(JOBS / script), "--size=32", f"--steps={steps}", f"--margin={margin}"],
            cwd=self.where,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def calls(self) -> list[str]:
        """What the scheduler has been asked for."""
        path = self.where / "calls"
        return path.read_text().splitlines() if path.exists() else []


def finished(job: subprocess.Popen[str]) -> str:
    """What a script has said, once it has ended well."""
    told, _ = job.communicate(timeout=100)
    assert job.returncode == 0, told
    return told


def tell_session(leader: int, number: int) -> None:
    """Send a signal to all processes of a session, as PBS does."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError):
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(words[3]) == leader:
                    os.kill(int(entry.name), number)


SCRIPTS = [("pbs.sh", "qrerun", signal.SIGTERM), ("lsf.sh", "brequeue", signal.SIGUSR1)]


@pytest.mark.parametrize(("script", "again", "number"), SCRIPTS)
def test_a_job_that_runs_out_of_time_is_started_again(
    mpiexec: tuple[str, ...], tmp_path: Path, script: str, again: str, number: int
) -> None:
    jobs = Jobs(tmp_path, mpiexec, again)
    told = finished(jobs.start(script, 5, margin=3600))
    assert "time left: 1" in told
    assert "stopped before step 0: the time is up" in told
    assert jobs.calls()[0].startswith(f"{again} 77")
    assert "finished 5 steps" in finished(jobs.start(script, 5, margin=60))
    assert (tmp_path / "result.npy").exists()
    assert len(jobs.calls()) == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="sessions are listed in /proc")
@pytest.mark.parametrize(("script", "again", "number"), SCRIPTS)
def test_a_job_that_is_told_to_stop_saves_first(
    mpiexec: tuple[str, ...], tmp_path: Path, script: str, again: str, number: int
) -> None:
    """All processes are told, the launcher too; the script ends well when the ranks have saved."""
    jobs = Jobs(tmp_path, mpiexec, again)
    job = jobs.start(script, 1_000_000, margin=0)
    assert job.stdout is not None
    assert "from step 0 on 2 ranks" in job.stdout.readline()
    tell_session(job.pid, number)
    told = finished(job)
    stopped = re.search(r"stopped before step (\d+): SIGUSR1", told)
    assert stopped is not None, told
    assert jobs.calls() == [f"{again} 77" + ".here" * (script == "pbs.sh")]
    told = finished(jobs.start(script, int(stopped[1]) + 2, margin=0))
    assert f"from step {stopped[1]} on 2 ranks" in told
    assert "finished 2 steps" in told


def test_a_launcher_ends_with_who_has_started_it(own_processes: None, tmp_path: Path) -> None:
    """And its status is handed on."""
    shielded = [sys.executable, "-m", "distarray.job"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}

    def status(*command: str) -> int:
        return subprocess.run([*shielded, *command], env=environment, timeout=60).returncode

    assert status() == 2
    assert status("sh", "-c", "exit 5") == 5
    assert status("sh", "-c", "kill -9 $$") == 137
    assert status(str(tmp_path / "nothing")) == 127
    child = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen(
        [*shielded, sys.executable, "-c", child], stdout=subprocess.PIPE, env=environment
    ) as launcher:
        assert launcher.stdout is not None
        pid = int(launcher.stdout.readline())
        launcher.kill()
    until = time.monotonic() + 10
    while Path(f"/proc/{pid}/cmdline").exists() and time.monotonic() < until:
        if not Path(f"/proc/{pid}/cmdline").read_bytes():
            break  # it has ended; nobody has asked for its status
        time.sleep(0.01)
    assert time.monotonic() < until
