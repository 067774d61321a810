"""The figures of the manual's performance page, from what ``make bench`` wrote.

The measurements are copied beside the figures, so that each figure says what it is made of.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from html import escape
from math import floor, log10
from pathlib import Path
from statistics import quantiles
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
__all__ = ["bars", "figures", "main", "read"]

Line = dict[str, Any]
#: Value, low and high end of its spread, and the words at the bar.
Bar = tuple[float, float, float, str]
COLOURS = {"distarray": "#4477aa", "numpy": "#bbbbbb", "numpy-2": "#999999", "local": "#bbbbbb"}
_OTHERS = ("#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
_LEFT, _WIDE, _BAR, _GAP = 260, 420, 11, 8
#: Cases in one picture.
_CASES = 16


def read(path: Path) -> tuple[Line, list[Line]]:
    """The machine, and the measurements."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line]
    measured = [isinstance(line, dict) and "median" in line for line in lines[1:]]
    if len(lines) < 2 or "commit" not in lines[0] or not all(measured):
        raise ValueError(f"{path} is no file of make bench")
    return lines[0], lines[1:]


def _ratio(over: float, seconds: Sequence[float], words: str) -> Bar:
    """How many times as fast as `over`, and from which to which quartile."""
    if len(seconds) < 2:
        return over / seconds[0], over / seconds[0], over / seconds[0], words
    low, middle, high = quantiles(seconds, n=4, method="inclusive")
    return over / middle, over / high, over / low, words


def _is_swept(line: Line) -> bool:
    """Whether a measurement is one of the size sweep, which has a figure of its own."""
    return str(line["case"]).startswith("sizes: ")


def by_size(found: Sequence[Line]) -> Iterator[tuple[str, list[Bar]]]:
    """The size sweep: for each operation our speed in parts of NumPy's, a bar for each size."""
    swept = [f for f in found if _is_swept(f)]
    base = {f["case"]: f["median"] for f in swept if f["library"] == "numpy"}
    groups: dict[str, list[Bar]] = {}
    for f in swept:
        if f["library"] == "distarray" and f["case"] in base:
            operation, _, size = f["case"].removeprefix("sizes: ").rpartition(", ")
            group = groups.setdefault(f"{operation}, {_ranks(f)}", [])
            group.append(_ratio(base[f["case"]], f["seconds"], f"distarray, {size}"))
    yield from groups.items()


def beside_numpy(found: Sequence[Line]) -> Iterator[tuple[str, list[Bar]]]:
    """Each case that NumPy has, too: everybody's speed in parts of NumPy's."""
    base = {f["case"]: f["median"] for f in found if (f["library"], f["ranks"]) == ("numpy", 1)}
    found = [f for f in found if not _is_swept(f) and f["library"] not in ("numpy", "local")]
    for case, seconds in base.items():
        others = [f for f in found if f["case"] == case]
        if others:
            yield case, [_ratio(seconds, f["seconds"], _who(f)) for f in others]


def by_ranks(found: Sequence[Line]) -> Iterator[tuple[str, list[Bar]]]:
    """Strong scaling: our speed on several ranks, in parts of that on one."""
    ours = [f for f in found if f["library"] == "distarray" and not _is_swept(f)]
    base = {f["case"]: f["median"] for f in ours if f["ranks"] == 1}
    for case, seconds in base.items():
        more = [f for f in ours if f["case"] == case and f["ranks"] > 1]
        if more:
            yield case, [_ratio(seconds, f["seconds"], _who(f)) for f in more]


def beside_copies(found: Sequence[Line]) -> Iterator[tuple[str, list[Bar]]]:
    """What is measured beside a copy of the block: the speed in parts of that copy's."""
    base = {(f["case"], f["ranks"]): f["median"] for f in found if f["library"] == "local"}
    for (case, ranks), seconds in base.items():
        ours = [
            f for f in found if (f["case"], f["ranks"]) == (case, ranks) and f["library"] != "local"
        ]
        if ours:
            yield f"{case}, {ranks} ranks", [_ratio(seconds, f["seconds"], _who(f)) for f in ours]


def _who(line: Line) -> str:
    return f"{line['library']}, {_ranks(line)}"


def _ranks(line: Line) -> str:
    ranks = line["ranks"]
    return f"{ranks} rank{'s' * (ranks != 1)}"


def bars(groups: Sequence[tuple[str, list[Bar]]]) -> str:
    """Groups of bars over a logarithmic axis, with whiskers between the quartiles."""
    values = [end for _, group in groups for bar in group for end in bar[:3]] + [0.9, 1.1]
    low, high = log10(min(values)) - 0.05, log10(max(values)) + 0.05

    def at(value: float) -> float:
        return _LEFT + (log10(value) - low) / (high - low) * _WIDE

    parts, y = [], 24.0
    for case, group in groups:
        middle = y + len(group) * _BAR / 2 + 4
        parts.append(f'<text x="4" y="{middle:.0f}">{escape(case)}</text>')
        for bar in group:
            parts += _bar(bar, at, y)
            y += _BAR
        y += _GAP
    axis = [*_axis(low, high, at, y)]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDE + 170}" '
        f'height="{y + 6:.0f}" font-family="sans-serif" font-size="11" fill="#555555">'
    )
    return "\n".join([head, *axis, *parts, "</svg>\n"])


def _bar(bar: Bar, at: Any, y: float) -> Iterator[str]:
    value, low, high, words = bar
    library = words.partition(",")[0]
    colour = COLOURS.get(library, _OTHERS[sum(library.encode()) % len(_OTHERS)])
    first, last = sorted((at(1.0), at(value)))
    yield (
        f'<rect x="{first:.1f}" y="{y:.0f}" width="{max(last - first, 1):.1f}" height="{_BAR - 2}" '
        f'fill="{colour}"><title>{escape(words)}: {value:.2f} times</title></rect>'
    )
    yield f'<path d="M{at(low):.1f} {y + 4.5:.1f}H{at(high):.1f}" stroke="#222222"/>'
    yield f'<text x="{_LEFT + _WIDE + 6}" y="{y + 9:.0f}" font-size="9">{escape(words)}</text>'


def _axis(low: float, high: float, at: Any, bottom: float) -> Iterator[str]:
    for power in range(floor(low), floor(high) + 1):
        for digit in (1, 2, 5):
            value = digit * 10.0**power
            if low <= log10(value) <= high:
                shade = "#888888" if value == 1 else "#e4e4e4"
                yield f'<path d="M{at(value):.1f} 16V{bottom:.0f}" stroke="{shade}"/>'
                yield f'<text x="{at(value):.1f}" y="12" text-anchor="middle">{value:g}x</text>'


#: Each figure: the name of its file, what the page says of it, and its bars.
FIGURES = (
    ("numpy", "Speed in parts of NumPy's in one process; beyond 1x is faster", beside_numpy),
    ("scaling", "Speed on several ranks in parts of that on one: strong scaling", by_ranks),
    (
        "sizes",
        "Speed in parts of NumPy's by the size of the array: where a bar passes 1x, ranks pay",
        by_size,
    ),
    ("copies", "Speed in parts of that of copying the rank's own block", beside_copies),
)


def figures(about: Line, found: Sequence[Line]) -> dict[str, str]:
    """Texts by file name: the pictures, and the part of the page that shows them."""
    made = {}
    said = [
        f"Measured at commit ``{about['commit']}`` on {about['date']}: {about['processor']}, "
        f"{about['cores']} cores, {about['machine']}, Python {about['python']}, NumPy "
        f"{about['numpy']}. Bars are medians, lines go from the lower to the upper quartile; all "
        "figures are in :download:`benchmarks.jsonl </performance/benchmarks.jsonl>`.",
        "",
    ]
    for name, words, groups_of in FIGURES:
        groups = list(groups_of(found))
        for number, start in enumerate(range(0, len(groups), _CASES), 1):
            file = f"{name}_{number}.svg"
            made[file] = bars(groups[start : start + _CASES])
            said += [f".. figure:: /performance/{file}", "   :width: 100%", "", f"   {words}", ""]
    made["figures.inc"] = "\n".join(said)
    return made


def main(argv: Sequence[str] | None = None) -> None:
    """Write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--input", type=Path, default=ROOT / "build/benchmarks.jsonl")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/performance")
    chosen = parser.parse_args(argv)
    if not chosen.input.exists():
        parser.error(f"there is no {chosen.input}: run make bench on a quiet machine first")
    try:
        about, found = read(chosen.input)
    except (ValueError, TypeError) as error:
        parser.error(str(error))
    made = figures(about, found)
    chosen.output.mkdir(parents=True, exist_ok=True)
    for old in chosen.output.glob("*.svg"):
        old.unlink()
    for name, text in made.items():
        (chosen.output / name).write_text(text)
    (chosen.output / "benchmarks.jsonl").write_text(chosen.input.read_text())
    print(f"{len(made) - 1} figures in {chosen.output}; commit that directory")


if __name__ == "__main__":
    main()
