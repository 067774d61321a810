"""A Slurm of one node for a test: its daemons, started in a directory of their own and ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")

CONFIG = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket,cred_expire=5
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
KillWait=10
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=low Nodes={host} Default=YES MaxTime=60 PriorityTier=1 GraceTime=60
PartitionName=high Nodes={host} MaxTime=60 PriorityTier=10 PreemptMode=OFF
"""


def missing() -> str:
    """The first program of Slurm's that this machine does not have; empty if it has all."""
    return next((name for name in NEEDED if find(name) is None), "")


def find(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Unavailable(Exception):
    """Slurm is installed here, but its daemons do not come up."""


class Cluster:
    """The daemons of one node, in a ``with`` statement.

    Four CPUs whatever the machine has, and two partitions: jobs of `high` send those of `low` a
    SIGTERM, wait up to a minute for them to save, and take their place.
    """

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = dict(os.environ, SLURM_CONF=str(home / "slurm.conf"))
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        home = self.home
        home.mkdir(mode=0o755)
        for name in ("state", "spool"):
            (home / name).mkdir()
        key = home / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        user = subprocess.run(["id", "-un"], capture_output=True, text=True, check=True)
        host = socket.gethostname().partition(".")[0]
        text = CONFIG.format(host=host, user=user.stdout.strip(), ports=free_ports(2), home=home)
        (home / "slurm.conf").write_text(text)
        try:
            munge = ["--foreground", "--force", f"--key-file={key}"]
            munge += [f"--socket={home}/munge.socket", f"--pid-file={home}/munged.pid"]
            munge += [f"--log-file={home}/munged.log", f"--seed-file={home}/munged.seed"]
            self._start("munged", *munge)
            self.wait((home / "munge.socket").exists, "munge to start", 20)
            self._start("slurmctld", "-D")
            self._start("slurmd", "-D", "-N", host)
            self.wait(lambda: "idle" in self.run("sinfo", "-h", "-o", "%T"), "the node", 30)
        except (OSError, TimeoutError, AssertionError) as error:
            self.__exit__()
            raise Unavailable(str(error)) from error
        return self

    def _start(self, name: str, *options: str) -> None:
        path = find(name)
        assert path is not None
        with (self.home / f"{name}.out").open("wb") as out:
            daemon = subprocess.Popen(
                [path, *options], env=self.environment, stdout=out, stderr=out, cwd=self.home
            )
        self._daemons.append(daemon)

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(Exception):
            jobs = self.run("squeue", "-h", "-o", "%i").split()
            if jobs:
                self.run("scancel", "--full", "--signal=KILL", *jobs)
                self.wait(lambda: not self.run("squeue", "-h").strip(), "jobs to end", 15)
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait(10)

    def run(self, *command: str) -> str:
        """The output of one of Slurm's programs."""
        told = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=30
        )
        return told.stdout if told.returncode == 0 else ""

    def submit(self, where: Path, *options: str, **variables: str) -> str:
        """Submit a job script from a directory; the job's number."""
        told = subprocess.run(
            ["sbatch", "--parsable", *options],
            env=self.environment | variables,
            cwd=where,
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert told.returncode == 0, told.stderr
        return told.stdout.strip()

    def state(self, job: str) -> str:
        """RUNNING, PENDING, COMPLETED, ..."""
        told = self.run("scontrol", "--oneliner", "show", "job", job)
        return told.partition("JobState=")[2].partition(" ")[0]

    def finish(self, job: str, log: Path, seconds: float = 90) -> None:
        """Wait until a job has completed; show its log if it ends otherwise."""
        ended = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        self.wait(lambda: self.state(job) in ended, f"job {job} to end", seconds)
        if self.state(job) != "COMPLETED":
            told = log.read_text() if log.exists() else "no log"
            raise AssertionError(f"job {job} is {self.state(job)}\n{told}")

    def wait(self, there: Callable[[], object], what: str, seconds: float = 60) -> None:
        """Wait until something is so, asking again and again."""
        until = time.monotonic() + seconds
        while not there():
            if time.monotonic() > until:
                logs = [path.read_text()[-2000:] for path in sorted(self.home.glob("*.log"))]
                raise TimeoutError(f"waited {seconds} s for {what}\n" + "\n".join(logs))
            time.sleep(0.1)
