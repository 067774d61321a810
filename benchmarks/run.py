"""The driver: starts every library's job, has them measure by turns, and reports.

Jobs sleep while another one measures. Each case is set up in all of them, and then they take
turns (A B C, A B C, ...), so that what disturbs the machine disturbs all alike.
"""

import argparse
import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks import history, report
from benchmarks.cases import CASES, Case
from benchmarks.jobs import ROOT, Job, Refused, launched, said
from benchmarks.plain import scratch_made

__all__ = ["Measurement", "main"]

PEERS = {
    "heat": "heat",
    "dtensor": "torch.distributed.tensor",
    "jax": "jax",
    "dask": "dask.array",
    "mpi4py-fft": "mpi4py_fft",
}
#: A timing shorter than this (seconds) is made of several calls.
SHORTEST = 2e-3
#: What the timings of one turn may take together (seconds), save that there is one.
LONGEST = 0.5
TURNS, REPEAT = 4, 5


@dataclass
class Measurement:
    """What one library needed for one case; of the ranks, the slowest counts."""

    case: str
    library: str
    ranks: int
    statement: str
    seconds: list[float] = field(default_factory=list)
    messages: int | None = None
    bytes: int | None = None
    peak: int | None = None

    @property
    def median(self) -> float:
        """Median of the timings, seconds a call."""
        return median(self.seconds)

    @property
    def minimum(self) -> float:
        """Shortest of the timings, seconds a call."""
        return min(self.seconds)

    def line(self) -> dict[str, Any]:
        """The measurement as one line of the file."""
        return asdict(self) | {"median": self.median, "minimum": self.minimum}


def measured(case: Case, jobs: Sequence[Job], turns: int) -> list[Measurement]:
    """Measure one case in all jobs that have a statement for it, by turns."""
    entries = [(job, found) for job in jobs for found in _entries(case, job)]
    counts = {id(found): (0, 0) for _, found in entries}

    def count(job: Job, found: Measurement) -> None:
        counts[id(found)] = _counts(case, job, found)

    def time(job: Job, found: Measurement) -> None:
        times = job.ask("time", found.statement, *counts[id(found)])
        found.seconds += [max(together) for together in zip(*times)]

    for step in (_set_up, count, *[time] * turns, _note_messages):
        entries = [entry for entry in entries if _done(step, *entry)]
    return [found for _, found in entries]


def _done(step: Callable[[Job, Measurement], None], job: Job, found: Measurement) -> bool:
    """Carry a step out; False, said aloud, where the library cannot."""
    try:
        step(job, found)
    except Refused as refusal:
        last = str(refusal).strip().splitlines()[-1]
        print(f"{found.case}: {found.library} on {found.ranks}: {last}", file=sys.stderr)
        return False
    return True


def _entries(case: Case, job: Job) -> Iterator[Measurement]:
    for library, statement in case.statements.items():
        if library == job.library or (library == "local" and job.library == "distarray"):
            yield Measurement(case.name, library, job.ranks, statement)


def _set_up(job: Job, found: Measurement) -> None:
    """Set a case up, and run it for a first time."""
    job.ask("setup", found.case)
    job.ask("time", found.statement, 1, 2)


def _note_messages(job: Job, found: Measurement) -> None:
    """What our library sends, and the memory that it takes meanwhile."""
    if found.library == "distarray":
        sent = job.ask("messages", found.statement)
        found.messages = max(messages for messages, _ in sent)
        found.bytes = max(size for _, size in sent)
        found.peak = max(job.ask("peak", found.statement))


def _counts(case: Case, job: Job, found: Measurement) -> tuple[int, int]:
    """How many calls make one timing, and how many timings one turn."""
    quick = max(min(times) for times in job.ask("time", found.statement, 1, 3))
    calls = 1 if case.before else round(SHORTEST / max(quick, 1e-9))
    calls = max(1, min(calls, 2000))
    return calls, max(1, min(round(LONGEST / (calls * quick)), REPEAT))


def import_seconds(python: str, repeat: int = 7) -> list[float]:
    """Seconds that ``import distarray.numpy`` takes once NumPy and mpi4py are there."""
    code = (
        "import numpy, mpi4py, time; start = time.perf_counter(); import distarray.numpy; "
        "print(time.perf_counter() - start)"
    )
    with TemporaryDirectory() as compiled:  # as installed: not compiled at each import
        settings = {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        runs = [said(python, "-c", code, **settings) for _ in range(repeat + 1)]
    return [float(run) for run in runs[1:] if run]


def machine() -> dict[str, Any]:
    """What the numbers hold for."""
    import numpy

    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": said("git", "describe", "--always", "--dirty"),
        "machine": f"{platform.machine()} {platform.system()}",
        "processor": _processor(),
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "cores": said("nproc"),
    }


def _processor() -> str:
    """The name of the processor, where Linux tells it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def available(name: str, python: str) -> bool:
    """Whether a peer can be run by an interpreter."""
    if not Path(python).exists():
        return False
    loads = said(python, "-c", f"import {PEERS[name]}; print('it does')") == "it does"
    if not loads:
        print(f"without {name}: {python} cannot import it", file=sys.stderr)
    return loads


def positive(text: str) -> int:
    """A number of ranks or turns."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--ranks",
        type=lambda text: [positive(count) for count in text.split(",")],
        default=[1, 2],
        help="rank counts, such as 1,2 (default)",
    )
    parser.add_argument("--only", default="", help="cases whose name contains this text")
    parser.add_argument("--turns", type=positive, default=TURNS, help="how often each job measures")
    parser.add_argument(
        "--peers",
        default=str(ROOT / ".venv-peers/bin/python"),
        help="interpreter that has the other libraries; '' leaves them out",
    )
    parser.add_argument("--output", type=Path, default=ROOT / "build/benchmarks.jsonl")
    parser.add_argument("--history", type=Path, default=ROOT / "benchmarks/history.jsonl")
    chosen = parser.parse_args(argv)
    if not any(chosen.only in name for name in ("import", *[case.name for case in CASES])):
        parser.error(f"no case's name contains {chosen.only!r}; benchmarks/*_cases.py have them")
    return chosen


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all cases; print the table and what must be reached, and write a line for each."""
    chosen = options(argv)
    peers = [name for name in PEERS if chosen.peers and available(name, chosen.peers)]
    cases = [case for case in CASES if chosen.only in case.name or case.name == "copy"]
    found: list[Measurement] = []
    with ExitStack() as stack:
        stack.enter_context(scratch_made())
        jobs = [
            stack.enter_context(launched(name, 1, sys.executable)) for name in ("numpy", "numpy-2")
        ]
        for library in ("distarray", *peers):
            python = chosen.peers if library in peers else sys.executable
            jobs += [
                stack.enter_context(launched(library, count, python)) for count in chosen.ranks
            ]
        for case in cases:
            found += measured(case, jobs, chosen.turns)
            print(report.rows(case, found), flush=True)
    if not chosen.only or "import" in chosen.only:
        times = import_seconds(sys.executable)
        found.append(Measurement("import", "distarray", 1, "import distarray.numpy", times))
    print(report.targets(found))
    chosen.output.parent.mkdir(parents=True, exist_ok=True)
    about = machine()
    lines = [about, *[measurement.line() for measurement in found]]
    chosen.output.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = history.entry(about, found)
    print("\n".join(history.slower(run, history.append(chosen.history, run))))
