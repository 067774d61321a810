"""Runs of the program, one for each number of ranks, and the figures of their profiles."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from distarray.array.movement import FEW
from distarray.profiling.measured import Line

__all__ = ["Failure", "Measured", "Run", "copies", "launch", "launched_machine", "run_of"]

#: Number of the last output lines shown of a failed run.
_LAST = 12
#: Seconds that a run has to end after a signal.
_PATIENCE = 10.0


class Measured(NamedTuple):
    """Figures of one line in one run.

    Attributes
    ----------
    text : str
        Source text of the line.
    computing, sending, waiting : float
        Seconds, mean over the ranks.
    slowest : float
        Seconds of computing on the rank that computes longest.
    all_messages, all_bytes : int
        Sent by all ranks together; a collective counts as one message of each rank.
    messages, nbytes : int
        Of these, sent point-to-point, without gathers.
    collectives, collective_bytes : int
        Of these, sent in collectives, without gathers.
    gathers, gathered : int
        Number of times a rank sent its part of an array to all others, and bytes of these parts.
    busiest_messages, busiest_collectives, busiest_bytes : int
        Maxima over the ranks, without gathers; bytes sent or received, whichever are more.
    temporary : int
        Maximum memory that the line took on a rank.
    """

    text: str = ""
    computing: float = 0.0
    sending: float = 0.0
    waiting: float = 0.0
    slowest: float = 0.0
    all_messages: int = 0
    all_bytes: int = 0
    messages: int = 0
    nbytes: int = 0
    collectives: int = 0
    collective_bytes: int = 0
    gathers: int = 0
    gathered: int = 0
    busiest_messages: int = 0
    busiest_collectives: int = 0
    busiest_bytes: int = 0
    temporary: int = 0

    @property
    def seconds(self) -> float:
        """All seconds, mean over the ranks."""
        return self.computing + self.sending + self.waiting


@dataclass(frozen=True)
class Run:
    """Run on one number of ranks.

    Attributes
    ----------
    ranks : int
    seconds : float
        Duration on the slowest rank.
    peak : int
        Maximum memory of a rank, in bytes.
    lines : dict of Line to Measured
    """

    ranks: int
    seconds: float
    peak: int
    lines: Mapping[Line, Measured] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Run that failed, with the last lines of its output."""

    ranks: int
    why: str
    said: Sequence[str] = ()


def run_of(figures: Mapping[str, Any]) -> Run:
    """Make a run from the figures of its profile (:mod:`distarray.profiling.figures`)."""
    lines = {Line(line["file"], line["line"]): _measured(line) for line in figures["lines"]}
    return Run(figures["ranks"], figures["seconds"], max(figures["peak"]), lines)


def copies(ranks: int) -> int:
    """Return how often the ledger counts a gathered part; few ranks send it to each peer."""
    return ranks - 1 if ranks <= FEW else 1


def _measured(line: Mapping[str, Any]) -> Measured:
    size = len(line["computing"])
    few, times = size <= FEW, copies(size)
    out, into, gathers, gathered = [
        np.array(line[name]) for name in ("out", "into", "gathers", "gathered")
    ]
    collectives = np.array(line["collectives"]) - (0 if few else gathers)
    collective_bytes = np.array(line["collective_out"]) - (0 if few else gathered)
    messages = np.array(line["messages_out"]) - collectives - gathers * times
    nbytes = out - collective_bytes - gathered * times
    received = into - (gathered.sum() - gathered)
    return Measured(
        text=line["text"],
        computing=_mean(line["computing"]),
        sending=_mean(line["sending"]),
        waiting=_mean(line["waiting"]),
        slowest=max(line["computing"]),
        all_messages=sum(line["messages_out"]),
        all_bytes=sum(line["out"]),
        messages=int(messages.sum()),
        nbytes=int(nbytes.sum()),
        collectives=int(collectives.sum()),
        collective_bytes=int(collective_bytes.sum()),
        gathers=int(gathers.sum()),
        gathered=int(gathered.sum()),
        busiest_messages=int(messages.max()),
        busiest_collectives=int(collectives.max()),
        busiest_bytes=max(0, int(received.max()), int((nbytes + collective_bytes).max())),
        temporary=max(line["temporary"]),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def launch(
    launcher: Sequence[str], ranks: int, program: Sequence[str], place: Path
) -> Run | Failure:
    """Run the program with a profile on a number of ranks, and wait for it.

    Parameters
    ----------
    launcher : sequence of str
        Command before ``-n``.
    ranks : int
    program : sequence of str
        Command line after ``python -m distarray``.
    place : Path
        Directory for the profile and the output of the run.
    """
    wanted, output = place / f"{ranks}.json", place / f"{ranks}.txt"
    code = _started(
        [*launcher, "-n", str(ranks), sys.executable, "-m", "distarray"]
        + [f"--profile={wanted}", *program],
        output,
    )
    said = output.read_text(errors="replace").strip().splitlines()[-_LAST:]
    if code:
        ended = f"killed by signal {-code}" if code < 0 else f"exit status {code}"
        return Failure(ranks, ended, said)
    try:
        figures = json.loads(wanted.read_text())
    except (OSError, ValueError):
        return Failure(ranks, "it has left no profile: does it call os._exit?", said)
    if figures["ranks"] != ranks:
        why = f"{' '.join(launcher)} has started {ranks} jobs of {figures['ranks']} rank"
        return Failure(ranks, f"{why}: it belongs to another MPI than mpi4py", said)
    return run_of(figures)


def launched_machine(launcher: Sequence[str], ranks: int, place: Path) -> list[float] | Failure:
    """Measure the three numbers of this machine in a separate job."""
    wanted, output = place / "machine.json", place / "machine.txt"
    module = "distarray.profiling.scaling.machine"
    code = _started(
        [*launcher, "-n", str(ranks), sys.executable, "-m", module, str(wanted)], output
    )
    try:
        numbers: list[float] = json.loads(wanted.read_text())
    except (OSError, ValueError):
        said = output.read_text(errors="replace").strip().splitlines()[-_LAST:]
        return Failure(ranks, f"exit status {code}", said)
    return numbers


def _started(command: Sequence[str], output: Path) -> int:
    """Run a job, with its output in a file; the job is ended if the wait for it is interrupted."""
    with output.open("wb") as said:
        try:
            job = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
            )
        except OSError as error:
            said.write(f"{command[0]}: {error.strerror}\n".encode())
            return 127
        try:
            return job.wait()
        except BaseException:
            _ended(job)
            raise


def _ended(job: "subprocess.Popen[bytes]") -> None:
    """End a job and its ranks, which form its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(job.pid, number)
            job.wait(_PATIENCE)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
