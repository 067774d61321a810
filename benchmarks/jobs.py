"""The jobs of a run: one a library and rank count, all started at once, asleep until asked."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.line import Line

__all__ = ["ROOT", "Job", "Refused", "launched", "said"]

ROOT = Path(__file__).resolve().parent.parent
#: Libraries whose ranks are threads or devices of one process.
ONE_PROCESS = ("jax", "dask")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
START_LIMIT = 60.0  # seconds; Heat and torch load slowly
LIMIT = 120.0  # seconds an order may take: several times what the slowest case needs


class Refused(Exception):
    """A rank could not carry out an order; the text is its traceback, or why there is none."""


@dataclass
class Job:
    """A library on some ranks, and a line to each of them.

    Attributes
    ----------
    library : str
    ranks : int
    python : str
        The interpreter that has the library.
    """

    library: str
    ranks: int
    python: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    lines: dict[int, Line] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Such as ``heat on 2``."""
        return (
            self.library if self.library.startswith("numpy") else f"{self.library} on {self.ranks}"
        )

    @property
    def members(self) -> int:
        """The processes that have a line."""
        return 1 if self.library in ONE_PROCESS else self.ranks

    def ask(self, order: str, *arguments: Any) -> list[Any]:
        """Give an order to all ranks; their answers, in rank order.

        Ranks that do not answer are ended, and others started in their place.
        """
        try:
            for line in self.lines.values():
                line.send([order, arguments])
            answers = [self.lines[rank].receive() for rank in range(self.members)]
        except (OSError, EOFError) as lost:
            self.end(patience=0)
            self.start()
            raise Refused(f"no answer ({lost}); its processes were started anew") from lost
        for done, value in answers:
            if not done:
                raise Refused(value)
        return [value for _, value in answers]

    def start(self) -> None:
        """Start the processes, and wait until all of them are on the line."""
        key = secrets.token_hex(16)
        with socket.create_server(("127.0.0.1", 0), backlog=self.ranks) as server:
            server.settimeout(START_LIMIT)
            port = str(server.getsockname()[1])
            worker = [self.python, "-m", "benchmarks.worker", self.library, port]
            environment = _environment(self.library, self.ranks, key)
            if self.library == "dtensor":
                meeting = str(_free_port())
                for rank in range(self.ranks):
                    place = {"RANK": str(rank), "WORLD_SIZE": str(self.ranks)}
                    place["MASTER_PORT"] = meeting
                    self.processes.append(_start(worker, environment | place))
            else:
                alone = self.library.startswith("numpy") or self.library in ONE_PROCESS
                prefix = [] if alone else [*_mpiexec(self.python), "-n", str(self.ranks)]
                self.processes.append(_start([*prefix, *worker], environment))
            while len(self.lines) < self.members:
                line = Line(server.accept()[0], LIMIT)
                hello = line.receive()
                if hello.get("key") == key:
                    self.lines[hello["rank"]] = line

    def end(self, patience: float = 20.0) -> None:
        """Hang up, and wait for the processes to leave."""
        for line in self.lines.values():
            line.close()
        for process in self.processes:
            try:
                process.wait(patience)
            except subprocess.TimeoutExpired:
                _kill(process)
        self.lines.clear()
        self.processes.clear()


@contextmanager
def launched(library: str, ranks: int, python: str) -> Iterator[Job]:
    """A job of `library` on so many ranks, run by the interpreter `python`."""
    job = Job(library, ranks, python)
    try:
        job.start()
        yield job
    finally:
        job.end()


def _start(argv: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv, env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started: mpiexec's ranks outlive a killed mpiexec."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _environment(library: str, ranks: int, key: str) -> dict[str, str]:
    threads = "2" if library == "numpy-2" else "1"
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"PYTHONPATH": path, "BENCHMARKS_KEY": key, "MASTER_ADDR": "127.0.0.1"}
    settings |= {"GLOO_SOCKET_IFNAME": "lo", "PYTHONWARNINGS": "ignore"}
    settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    settings["BENCHMARKS_RANKS"] = str(ranks)
    if library == "jax":
        settings["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={ranks}"
        settings["JAX_PLATFORMS"] = "cpu"
    return dict(os.environ) | dict.fromkeys(THREADS, threads) | settings


def _mpiexec(python: str) -> list[str]:
    """The launcher beside the interpreter, or the one on PATH."""
    beside = Path(python).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise FileNotFoundError("no mpiexec beside the interpreter or on PATH")
    return [found, "--oversubscribe"] if "Open MPI" in said(found, "--version") else [found]


def said(*argv: str, **settings: str) -> str:
    """What a command prints on its standard output, run in the repository."""
    environment = dict(os.environ) | settings
    run = subprocess.run(
        argv, check=False, capture_output=True, text=True, cwd=ROOT, env=environment
    )
    return run.stdout.strip()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
