"""The manual's picture of cut and join, drawn from what a generator of NumPy's does.

Each cell is a word of the stream, each bar an element that NumPy has drawn, over the words that it
took. ``python docs/draw_random.py DIRECTORY`` writes it as SVG.
"""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

from distarray.engines.drawing.places import Walker, state_of

CELL, ROW, LEFT, HEAD = 16, 34, 130, 26
WORDS, GUESS, SEED, MEAN = 44, 17, 110, 1.5
WORD, INK, TRUE, FIRST, SECOND = "#dddddd", "#555555", "#999999", "#4477aa", "#ee6677"

Bar = tuple[int, int]


def elements(start: int, stop: int) -> list[Bar]:
    """The words of Poisson numbers drawn from one word of the stream up to another or past it."""
    bits = np.random.PCG64(SEED)
    walker, origin = Walker(np.random.default_rng(0)), bits.state
    rng = np.random.Generator(bits.advance(start))
    places = [start]
    while places[-1] < stop:
        rng.poisson(MEAN)
        places.append(walker.ahead(origin, state_of(rng), 0) // 2)
    return list(pairwise(places))


def joined() -> tuple[list[Bar], list[Bar], list[Bar], int]:
    """All elements, those that rank 0 draws, those of rank 1, and where the two are in step."""
    whole, other = elements(0, WORDS), elements(GUESS, WORDS)
    step = min({start for start, _ in whole} & {start for start, _ in other})
    return whole, [bar for bar in whole if bar[0] < step], other, step


def bars(row: int, title: str, found: list[Bar], colour: str, true_from: int) -> list[str]:
    """A line of elements; those that are none of the sequence are pale."""
    y = HEAD + row * ROW
    parts = [f'<text x="0" y="{y + 17}" font-size="12" fill="{INK}">{title}</text>']
    for start, stop in found:
        x, wide = LEFT + start * CELL, (min(stop, WORDS) - start) * CELL
        shade = colour if start >= true_from else colour + "44"
        parts.append(
            f'<rect x="{x + 1}" y="{y + 4}" width="{wide - 2}" height="18" rx="4" fill="{shade}"/>'
        )
    return parts


def mark(word: int, text: str, rows: int) -> list[str]:
    """A line down from the first row, with a word above it."""
    x = LEFT + word * CELL
    return [
        f'<line x1="{x}" y1="{HEAD - 6}" x2="{x}" y2="{HEAD + rows * ROW}" stroke="{INK}" '
        'stroke-dasharray="3 3"/>',
        f'<text x="{x}" y="{HEAD - 10}" font-size="12" fill="{INK}" '
        f'text-anchor="middle">{text}</text>',
    ]


def svg() -> str:
    """The picture."""
    whole, own, other, step = joined()
    parts = bars(0, "words", [(word, word + 1) for word in range(WORDS)], WORD, 0)
    parts += bars(1, "NumPy's elements", whole, TRUE, 0)
    parts += bars(2, "rank 0", own, FIRST, 0)
    parts += bars(3, "rank 1", other, SECOND, step)
    parts += mark(GUESS, "guess", 4) + mark(step, "in step", 4)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WORDS * CELL + 4}" '
        f'height="{HEAD + 4 * ROW + 4}" font-family="sans-serif">'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def write(directory: Path) -> None:
    """Write the picture."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "cut_and_join.svg").write_text(svg())


if __name__ == "__main__":
    write(Path(sys.argv[1]))
