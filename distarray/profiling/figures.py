"""All figures of a profile as plain values, for programs that read them."""

from typing import Any

from distarray.profiling.analysis import Report, Row

__all__ = ["figures"]

_COUNTS = (
    *("calls", "messages_out", "messages_in", "collectives", "out", "into"),
    *("collective_out", "gathers", "gathered", "temporary", "peak"),
)
_SECONDS = ("computing", "sending", "waiting")


def figures(report: Report) -> dict[str, Any]:
    """Return the figures of every line, as lists by rank, and of the whole program."""
    return {
        "ranks": report.size,
        "seconds": report.seconds,
        "counted": report.counted,
        "missing": report.missing,
        "ended": sorted({part.ended for part in report.parts if part.ended}),
        "peak": [part.peak for part in report.parts],
        "lines": [_line(row) for row in report.rows],
    }


def _line(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {"file": row.line.path, "line": row.line.number, "text": row.text}
    for name in _SECONDS:
        found[name] = [float(value) for value in getattr(row, name)]
    for name in _COUNTS:
        found[name] = [int(getattr(totals, name)) for totals in row.ranks]
    return found
