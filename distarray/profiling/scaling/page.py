"""Scaling study as one self-contained HTML page of text, CSS and SVG."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from math import isnan, log10

from distarray.comm.ledger import size_text
from distarray.layout.pictures import COLOURS, INK, svg
from distarray.profiling.advice import time_text
from distarray.profiling.scaling.report import (
    FIGURES,
    efficiency,
    grown,
    named,
    notes,
    shown,
    verdicts,
)
from distarray.profiling.scaling.study import Study

__all__ = ["page"]

Curve = Sequence[tuple[float, float]]
Place = Callable[[float, float], tuple[float, float]]

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #222; margin: 2em auto; max-width: 76em;
  padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; margin-top: 2em; }
table { border-collapse: collapse; }
td, th { padding: 1px 10px; text-align: right; white-space: nowrap; }
th { font-weight: 600; border-bottom: 1px solid #bbb; }
td.code, th.code { text-align: left; font-family: ui-monospace, monospace; }
tr:nth-child(even) td { background: #f7f7f7; }
.wide { overflow-x: auto; } .told { background: #fbf6e6; } li { margin: .4em 0; }
.verdict { font-size: 1.1em; }
"""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 640.0, 320.0, 70.0, 40.0
#: Maximum number of program lines that get a curve.
_CURVES = 5


def page(study: Study) -> str:
    """Return the whole page."""
    title = escape(f"Scaling of {study.program}")
    body = [
        f"<h1>{title}</h1>",
        *[f'<p class="verdict">{escape(text)}</p>' for text in verdicts(study)],
        "<h2>What is measured, and what is not</h2><ul>",
        *[f"<li>{escape(note)}</li>" for note in notes(study)],
        "</ul>",
        *_pictures(study),
        "<h2>Measured</h2>",
        *_runs(study),
        *_lines(study),
        *_extrapolated(study),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _rows(heads: Sequence[str], rows: Iterable[Sequence[str]], told: bool = False) -> Iterator[str]:
    """Yield a table whose last column is text."""
    yield f'<div class="wide"><table{" class=told" if told else ""}><tr>'
    yield "".join([f"<th>{escape(head)}</th>" for head in heads[:-1]])
    yield f'<th class="code">{escape(heads[-1])}</th></tr>'
    for *cells, last in rows:
        line = "".join([f"<td>{escape(cell)}</td>" for cell in cells])
        yield f'<tr>{line}<td class="code">{escape(last)}</td></tr>'
    yield "</table></div>"


def _runs(study: Study) -> Iterator[str]:
    first = study.runs[0]
    heads = ("ranks", "seconds", "speed-up", "efficiency", "messages", "bytes sent", "peak", "")
    rows = []
    for run, share in zip(study.runs, efficiency(study), strict=True):
        found = list(run.lines.values())
        rows.append(
            [
                f"{run.ranks:,}",
                time_text(run.seconds),
                f"{first.seconds / run.seconds:.2f}",
                f"{100 * share:.0f} %",
                f"{sum([each.all_messages for each in found]):,}",
                size_text(sum([each.all_bytes for each in found])),
                size_text(run.peak),
                "more ranks than cores" if run.ranks in study.crowded else "",
            ]
        )
    yield from _rows(heads, rows)
    for failed in study.failures:
        yield f"<p>On {failed.ranks:,} ranks it failed: {escape(failed.why)}</p>"
        yield f"<pre>{escape(chr(10).join(failed.said))}</pre>" if failed.said else ""


def _lines(study: Study) -> Iterator[str]:
    counts = [f"{count:,}" for count in study.counts]
    for what, heading, text in FIGURES:
        lines = [line for line in shown(study) if any(study.values(line, what))]
        yield f"<h2>{heading.capitalize()} by line and number of ranks, measured</h2>"
        yield from _rows(
            [*counts, "grows as", "line"],
            [
                [
                    *map(text, study.values(line, what)),
                    grown(study.growth(line, what)),
                    named(line, study),
                ]
                for line in lines
            ],
        )


def _extrapolated(study: Study) -> Iterator[str]:
    if not study.predictions:
        return
    first = study.runs[0]
    yield f"<h2>Extrapolated, for a rank with {escape(str(study.machine))}</h2>"
    heads = ("ranks", "seconds", "±", "speed-up", "sending", "memory of a rank", "longest line")
    rows = [
        [
            f"{found.ranks:,}",
            time_text(found.seconds),
            "unknown" if isnan(found.error) else time_text(found.error),
            f"{first.seconds / max(found.seconds, 1e-12):.1f}",
            time_text(found.sending),
            size_text(int(found.memory)),
            named(found.worst, study),
        ]
        for found in study.predictions
    ]
    yield from _rows(heads, rows, told=True)


# -- pictures --------------------------------------------------------------------------------------


def _pictures(study: Study) -> Iterator[str]:
    """Yield a plot of seconds over ranks, measured and extrapolated, with the longest lines."""
    if len(study.runs) < 2:
        return
    first = study.runs[0]
    measured = [(float(run.ranks), run.seconds) for run in study.runs]
    ahead = [run.ranks for run in study.timed] if study.predictions else []
    ahead += [found.ranks for found in study.predictions if found.ranks not in ahead]
    told = [(float(count), study.predicted(count).seconds) for count in ahead]
    ends = [measured[0][0], (told or measured)[-1][0]]
    curves = {
        "perfect scaling": ([], [(end, first.seconds * first.ranks / end) for end in ends], "#bbb"),
        "the program": (measured, told, INK),
    }
    for number, line in enumerate(study.lines[:_CURVES]):
        dots = [(float(r.ranks), study.of(r, line).seconds) for r in study.runs]
        later = [(float(count), sum(study.line_seconds(line, count))) for count in ahead]
        curves[named(line, study)] = dots, later, COLOURS[number % len(COLOURS)]
    yield "<h2>Seconds over ranks: dots are measured, dashes are the laws</h2>"
    yield '<div class="wide">'
    yield _logarithmic({name: curve for name, curve in curves.items() if any(curve[:2])})
    yield "</div>"


def _logarithmic(curves: dict[str, tuple[Curve, Curve, str]]) -> str:
    """Draw curves on logarithmic axes, with their names below."""
    points = [(x, y) for dots, ahead, _ in curves.values() for x, y in [*dots, *ahead] if y > 0]
    least = max(min(y for _, y in points), max(y for _, y in points) * 1e-6)
    right, top = log10(max(x for x, _ in points)), log10(max(y for _, y in points))
    left, bottom = log10(min(x for x, _ in points)), log10(least)
    wide, high = max(right - left, 1e-9), max(top - bottom, 1e-9)

    def at(x: float, y: float) -> tuple[float, float]:
        return (
            _LEFT + (log10(x) - left) / wide * (_WIDTH - _LEFT - 30),
            10 + (top - log10(max(y, least))) / high * (_HEIGHT - _BOTTOM - 10),
        )

    parts = [*_axes(at, points, least)]
    for number, (name, (dots, ahead, colour)) in enumerate(curves.items()):
        parts += _curve([at(*p) for p in dots], [at(*p) for p in ahead], colour)
        y = _HEIGHT + 14 * (number + 1)
        parts.append(f'<rect x="{_LEFT}" y="{y - 8}" width="10" height="8" fill="{colour}"/>')
        parts.append(f'<text x="{_LEFT + 16}" y="{y}" fill="{INK}">{escape(name)}</text>')
    return svg(parts, _WIDTH, _HEIGHT + 14 * len(curves) + 10)


def _curve(dots: Curve, ahead: Curve, colour: str) -> Iterator[str]:
    if ahead:
        path = " ".join([f"{x:.1f},{y:.1f}" for x, y in ahead])
        yield (
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" '
            'stroke-dasharray="6 4"/>'
        )
    for x, y in dots:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'


def _axes(at: Place, points: Curve, least: float) -> Iterator[str]:
    """Yield the labels: numbers of ranks below, powers of ten of seconds at the left."""
    for x in sorted({x for x, _ in points}):
        place, _ = at(x, least)
        yield (
            f'<text x="{place:.1f}" y="{_HEIGHT - 18}" fill="{INK}" text-anchor="middle">'
            f"{x:g}</text>"
        )
    power = -9
    while 10.0**power <= max(y for _, y in points):
        if 10.0**power >= least:
            _, place = at(points[0][0], 10.0**power)
            yield f'<path d="M{_LEFT} {place:.1f}H{_WIDTH - 10}" stroke="#ddd"/>'
            yield (
                f'<text x="{_LEFT - 8}" y="{place + 4:.1f}" fill="{INK}" text-anchor="end">'
                f"{time_text(10.0**power)}</text>"
            )
        power += 1
