"""Scaling study as a table for the terminal, and as plain values."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from math import isnan
from typing import Any

from distarray.array.movement import FEW
from distarray.comm.ledger import size_text
from distarray.comm.user_lines import place_of
from distarray.profiling.advice import time_text
from distarray.profiling.measured import Line
from distarray.profiling.scaling.laws import Growth, Law
from distarray.profiling.scaling.study import SHORTEST, Prediction, Study

__all__ = [
    "FIGURES",
    "efficiency",
    "grown",
    "named",
    "notes",
    "shown",
    "table",
    "values",
    "verdicts",
]

#: Figures shown for each line: attribute, heading, and function that formats the value.
FIGURES: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("seconds", "seconds", time_text),
    ("all_messages", "messages", lambda n: f"{n:,}"),
    ("all_bytes", "bytes sent", size_text),
    ("temporary", "memory taken", size_text),
)
#: Maximum lines shown, and the minimum share of seconds or bytes in some run for a line to be
#: shown.
_ROWS, _LEAST = 20, 0.005
#: Numbers of ranks for which the terminal shows extrapolated figures.
_SHOWN = (64, 256, 1024, 4096, 16384)


def named(line: Line, study: Study) -> str:
    """Format a line as its place and its text."""
    if not line.number:
        return "(outside of the program's lines)"
    return f"{place_of(*line)}  {study.text(line)[:60]}"


def shown(study: Study) -> list[Line]:
    """Return the lines with a relevant share of the seconds or the bytes of some run."""
    found = []
    for line in study.lines:
        shares = [
            max(
                study.of(run, line).seconds / max(run.seconds, 1e-12),
                study.of(run, line).all_bytes / max(1, _sum(run.lines.values(), "all_bytes")),
            )
            for run in study.runs
        ]
        if max(shares) > _LEAST:
            found.append(line)
    return found[:_ROWS]


def _sum(found: Any, what: str) -> int:
    return sum([getattr(each, what) for each in found])


def efficiency(study: Study) -> list[float]:
    """Return the parallel efficiency of each run, relative to the first run."""
    first = study.runs[0]
    return [first.seconds * first.ranks / (run.seconds * run.ranks) for run in study.runs]


def grown(found: Growth | None) -> str:
    """Format an exponent; empty for None."""
    return "" if found is None else str(found)


# -- the table -------------------------------------------------------------------------------------


def table(study: Study) -> str:
    """Format all results, measured and extrapolated, for the terminal."""
    parts = [f"Scaling of {study.program}", "", "MEASURED", *_runs(study)]
    for what, heading, text in FIGURES:
        parts += ["", *_lines(study, what, heading, text)]
    parts += ["", *_extrapolated(study)]
    parts += ["", *[f"- {note}" for note in notes(study)]]
    return "\n".join([part.rstrip() for part in parts])


def _runs(study: Study) -> Iterator[str]:
    yield (
        f"{'ranks':>7} {'seconds':>10} {'speed-up':>9} {'efficiency':>10} {'messages':>10} "
        f"{'bytes sent':>11} {'peak, a rank':>12}"
    )
    first = study.runs[0]
    for run, share in zip(study.runs, efficiency(study), strict=True):
        found = run.lines.values()
        crowd = "  more ranks than cores" if run.ranks in study.crowded else ""
        yield (
            f"{run.ranks:7,} {time_text(run.seconds):>10} {first.seconds / run.seconds:9.2f} "
            f"{100 * share:9.0f}% {_sum(found, 'all_messages'):10,} "
            f"{size_text(_sum(found, 'all_bytes')):>11} {size_text(run.peak):>12}{crowd}"
        )
    for failed in study.failures:
        yield f"{failed.ranks:7,} failed: {failed.why}"
        yield from [f"          | {text}" for text in failed.said]


def _lines(study: Study, what: str, heading: str, text: Any) -> Iterator[str]:
    lines = [line for line in shown(study) if any(study.values(line, what))]
    if not lines:
        yield f"{heading}: none"
        return
    heads = "".join([f"{count:>11,}" for count in study.counts])
    yield f"{heading + ', on ranks':<24}{heads}  {'grows as':<16}  line"
    for line in lines:
        cells = "".join([f"{text(value):>11}" for value in study.values(line, what)])
        yield f"{'':24}{cells}  {grown(study.growth(line, what)):<16}  {named(line, study)}"


def _extrapolated(study: Study) -> Iterator[str]:
    if not study.predictions:
        return
    yield f"EXTRAPOLATED, for a rank with {study.machine}"
    yield (
        f"{'ranks':>7} {'seconds':>10} {'±':>9} {'speed-up':>9} {'efficiency':>10} {'sending':>10} "
        f"{'a rank':>11}  longest line"
    )
    first = study.runs[0]
    for found in study.predictions:
        if found.ranks in _SHOWN:
            gain = first.seconds / max(found.seconds, 1e-12)
            yield (
                f"{found.ranks:7,} {time_text(found.seconds):>10} {_error(found):>9} {gain:9.1f} "
                f"{100 * gain * first.ranks / found.ranks:9.2g}% {time_text(found.sending):>10} "
                f"{size_text(int(found.memory)):>11}  {named(found.worst, study)}"
            )
    yield from ["", *verdicts(study)]


def _error(found: Prediction) -> str:
    return "unknown" if isnan(found.error) else time_text(found.error)


def verdicts(study: Study) -> Iterator[str]:
    """Yield sentences on the line that ends the scaling, and on the memory limit."""
    if study.predictions and study.end is None:
        yield f"The program's lines scale to {study.predictions[-1].ranks:,} ranks, by these laws."
    elif study.end is not None:
        end = study.end
        reason = "what it sends" if end.sends else "what it computes on every rank alike"
        yield (
            f"Scaling ends at about {end.ranks:,} ranks: twice as many gain the program's lines "
            f"less than a tenth. It is {named(end.line, study)} that ends it, by {reason}."
        )
    if not study.limit or len(study.runs) < 2:
        return
    limit = size_text(int(study.limit))
    if study.full is None:
        yield f"Memory suffices on all of these numbers of ranks: a rank may have {limit}."
        return
    ranks, line = study.full
    found = "measured" if ranks in study.counts else "extrapolated"
    yield (
        f"Memory does not suffice on {ranks:,} ranks ({found}): a rank has "
        f"{size_text(int(study.memory(ranks)))}, and may have {limit}. "
        f"Most is taken by {named(line, study)}."
    )


def notes(study: Study) -> Iterator[str]:
    """Yield notes on the measured and the extrapolated figures, and their reliability."""
    yield (
        "Measured, on these numbers of ranks: seconds by the clock, bytes and messages exactly, "
        "memory as the system counts it."
    )
    if len(study.runs) < 2:
        yield "One number of ranks says nothing about growth: nothing is extrapolated."
        return
    timed = ", ".join([str(run.ranks) for run in study.timed])
    if study.too_short:
        yield (
            f"The program runs for less than {time_text(SHORTEST)}, most of which is its start: "
            "seconds are not extrapolated. Bytes and messages are exact all the same."
        )
    if study.crowded:
        crowded = ", ".join(map(str, study.crowded))
        yield (
            f"Seconds on {crowded} ranks are of more ranks than cores, of which there are "
            f"{study.cores}: they are shown, and the laws of seconds are from {timed} ranks."
        )
    if len(study.timed) < 3 or study.timed[-1].ranks > study.cores:
        yield (
            f"Seconds are fitted to {timed} ranks alone, which says little about many: take them "
            "for a first guess, and measure on more cores."
        )
    if study.predictions:
        yield from _extrapolation_notes(study)
    yield from _check_notes(study)


def _extrapolation_notes(study: Study) -> Iterator[str]:
    yield (
        "Extrapolated: computing of the slowest rank at each line as a + b/P (a + b·P where it "
        "clearly grows), messages of the busiest rank by their own laws, with latency for each "
        "and log2 P of them for a collective, bytes by the bandwidth. Waiting is in it only as far "
        "as a rank computes longer at the same line; the network is nobody else's. Imports and "
        "what else is outside of the program's lines count in the seconds, not in where scaling "
        "ends. ± is the fits' standard error, and nothing more."
    )
    if study.here is not None and study.machine != study.here:
        yield (
            f"This machine has {study.here}; seconds of computing are taken in parts of the "
            "memory's bandwidth."
        )
    yield f"Arrays that become whole on more than {FEW} ranks go by a collective; that is known."
    ratios = [study.predicted(run.ranks).seconds / run.seconds for run in study.timed]
    told = ", ".join([f"{ratio:.2f}" for ratio in ratios])
    if study.machine == study.here:
        yield f"The model's seconds in parts of those measured, on the ranks fitted: {told}."


def _check_notes(study: Study) -> Iterator[str]:
    if study.check is None:
        yield "Fewer than four numbers of ranks: bytes and messages are not checked against a run."
        return
    found = study.check
    yield (
        f"Checked: from fewer ranks, the laws foretell each line's messages on {found.ranks} "
        f"within {100 * found.messages:.1f} %, and its bytes within {100 * found.nbytes:.1f} %."
    )


# -- plain values ----------------------------------------------------------------------------------


def values(study: Study) -> dict[str, Any]:
    """Return the study as plain values, for JSON."""
    return {
        "program": study.program,
        "cores": study.cores,
        "machine": None if study.machine is None else asdict(study.machine),
        "here": None if study.here is None else asdict(study.here),
        "measured": [
            {"ranks": run.ranks, "seconds": run.seconds, "peak": run.peak, "efficiency": share}
            for run, share in zip(study.runs, efficiency(study), strict=True)
        ],
        "failed": [asdict(failed) for failed in study.failures],
        "lines": [_line_values(study, line) for line in study.lines],
        "extrapolated": [_finite(found._asdict()) for found in study.predictions],
        "end": None if study.end is None else study.end._asdict(),
        "memory": {"limit": study.limit, "full": study.full, "law": str(study.memory)},
        "check": None if study.check is None else study.check._asdict(),
        "notes": [*verdicts(study), *notes(study)],
    }


def _line_values(study: Study, line: Line) -> dict[str, Any]:
    found: dict[str, Any] = {"file": line.path, "line": line.number, "text": study.text(line)}
    for what, _, _ in FIGURES:
        rate = study.growth(line, what)
        found[what] = study.values(line, what)
        found[f"{what} grows"] = None if rate is None else _finite(rate._asdict())
    laws: dict[str, Law] = vars(study.laws(line))
    found["laws"] = {what: str(law) for what, law in laws.items()}
    return found


def _finite(found: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN by None, since JSON has no NaN."""
    return {
        key: None if isinstance(value, float) and isnan(value) else value
        for key, value in found.items()
    }
