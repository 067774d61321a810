"""Timeline in Chrome's trace format (JSON), which Perfetto and chrome://tracing open."""

import json
from bisect import bisect_right
from collections.abc import Iterator
from typing import Any

from distarray.comm.user_lines import place_of
from distarray.profiling.analysis import Report
from distarray.profiling.measured import Part
from distarray.profiling.recorder import ELSEWHERE
from distarray.profiling.spans import Span
from distarray.profiling.statements import text_of

__all__ = ["events"]


def events(report: Report) -> str:
    """Return the events of all ranks as JSON, one lane per rank; times start with the profile."""
    found: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "distarray"}}
    ]
    for part in report.parts:
        name = {"name": f"rank {part.rank}"}
        found.append({"ph": "M", "name": "thread_name", "pid": 0, "tid": part.rank, "args": name})
        order = {"sort_index": part.rank}
        found.append(
            {"ph": "M", "name": "thread_sort_index", "pid": 0, "tid": part.rank, "args": order}
        )
        found += [_event(span, part, report.begun) for span in _all_spans(part)]
    return json.dumps({"traceEvents": found, "displayTimeUnit": "ms"})


def _all_spans(part: Part) -> Iterator[Span]:
    """Yield the spans of lines, then the communication spans, split at the starts of lines."""
    yield from part.spans
    starts = [span[0] for span in part.spans]
    for start, stop, line, what, talking in part.talks:
        if not part.spans:
            yield start, stop, line, what, talking
            continue
        number = max(0, bisect_right(starts, start) - 1)
        while start < stop:
            end = starts[number + 1] if number + 1 < len(starts) else stop
            if min(end, stop) > start:
                yield start, min(end, stop), line, what, talking
            start, number = min(end, stop), number + 1


def _event(span: Span, part: Part, begun: float) -> dict[str, Any]:
    start, stop, line, what, _ = span
    line = ELSEWHERE if line is None else line
    where = place_of(*line) if line.number else "outside of the program's lines"
    name = what or text_of(line)[:80] or where
    return {
        "ph": "X",
        "name": name,
        "cat": "conversation" if what else "line",
        "ts": round(1e6 * (start + part.offset - begun), 3),
        "dur": round(1e6 * (stop - start), 3),
        "pid": 0,
        "tid": part.rank,
        "args": {"line": where},
    }
