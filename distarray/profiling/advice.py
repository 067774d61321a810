"""Advice on the most expensive lines: one sentence for each."""

import re
from collections.abc import Callable

from distarray.comm.ledger import size_text
from distarray.profiling.analysis import Report, Row
from distarray.profiling.meeting import CLOCKS

__all__ = ["WORST", "advice", "time_text"]

#: Maximum number of lines that get advice.
WORST = 10
#: Minimum share of the total seconds for a line to get advice.
_LEAST = 0.01
#: Minimum runs of a line, and maximum seconds per run, for it to count as a loop over elements.
_MANY, _SHORT = 500, 1e-4
#: Average message size in bytes up to which the number of messages determines the cost.
_SMALL = 4096
#: Minimum share of the late arrivals at a line for a rank to count as always late, and the minimum
#: number of late arrivals.
_OFTEN, _ENOUGH = 0.7, 8
#: Minimum shares of a line's seconds for its waiting or communication to count as much, and as
#: nearly all.
_MUCH, _MOST = 0.4, 0.7
#: Minimum seconds of computing for ranks to be compared: with counted lines, with sampled lines.
_SURE, _SURE_IF_SAMPLED = 0.005, 0.25

_ROUTE = re.compile(r"\[(.*)\] -> \[(.*)\] of (\(.*\))")


def time_text(seconds: float) -> str:
    """Format seconds: ``1.24 s``, ``3.1 ms``, ``18 us``."""
    if seconds >= 100:
        return f"{seconds:.0f} s"
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 1e-3:
        return f"{1e3 * seconds:.3g} ms"
    return f"{1e6 * seconds:.3g} us" if seconds else "0"


def advice(report: Report) -> list[tuple[Row, str]]:
    """Return the most expensive lines, each with a sentence on how to improve it."""
    rows = [row for row in report.lines if row.seconds >= _LEAST * report.seconds][:WORST]
    return [(row, _sentence(row, report)) for row in rows]


def _sentence(row: Row, report: Report) -> str:
    for rule in _RULES:
        found = rule(row, report)
        if found:
            return found
    share = sum(row.computing) / max(row.spent, 1e-12)
    if share > 1 - _MUCH:
        return (
            "Computes, and sends little: the work itself is the cost. Work on cut arrays is shared "
            "by more ranks, and what libraries do is the same on every rank."
        )
    return (
        f"Sends {size_text(row.total('out'))} in all, all ranks being there: fewer or smaller "
        "moves of data help, such as arrays that lie alike from the beginning."
    )


def _measures(row: Row, report: Report) -> str:
    """Advise on a profile nested in this one."""
    if not row.notes or {note for note, *_ in row.notes} != {CLOCKS}:
        return ""
    return (
        "Begins a profile within this one, for which the ranks compare their clocks: that is what "
        "measuring costs, and not the program."
    )


def _imports(row: Row, report: Report) -> str:
    if not row.text.startswith(("import ", "from ")) or row.total("messages_out"):
        return ""
    return (
        "Imports, on every rank and from the same files: keep the environment on a disk that is "
        "near or fast, and import only what is used."
    )


def _alone(row: Row, report: Report) -> str:
    """Advise on work that one rank does alone, as under ``if rank == 0``."""
    total = sum(row.computing)
    others = total - max(row.computing)
    if report.size == 1 or len(row.ranks) < report.size or not total or others > 0.1 * total:
        return ""
    if not _is_sure(row, report):
        return ""
    rank = report.parts[row.busiest].rank
    return (
        f"Only rank {rank} computes here, {time_text(max(row.computing))}, and the others wait for "
        "it sooner or later: let all ranks do it on their blocks, or leave it until the end."
    )


def _gathered(row: Row, report: Report) -> str:
    gathers = row.gathers
    if not gathers:
        return ""
    text, often, nbytes = gathers[0]
    said = f"Gathers a cut array {often} time{'s' * (often != 1)}"
    said += f", {size_text(nbytes)} received in all" if nbytes else ""
    whom = text.rpartition(" for ")[2] if " gathers " in text and " for " in text else ""
    said += f", for {whom}" if whom else ""
    return f"{said}: keep it cut, reduce it first, or gather it once and keep the result."


def _elements(row: Row, report: Report) -> str:
    """Advise on a loop over single elements."""
    each = row.seconds / row.calls if row.calls else 1.0
    if row.calls < _MANY or each > _SHORT:
        return ""
    return (
        f"Runs {row.calls:,} times for {time_text(each)} each, mostly for calling and not for "
        "computing: replace the loop by one operation on whole arrays."
    )


def _late(row: Row, report: Report) -> str:
    total = sum(row.late.values())
    waiting = sum(row.waiting)
    if total < _ENOUGH or waiting < _MUCH * row.spent:
        return ""
    rank, often = row.late.most_common(1)[0]
    if often < _OFTEN * total or report.size <= 2:
        return ""
    return (
        f"Rank {rank} comes last {100 * often / total:.0f} % of the time, and the others wait "
        f"{time_text(waiting / len(row.ranks))} each for it: it has more to do before, or its node "
        "is slower. Look for the line at which it computes longer."
    )


def _small(row: Row, report: Report) -> str:
    messages, talking = row.total("messages_out"), sum([t.talking for t in row.ranks])
    few = talking < _MUCH * row.spent
    if messages < _MANY or few or row.total("out") / messages > _SMALL:
        return ""
    return (
        f"Sends {messages:,} messages of {size_text(row.total('out') // messages)} on average: a "
        "message costs about as much as a hundred KiB. Send seldom, together, or not at all: "
        "several reductions in one (np.stack), small arrays replicated."
    )


def _to_and_fro(row: Row, report: Report) -> str:
    """Advise on redistributions that another line reverses."""
    moves = {m.groups() for note, *_ in row.notes if (m := _ROUTE.match(note))}
    for other in report.lines:
        for note, *_ in other.notes:
            found = _ROUTE.match(note)
            if found is None:
                continue
            src, dst, shape = found.groups()
            if src != dst and (dst, src, shape) in moves:
                where = "this line" if other is row else f"line {other.line.number}"
                return (
                    f"Moves an array of {shape} from [{dst}] to [{src}], and {where} moves it "
                    "back: do all that needs one layout before changing to the other."
                )
    return ""


def _only_waits(row: Row, report: Report) -> str:
    return _waits(row, report, _MOST)


def _waits(row: Row, report: Report, share: float = _MUCH) -> str:
    if sum(row.waiting) < share * row.spent:
        return ""
    whom = row.late.most_common(1)
    return (
        f"Waits for other ranks, {time_text(sum(row.waiting) / len(row.ranks))} each"
        + (f", mostly for rank {whom[0][0]}" if whom else "")
        + ": the work before it is not the same on all. Compare the ranks in the lines before."
    )


def _is_sure(row: Row, report: Report) -> bool:
    """Return True if a line computes long enough to compare the ranks."""
    return max(row.computing) >= (_SURE if report.counted else _SURE_IF_SAMPLED)


def _uneven(row: Row, report: Report) -> str:
    if row.imbalance < 1.5 or len(row.ranks) < 2 or not _is_sure(row, report):
        return ""
    rank = report.parts[row.busiest].rank
    return (
        f"Rank {rank} computes {row.imbalance:.1f} times as long as the average: its block is "
        "larger or harder. Cut the array along another dimension, or redistribute it."
    )


_RULES: tuple[Callable[[Row, Report], str], ...] = (
    _measures,
    _imports,
    _alone,
    _late,
    _only_waits,
    _gathered,
    _elements,
    _small,
    _to_and_fro,
    _waits,
    _uneven,
)
