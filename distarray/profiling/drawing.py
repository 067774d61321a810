"""Timeline and communication matrix of a profile, as SVG."""

from collections.abc import Iterator
from html import escape

from distarray.comm.ledger import size_text
from distarray.comm.user_lines import place_of
from distarray.layout.pictures import INK, svg
from distarray.profiling.advice import time_text
from distarray.profiling.analysis import Report, Row
from distarray.profiling.measured import Line, Part

__all__ = ["COMPUTING", "SENDING", "WAITING", "matrix", "timeline"]

COMPUTING, SENDING, WAITING = "#4477aa", "#ccbb44", "#ee6677"
#: Columns of the timeline, height of a rank's lane, and maximum number of lanes.
_COLUMNS, _LANE, _LANES = 1000, 18, 64
#: Maximum fields along a side of the matrix; with more ranks, neighboring ranks share a field.
_FIELDS = 64


# -- the timeline ----------------------------------------------------------------------------------


def timeline(report: Report) -> str:
    """Draw the activity of each rank over time: each column shows the line that took most of it."""
    parts = report.parts
    if len(parts) > _LANES:
        step = len(parts) / _LANES
        parts = [parts[int(n * step)] for n in range(_LANES)]
    begun, length = report.begun, max(report.seconds, 1e-9)
    found = []
    for number, part in enumerate(parts):
        top = number * (_LANE + 2)
        found.append(f'<text x="0" y="{top + 13}" fill="{INK}">{part.rank}</text>')
        for first, last, colour, words in _runs(part, report, begun, length):
            found.append(
                f'<rect x="{30 + first}" y="{top}" width="{last - first}" height="{_LANE}" '
                f'fill="{colour}"><title>{escape(words)}</title></rect>'
            )
    bottom = len(parts) * (_LANE + 2) + 14
    found.append(f'<text x="30" y="{bottom}" fill="{INK}">0</text>')
    end = time_text(length)
    found.append(
        f'<text x="{30 + _COLUMNS}" y="{bottom}" fill="{INK}" text-anchor="end">{end}</text>'
    )
    return svg(found, _COLUMNS + 32, bottom + 4)


def _runs(
    part: Part, report: Report, begun: float, length: float
) -> Iterator[tuple[int, int, str, str]]:
    """Yield runs of neighboring columns of one color and line: first, last + 1, color, text."""
    waits = {row.line: _share(row) for row in report.rows}
    columns = _columns(part, begun, length)
    first = 0
    while first < len(columns):
        entry, last = columns[first], first
        while last < len(columns) and columns[last] == entry:
            last += 1
        if entry is not None:
            line, talks = entry
            waiting = talks and waits.get(line, 0.0) > 0.5
            colour = (WAITING if waiting else SENDING) if talks else COMPUTING
            where = place_of(*line) if line.number else "outside of the program's lines"
            yield first, last, colour, f"rank {part.rank}: {where}"
        first = last


def _share(row: Row) -> float:
    """Return the share of a line's communication time that is spent waiting."""
    talking = sum([totals.talking for totals in row.ranks])
    return sum(row.waiting) / talking if talking else 0.0


def _columns(part: Part, begun: float, length: float) -> list[tuple[Line, bool] | None]:
    """Return for each column the line that took most of it, and True if it communicated there."""
    weights: list[dict[tuple[Line, bool], float]] = [{} for _ in range(_COLUMNS)]
    scale = _COLUMNS / length
    for start, stop, line, _, talking in part.spans:
        if line is None or stop <= start:
            continue
        share = min(1.0, talking / (stop - start))
        left, right = [(at + part.offset - begun) * scale for at in (start, stop)]
        for column in range(max(0, int(left)), min(_COLUMNS, int(right) + 1)):
            covered = min(right, column + 1) - max(left, column)
            if covered > 0:
                found = weights[column]
                for talks, part_of in ((False, 1 - share), (True, share)):
                    key = line, talks
                    found[key] = found.get(key, 0.0) + covered * part_of
    return [max(found, key=found.__getitem__) if found else None for found in weights]


# -- the matrix ------------------------------------------------------------------------------------


def matrix(report: Report) -> str:
    """Draw the bytes sent from each rank to each other rank, and in collectives (last column)."""
    size = report.size
    fields = min(size, _FIELDS)
    sums: dict[tuple[int, int], int] = {}
    collective: dict[int, int] = {}
    for part in report.parts:
        row = part.rank * fields // size
        collective[row] = collective.get(row, 0) + part.everyone[1]
        for peer, (_, nbytes) in part.to.items():
            key = row, peer * fields // size
            sums[key] = sums.get(key, 0) + nbytes
    cell = max(8, min(28, 640 // fields))
    most = max([*sums.values(), *collective.values(), 1])
    found = []
    each = max(1, fields // 16)
    for row in range(fields):
        first = -(-row * size // fields)
        if row % each == 0:
            y, x = 34 + row * cell + cell / 2 + 4, 44 + row * cell + cell / 2
            found.append(f'<text x="38" y="{y:g}" fill="{INK}" text-anchor="end">{first}</text>')
            found.append(f'<text x="{x:g}" y="28" fill="{INK}" text-anchor="middle">{first}</text>')
        for column in range(fields):
            words = f"rank {first} to rank {-(-column * size // fields)}"
            found.append(_field(row, column, cell, sums.get((row, column), 0), most, words))
        words = f"rank {first}, in collectives"
        found.append(_field(row, fields + 1, cell, collective.get(row, 0), most, words))
    x = 44 + (fields + 1) * cell
    found.append(f'<text x="{x}" y="28" fill="{INK}">in collectives</text>')
    found.append(f'<text x="44" y="12" fill="{INK}">receiver (rows: sender); darkest: ')
    found.append(f"{size_text(most)}</text>")
    return svg(found, max(x + 100, 380), 44 + fields * cell)


def _field(row: int, column: int, cell: int, nbytes: int, most: int, words: str) -> str:
    shade = 0.0 if not nbytes else 0.15 + 0.85 * nbytes / most
    return (
        f'<rect x="{44 + column * cell}" y="{34 + row * cell}" width="{cell - 1}" '
        f'height="{cell - 1}" fill="{COMPUTING}" fill-opacity="{shade:.2f}" stroke="#dddddd">'
        f"<title>{escape(words)}: {size_text(nbytes)}</title></rect>"
    )
