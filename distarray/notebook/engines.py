"""Engines of ipyparallel that are the ranks, as the kernel starts, calls and ends them."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ipyparallel

from distarray.notebook.engine import KERNEL, call
from distarray.notebook.shapes import Argument, Client, Cluster, Pending

__all__ = ["Engines", "default_ranks", "join", "start"]

#: Seconds that engines may take to start.
PATIENCE = 120.0
#: Milliseconds between two heartbeats; an engine counts as present after it has answered two. And
#: milliseconds for which heartbeats may be missed, for the controller and for the engine.
_BEAT, _SILENCE = 250, 120_000
_PROGRAM = [sys.executable, "-m", "distarray.notebook.engine"]
_ENGINE = [
    "--IPEngine.enable_nanny=False",
    f"--IPEngine.max_heartbeat_misses={_SILENCE // (_BEAT + 500)}",  # engines check 500 ms later
    "--log-level=40",
]
#: Number of the last characters of a job's output that are shown when it has ended.
_TAIL = 4000
#: Lines with which MPICH's launcher frames its messages.
_BANNER = ("=", "This typically refers", "Please see the FAQ", "YOUR APPLICATION TERMINATED")


class Engines:
    """Engines of one job, in the order of their ranks.

    Parameters
    ----------
    cluster : ipyparallel.Cluster
    client : ipyparallel.Client
        A client with all engines.
    owned : bool
        True if this kernel has started the engines, and must end them.

    Raises
    ------
    RuntimeError
        If the engines are not the ranks of one MPI job.
    """

    def __init__(self, cluster: Cluster, client: Client, owned: bool) -> None:
        self._cluster = cluster
        self._client = client
        self._owned = owned
        try:
            facts = client[:].apply_async(call, "join").get_dict(PATIENCE)
        except Exception as error:
            raise RuntimeError(f"the engines cannot be ranks: {error}") from None
        #: Facts that each rank has returned about itself.
        self.facts = sorted(facts.values(), key=lambda fact: int(fact["rank"]))
        if [fact["rank"] for fact in self.facts] != list(range(self.facts[0]["size"])):
            raise RuntimeError(
                f"the {len(facts)} engines that there are are not the ranks of one MPI job: start "
                "them by `ipcluster start --engines=mpi -n N`; or end them, and the kernel starts "
                "its own"
            )
        order = sorted(facts, key=lambda engine: int(facts[engine]["rank"]))
        self._all, self._first = client[order], client[order[:1]]

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.facts)

    def call(self, name: str, *args: Argument) -> Pending:
        """Call a function of `cells` on all ranks; return the pending results, in rank order."""
        pending: Pending = self._all.apply_async(call, name, *args)
        return pending

    def call_first(self, name: str, *args: Argument) -> Pending:
        """Call a function of `cells` on rank 0 alone; the function must not communicate."""
        pending: Pending = self._first.apply_async(call, name, *args)
        return pending

    def outputs(self, pending: Pending) -> list[dict[str, Any]]:
        """Return the outputs that rank 0 has published so far in a call; the list grows.

        The client itself drops the outputs when the call is over.
        """
        found: list[dict[str, Any]] = pending._children[0].output.metadata["outputs"]
        return found

    def are_there(self) -> bool:
        """Return True if this kernel's launcher still runs; for joined engines, if none is lost."""
        if self._owned:
            return all(launcher.state == "running" for launcher in self._cluster.engines.values())
        return len(self._client.ids) >= self.size

    def interrupt(self, number: int) -> None:
        """Send a signal to all ranks: by our launcher, or by the nannies of joined engines."""
        if self._owned:
            for launcher in self._cluster.engines.values():
                launcher.process.send_signal(number)
        else:
            self._client.send_signal(number, block=True)

    def last_words(self) -> str:
        """Return the last text that the launcher and the ranks have written outside of cells."""
        found = [launcher.get_output() for launcher in self._cluster.engines.values()]
        lines = "".join(found)[-_TAIL:].splitlines()
        return "\n".join([line for line in lines if not line.startswith(_BANNER)]).strip()

    def stop(self) -> None:
        """End the engines and the controller if this kernel has started them; else leave them."""
        self._client.close(linger=0)
        if self._owned:
            _end(self._cluster)


def _end(cluster: Cluster) -> None:
    """End a cluster, and remove the controller's log files."""
    with contextlib.suppress(Exception):
        cluster.stop_cluster_sync()
    for path in Path(cluster.profile_dir).glob(f"log/*{cluster.cluster_id}*"):
        with contextlib.suppress(OSError):
            path.unlink()


def default_ranks() -> int:
    """Return the default number of ranks: the tasks of the job, or one rank for each core."""
    for name in ("DISTARRAY_RANKS", "SLURM_NTASKS", "SLURM_NPROCS"):
        with contextlib.suppress(ValueError):
            return max(1, int(os.environ.get(name, "")))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2


def start(ranks: int) -> Engines:
    """Start engines under mpiexec, in a batch job on its nodes.

    Raises
    ------
    RuntimeError
        If there is no launcher, or the engines end instead of registering.
    """
    in_job = "SLURM_JOB_ID" in os.environ
    cluster = ipyparallel.Cluster(
        engines="mpi",
        n=ranks,
        cluster_id=f"distarray-{os.getpid()}-{os.urandom(4).hex()}",
        controller_ip="*" if in_job else "",
        controller_args=_controller_arguments(ranks),
        send_engines_connection_env=False,  # engines start beside the controller, await its file
        log_level=40,
        delay=0.0,
    )
    config = cluster.config
    config.MPIEngineSetLauncher.mpi_cmd = _launcher(ranks)
    config.MPIEngineSetLauncher.engine_cmd = _PROGRAM
    config.MPIEngineSetLauncher.engine_args = _ENGINE
    config.IPEngine.enable_nanny = False
    config.LocalControllerLauncher.controller_cmd = [*_PROGRAM, "controller"]
    config.BaseLauncher.environment = _environment(ranks)
    cluster.start_cluster_sync()
    try:
        client = cluster.connect_client_sync()
        _wait(cluster, client, ranks)
        return Engines(cluster, client, owned=True)
    except BaseException:
        _end(cluster)
        raise


def _controller_arguments(ranks: int) -> list[str]:
    """Return arguments for one process with threads, not ten processes: engines register faster.

    With many engines heartbeats are less frequent, because one process receives all of them.
    """
    beat = max(_BEAT, ranks)
    return [
        "--log-level=40",
        "--IPController.use_threads=True",
        "--IPController.db_class=NoDB",
        "--IPController.broadcast_scheduler_depth=0",
        f"--HeartMonitor.period={beat}",
        f"--HeartMonitor.max_heartmonitor_misses={_SILENCE // beat}",
    ]


def _wait(cluster: Cluster, client: Client, ranks: int) -> None:
    """Wait until all engines have registered."""
    until = time.monotonic() + PATIENCE
    while len(client.ids) < ranks:
        ended = any(launcher.state == "after" for launcher in cluster.engines.values())
        if ended or time.monotonic() > until:
            words = "".join([launcher.get_output() for launcher in cluster.engines.values()])
            raise RuntimeError(f"the {ranks} ranks have not started:\n{words[-_TAIL:].strip()}")
        time.sleep(0.02)


def _launcher(ranks: int) -> list[str]:
    """Return the command that starts ranks: from the MPI beside this interpreter, or the site's."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec") or shutil.which("srun")
    if found is None:
        raise RuntimeError(
            "no mpiexec here: pip install 'distarray-mpi[mpich]' brings one; on a cluster load the "
            "site's MPI (module load ...) before Jupyter is started"
        )
    if ranks > (os.cpu_count() or 1) and not found.endswith("srun"):
        said = subprocess.check_output([found, "--version"], text=True, timeout=60)
        if "Open MPI" in said or "OpenRTE" in said:
            return [found, "--oversubscribe"]
    return [found]


def _environment(ranks: int) -> dict[str, str]:
    """Return variables for one order of sets on all ranks; on shared cores, waiting ranks yield."""
    given = {"PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"), KERNEL: str(os.getpid())}
    if given["PYTHONHASHSEED"] == "random":
        given["PYTHONHASHSEED"] = "0"
    if ranks > (os.cpu_count() or 1):
        given["MPIR_CVAR_ENABLE_HEAVY_YIELD"] = "1"
    return given


def join() -> Engines | None:
    """Join the engines of the cluster that `ipcluster start` has started; None if there is none.

    Raises
    ------
    RuntimeError
        If the engines are not the ranks of one MPI job.
    """
    try:
        cluster = ipyparallel.Cluster.from_file(log_level=40)
        if not any(launcher.state == "running" for launcher in cluster.engines.values()):
            return None
    except Exception:  # there is no file, or its cluster has ended
        return None
    client = cluster.connect_client_sync()
    count = max([getattr(launcher, "n", 1) for launcher in cluster.engines.values()])
    _wait(cluster, client, count)
    return Engines(cluster, client, owned=False)
