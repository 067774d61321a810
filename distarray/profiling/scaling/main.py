"""Command ``python -m distarray --scaling 1,2,4,8 script.py``: options, runs and report."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from distarray.lazy import RANK_VARIABLES
from distarray.profiling.advice import time_text
from distarray.profiling.scaling.machine import Machine, byte_count, parsed
from distarray.profiling.scaling.page import page
from distarray.profiling.scaling.report import table, values
from distarray.profiling.scaling.runs import Failure, Run, launch, launched_machine
from distarray.profiling.scaling.study import Study
from distarray.profiling.writing import fault, write

__all__ = ["Options", "main", "options"]

#: Variables that a launcher sets for its processes; Slurm sets SLURM_PROCID in batch scripts, too.
_STARTED = frozenset(RANK_VARIABLES) - {"SLURM_PROCID"}
_PAGE = "scaling.html"


@dataclass(frozen=True)
class Options:
    """Options of the command line.

    Attributes
    ----------
    counts : tuple of int
        Numbers of ranks.
    program : tuple of str
        Command line after ``python -m distarray``.
    machine : Machine or None
        Machine to extrapolate to; None for this machine.
    cores : int
        Number of ranks that have a core each.
    limit : float
        Maximum bytes of memory per rank.
    launcher : tuple of str
        Command before ``-n``.
    output : Path
        Path of the page; the figures are written beside it.
    """

    counts: tuple[int, ...]
    program: tuple[str, ...]
    machine: Machine | None
    cores: int
    limit: float
    launcher: tuple[str, ...]
    output: Path


def options(arguments: Sequence[str]) -> Options:
    """Read the command line from ``--scaling`` on.

    Parameters
    ----------
    arguments : sequence of str

    Raises
    ------
    ValueError
        If an option is missing or wrong; the message names the correct form.
    """
    found, rest = _split(arguments)
    if not rest:
        raise ValueError("no program after --scaling; try python -m distarray --help")
    if rest[0].partition("=")[0] in ("--profile", "-i"):
        raise ValueError(f"{rest[0]} is of one run: leave it out with --scaling")
    chosen = {**_DEFAULTS, **found}
    return Options(
        _counts(chosen["--scaling"]),
        tuple(rest),
        parsed(chosen["--machine"]) if chosen["--machine"] else None,
        _cores(chosen["--cores"]),
        byte_count(chosen["--memory"]) if chosen["--memory"] else _share(),
        tuple(shlex.split(chosen["--mpiexec"])) or _launcher(),
        _writable(chosen["--output"]),
    )


_DEFAULTS = {
    "--scaling": "",
    "--machine": "",
    "--cores": "",
    "--memory": "",
    "--mpiexec": "",
    "--output": _PAGE,
}


def _split(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Separate the options of the study from the arguments of each run."""
    found, rest = {}, list(arguments)
    while rest and rest[0].partition("=")[0] in _DEFAULTS:
        name, equals, value = rest.pop(0).partition("=")
        if not equals:
            value = rest.pop(0) if rest else ""
        if not value:
            raise ValueError(f"argument expected for {name}")
        found[name] = value
    return found, rest


def _writable(text: str) -> Path:
    """Return the path of the page, after checking that it and the figures can be written."""
    output = Path(os.path.abspath(text))
    if output.suffix == ".json":
        raise ValueError("--output is the page, such as scaling.html; the figures lie beside it")
    for path in (output, output.with_suffix(".json")):
        if fault(path):
            raise ValueError(f"the report cannot be written: {fault(path)}")
    return output


def _counts(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and int(part) for part in parts):
        raise ValueError(f"--scaling wants numbers of ranks, such as 1,2,4,8, not {text!r}")
    return tuple(sorted({int(part) for part in parts}))


def _cores(text: str) -> int:
    if not text:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else _all_cores()
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise ValueError(f"--cores wants how many ranks have a core each, not {text!r}")
    return int(text)


def _all_cores() -> int:
    return os.cpu_count() or 1


def _share() -> float:
    """Return this machine's memory per core, in bytes; 0 if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / _all_cores()
    except (OSError, ValueError):
        return 0.0


def _launcher() -> tuple[str, ...]:
    """Return the launcher: beside this interpreter, as MPI wheels install it, or on PATH."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise ValueError(
            "no mpiexec: install the extra `mpich` (pip install 'distarray-mpi[mpich]'), or name "
            "the command with --mpiexec, such as --mpiexec srun"
        )
    return (found,)


def main(arguments: Sequence[str]) -> int:
    """Run the program on all numbers of ranks, and report; returns the exit status.

    The status is 0 if all runs completed, 1 if some failed or were interrupted, and 2 if nothing
    could be started.

    Parameters
    ----------
    arguments : sequence of str
        The command line from ``--scaling`` on.
    """
    try:
        if any(name in os.environ for name in _STARTED):
            raise ValueError("--scaling starts mpiexec itself: call it without")
        chosen = options(arguments)
    except ValueError as error:
        _say(f"distarray: {error}\n")
        return 2
    with TemporaryDirectory(prefix="distarray-scaling-") as place:
        here = _measured_here(chosen, Path(place))
        found, told = _all_runs(chosen, Path(place))
    runs = [run for run in found if isinstance(run, Run)]
    failures = [run for run in found if isinstance(run, Failure)]
    if not runs:
        for failed in failures:
            _say(f"on {failed.ranks} ranks: {failed.why}\n{_indented(failed)}")
        _say("distarray: the program has not come to its end on any of these numbers of ranks\n")
        return 1
    machine = chosen.machine or here
    program = shlex.join(chosen.program)
    study = Study(program, runs, failures, machine, here, chosen.cores, chosen.limit)
    _tell(study, chosen.output)
    return 1 if failures or told else 0


def _indented(failed: Failure) -> str:
    return "".join([f"  {text}\n" for text in failed.said])


def _measured_here(chosen: Options, place: Path) -> Machine | None:
    """Measure this machine in a separate job; if that fails, print the reason and return None."""
    ranks = min(chosen.cores, chosen.counts[-1])
    _say("measuring latency and bandwidths ... ")
    numbers = launched_machine(chosen.launcher, max(2, ranks), place)
    if isinstance(numbers, Failure):
        _say(f"{numbers.why}\n{_indented(numbers)}")
        return None
    machine = Machine(*numbers)
    _say(f"{machine}\n")
    return machine


def _all_runs(chosen: Options, place: Path) -> tuple[list[Run | Failure], bool]:
    """Start the runs one after the other; return them, and True if they were interrupted."""
    found: list[Run | Failure] = []
    for count in chosen.counts:
        _say(f"{count} rank{'s' * (count > 1)} ... ")
        start = monotonic()
        try:
            run = launch(chosen.launcher, count, chosen.program, place)
        except KeyboardInterrupt:
            _say("interrupted\n")
            return found, True
        found.append(run)
        how = "" if isinstance(run, Run) else f", {run.why}"
        _say(f"{time_text(monotonic() - start)}{how}\n")
    return found, False


def _tell(study: Study, output: Path) -> None:
    """Print the table, and write the page and the figures."""
    sys.stdout.write(f"{table(study)}\n")
    sys.stdout.flush()
    figures = output.with_suffix(".json")
    for path, text in ((output, page(study)), (figures, json.dumps(values(study), indent=1))):
        problem = write(path, text)
        _say(f"distarray: {path} cannot be written: {problem}\n" if problem else f"{path}\n")


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
