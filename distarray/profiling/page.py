"""Profile as one self-contained HTML page of text, CSS and SVG."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from distarray.comm.ledger import size_text
from distarray.comm.user_lines import place_of, source
from distarray.layout import Layout
from distarray.layout.pictures import layout_svg
from distarray.plan import Route
from distarray.profiling.advice import advice, time_text
from distarray.profiling.analysis import Report, Row
from distarray.profiling.drawing import COMPUTING, SENDING, WAITING, matrix, timeline
from distarray.profiling.measured import Line, Moves, Seen
from distarray.profiling.table import headline

__all__ = ["page"]

#: Maximum number of ranks listed individually: the slowest in computing, and the first of the
#: others.
_RANKS = 16
#: Maximum lines of a file shown completely; of a longer file, the distance to measured lines.
_WHOLE, _NEAR = 400, 3
#: Maximum numbers of files and of arrays shown.
_FILES, _ARRAYS = 8, 24

_STYLE = f"""
body {{ font: 14px/1.45 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 76em;
  padding: 0 1em; }}
h1 {{ font-size: 1.5em; }} h2 {{ font-size: 1.15em; margin-top: 2em; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: 1px 8px; text-align: right; white-space: nowrap; }}
th {{ font-weight: 600; border-bottom: 1px solid #bbb; vertical-align: bottom; }}
td.code, th.code {{ text-align: left; font-family: ui-monospace, monospace; white-space: pre;
  overflow: hidden; text-overflow: ellipsis; max-width: 34em; }}
table.source td.code {{ max-width: 60em; }}
tr:nth-child(even) td {{ background: #f7f7f7; }}
.wide {{ overflow-x: auto; }}
.bar {{ display: inline-block; height: .8em; }}
.key span {{ display: inline-block; width: .9em; height: .9em; margin: 0 .3em 0 1em;
  vertical-align: -1px; }}
.compute {{ background: {COMPUTING}; }} .send {{ background: {SENDING}; }}
.wait {{ background: {WAITING}; }}
.arrays {{ display: flex; flex-wrap: wrap; gap: 2em; }}
h1, h2, li, figcaption {{ overflow-wrap: anywhere; }}
figure {{ margin: 0; max-width: 100%; overflow-x: auto; }} figcaption {{ margin-bottom: .4em; }}
li {{ margin: .5em 0; }} code {{ font-family: ui-monospace, monospace; }}
.quiet {{ color: #777; }}
"""
_KEY = (
    '<p class="key"><span class="compute"></span>computing<span class="send"></span>sending'
    '<span class="wait"></span>waiting for other ranks</p>'
)


def page(report: Report) -> str:
    """Return the whole page."""
    first, *others = headline(report)
    parts = [f"<h1>{escape(first)}</h1>", *[f"<p>{escape(text)}.</p>" for text in others]]
    parts += _told(report)
    parts += ["<h2>Lines</h2>", _KEY, *_lines(report)]
    parts += ["<h2>Time, by rank</h2>", _KEY, '<div class="wide">', timeline(report), "</div>"]
    if report.size > 1:
        parts += ["<h2>Who sends to whom</h2>", '<div class="wide">', matrix(report), "</div>"]
    parts += _gathers(report)
    parts += _arrays(report.parts[0].arrays)
    parts += _routes(report)
    parts += _sources(report)
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(first)}</title><style>{_STYLE}</style></head>\n<body>\n{body}\n"
        "</body></html>\n"
    )


def _told(report: Report) -> Iterator[str]:
    """Yield the advice on the most expensive lines."""
    told = advice(report)
    if not told:
        return
    yield "<h2>What to do</h2><ol>"
    for row, sentence in told:
        where = f"{escape(place_of(*row.line))} <code>{escape(row.text[:90])}</code>"
        yield f"<li>{where}<br>{escape(sentence)}</li>"
    yield "</ol>"


# -- lines -----------------------------------------------------------------------------------------


def _lines(report: Report) -> Iterator[str]:
    """Yield the table of all lines, then each rank's seconds at the longest lines."""
    heads = (
        *("compute", "send", "wait", "uneven", "calls", "messages out"),
        *("in", "sent", "received", "taken", "peak"),
    )
    yield '<div class="wide"><table><tr><th>seconds a rank</th><th></th><th class="code">line</th>'
    yield "".join([f"<th>{head}</th>" for head in heads]) + "</tr>"
    longest = max([row.seconds for row in report.rows], default=0.0)
    for row in report.rows:
        yield _line(row, longest)
    yield "</table></div>"
    if report.size > 1:
        yield from _by_rank(report)


def _line(row: Row, longest: float) -> str:
    count = len(row.ranks)
    shares = [sum(x) / count for x in (row.computing, row.sending, row.waiting)]
    cells = [
        *map(time_text, shares),
        f"{row.imbalance:.2f}",
        f"{row.calls:,}" if row.calls else "-",
        f"{row.total('messages_out'):,}",
        f"{row.total('messages_in'):,}",
        size_text(row.total("out")),
        size_text(row.total("into")),
        size_text(row.most("temporary")),
        size_text(row.most("peak")),
    ]
    first = _cells([time_text(row.seconds), _bar(shares, longest, 100)])
    return f"<tr>{first}{_code(row)}{_cells(cells)}</tr>"


def _code(row: Row) -> str:
    """Format a table cell for a line of the program: the file name; the tooltip has the path."""
    if not row.line.number:
        return f'<td class="code">{escape(row.text)}</td>'
    where, text = place_of(*row.line), escape(row.text)
    return (
        f'<td class="code" title="{escape(where)}  {text}">'
        f"{escape(where.rpartition('/')[2])}  {text}</td>"
    )


def _bar(shares: Iterable[float], longest: float, width: int) -> str:
    """Draw a bar of computing, sending and waiting, side by side."""
    pieces = [
        f'<span class="bar {kind}" style="width:{width * share / longest:.1f}px"></span>'
        for kind, share in zip(("compute", "send", "wait"), shares, strict=True)
        if longest and width * share / longest >= 0.5
    ]
    return f'<div style="text-align:left;width:{width}px">{"".join(pieces)}</div>'


def _cells(cells: Iterable[str]) -> str:
    return "".join([f"<td>{cell}</td>" for cell in cells])


def _by_rank(report: Report) -> Iterator[str]:
    """Yield a table of each rank's seconds: computing, sending, waiting."""
    places = _chosen(report)
    yield "<h2>Seconds of each rank</h2><p>Computing / sending / waiting.</p>"
    yield '<div class="wide"><table><tr>'
    yield "".join([f"<th>rank {report.parts[place].rank}</th>" for place in places])
    yield '<th class="code">line</th></tr>'
    for row in report.rows[:25]:
        compute, send, wait = row.computing, row.sending, row.waiting
        cells = [f"{compute[p]:.3f} / {send[p]:.3f} / {wait[p]:.3f}" for p in places]
        yield f"<tr>{_cells(cells)}{_code(row)}</tr>"
    yield "</table></div>"


def _chosen(report: Report) -> list[int]:
    """Return the indices of the ranks that are listed individually."""
    places = range(len(report.parts))
    if len(places) <= _RANKS:
        return list(places)
    busy = [sum([t.computing for t in part.lines.values()]) for part in report.parts]
    slow = sorted(places, key=lambda place: -busy[place])[: _RANKS // 2]
    first = [place for place in places if place not in slow][: _RANKS - len(slow)]
    return sorted([*slow, *first])


# -- gathers and arrays ----------------------------------------------------------------------------


def _gathers(report: Report) -> Iterator[str]:
    """Yield a table of the gathers: count, bytes, purpose and line."""
    found = [(row, note) for row in report.rows for note in row.gathers]
    if not found:
        return
    yield '<h2>Gathered</h2><div class="wide"><table><tr>'
    yield "<th>times</th><th>received by all ranks</th>"
    yield '<th class="code">what, and by whom</th><th class="code">line</th></tr>'
    for row, (text, often, nbytes) in found[:40]:
        where = place_of(*row.line) if row.line.number else "outside of the program's lines"
        yield (
            f"<tr><td>{often:,}</td><td>{size_text(nbytes)}</td>"
            f'<td class="code">{escape(text)}</td><td class="code">{escape(where)}</td></tr>'
        )
    yield "</table></div>"


def _arrays(arrays: list[Seen]) -> Iterator[str]:
    """Yield pictures of the program's arrays at the end; arrays of equal layout share one."""
    if not arrays:
        return
    alike: dict[Layout, list[Seen]] = {}
    for seen in arrays:
        alike.setdefault(seen.layout, []).append(seen)
    yield '<h2>Arrays at the end</h2><div class="arrays">'
    for layout, several in list(alike.items())[:_ARRAYS]:
        names = ", ".join([f"{seen.name} ({seen.dtype})" for seen in several[:6]])
        yield (
            f"<figure><figcaption><code>{escape(names)}</code><br>{_lies(layout)}, "
            f"{size_text(several[0].nbytes)}</figcaption>{layout_svg(layout)}</figure>"
        )
    yield "</div>"


def _lies(layout: Layout) -> str:
    """Format the shape and the placements of a layout."""
    shape = " x ".join([f"{extent:,}" for extent in layout.shape]) or "a number"
    return escape(f"{shape}, [{', '.join(map(repr, layout.placements))}]")


def _routes(report: Report) -> Iterator[str]:
    """Yield pictures of the moves between layouts, the most frequent first."""
    found: dict[Route, Moves] = {}
    for part in report.parts:
        for route, moves in list(part.routes.items()):
            known = found.setdefault(route, Moves(moves.line))
            known.count = max(known.count, moves.count)
    if not found:
        return
    yield '<h2>How arrays were moved</h2><div class="arrays">'
    for route, moves in sorted(found.items(), key=_others_first)[:_ARRAYS]:
        where = place_of(*moves.line) if moves.line.number else "outside of the program's lines"
        said = f"{moves.count:,} times, first at {escape(where)}<br>{_lies(route.src)}<br>"
        if route.src.placements == route.dst.placements:
            yield (
                f"<figure><figcaption>{said}between views whose blocks begin at other elements: "
                f"what lies at the borders</figcaption>{layout_svg(route.dst)}</figure>"
            )
        else:
            pictures = layout_svg(route.src) + layout_svg(route.dst)
            yield (
                f"<figure><figcaption>{said}to {_lies(route.dst)}</figcaption>{pictures}</figure>"
            )
    yield "</div>"


def _others_first(item: tuple[Route, Moves]) -> tuple[bool, int]:
    """Return a sort key: moves to other placements first, then by frequency."""
    route, moves = item
    return route.src.placements == route.dst.placements, -moves.count


# -- the source ------------------------------------------------------------------------------------


def _sources(report: Report) -> Iterator[str]:
    """Yield the program's files, with a bar beside each line that took time."""
    by_file: dict[str, dict[int, Row]] = {}
    for row in report.lines:
        by_file.setdefault(row.line.path, {})[row.line.number] = row
    longest = max([row.seconds for row in report.lines], default=0.0)
    for path, rows in list(by_file.items())[:_FILES]:
        lines = source(path)
        if lines:
            yield f"<h2>{escape(place_of(*Line(path, 1)).rpartition(':')[0])}</h2>"
            yield '<div class="wide"><table class="source">'
            yield from _source(lines, rows, longest)
            yield "</table></div>"


def _source(lines: Sequence[str], rows: dict[int, Row], longest: float) -> Iterator[str]:
    """Yield the lines of a file; of a long file only those near measured lines."""
    shown = list(range(1, len(lines) + 1))
    if len(lines) > _WHOLE:
        near = {n for at in rows for n in range(at - _NEAR, at + _NEAR + 1)}
        shown = [n for n in shown if n in near]
    before = 0
    for number in shown:
        if number > before + 1 and before:
            yield '<tr><td></td><td></td><td></td><td></td><td class="code quiet">...</td></tr>'
        before = number
        row = rows.get(number)
        bar = time = calls = ""
        if row is not None:
            count = len(row.ranks)
            shares = [sum(x) / count for x in (row.computing, row.sending, row.waiting)]
            bar, time = _bar(shares, longest, 160), time_text(row.seconds)
            calls = f"{row.calls:,}" if row.calls else ""
        text = escape(lines[number - 1])
        yield (
            f"<tr><td>{bar}</td><td>{time}</td><td>{calls}</td>"
            f'<td class="quiet">{number}</td><td class="code">{text}</td></tr>'
        )
