"""Pictures of layouts, meshes and placements as SVG in HTML: text only, nothing is loaded."""

from collections.abc import Iterable, Sequence
from html import escape
from itertools import product
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distarray.layout.layout import Box, Coords, Layout
    from distarray.layout.placement import Placement

__all__ = [
    "COLOURS",
    "EMPTY",
    "INK",
    "LINE",
    "colour_of",
    "described",
    "layout_svg",
    "mesh_svg",
    "placement_svg",
    "rank_label",
    "svg",
]

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377")
#: Colors of empty cells, of lines and of text. The text has the page's color: light on a dark page.
EMPTY, LINE, INK = "#eeeeee", "#ffffff", "currentColor"
#: Largest number of ranks for which blocks are drawn.
_MOST = 1024
#: Largest width of a picture (its height is at most 0.7 of that), and the minimum of both.
_LONG, _THIN = 220.0, 24.0
#: Approximate width of a digit.
_DIGIT = 7.0


def colour_of(rank: int) -> str:
    """Return the color of a rank."""
    return COLOURS[rank % len(COLOURS)]


def rank_label(coords: "Coords", mesh_shape: Sequence[int]) -> str:
    """Return a label such as ``rank 2 (1, 0)``; without coordinates on a 1-d mesh."""
    rank = _number(coords, mesh_shape)
    return f"rank {rank}" if len(coords) == 1 else f"rank {rank} {tuple(coords)}"


def svg(parts: Iterable[str], width: float, height: float) -> str:
    """Return an SVG picture of some elements."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'font-family="sans-serif" font-size="11">'
    )
    return "\n".join([head, *parts, "</svg>"])


def described(title: str, rows: Iterable[tuple[str, object]], picture: str) -> str:
    """Return HTML of a picture beside a table that describes it."""
    cells = "".join(
        [
            f'<tr><th style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(str(value))}</td></tr>'
            for name, value in rows
        ]
    )
    return (
        '<div style="display:flex;gap:1.5em;align-items:center;flex-wrap:wrap">'
        f"<table><caption><b>{escape(title)}</b></caption>{cells}</table>"
        f"<div>{picture}</div></div>"
    )


# -- layouts ---------------------------------------------------------------------------------------


def layout_svg(layout: "Layout", here: "Coords | None" = None) -> str:
    """Draw the blocks of a layout, labelled with the ranks that hold them.

    Of an array of more than two dimensions, two are drawn, preferably dimensions that are cut.

    Parameters
    ----------
    layout : Layout
    here : tuple of int, optional
        This rank's mesh coordinate; its block gets a frame.
    """
    dims = _drawn_dims(layout)
    extents = [layout.shape[d] for d in dims]
    rows, columns = (1, 1, *extents)[-2:]
    wide, high = _measures(rows, columns)
    frame = _Frame(len(dims), rows, columns, wide, high)
    parts = [_rectangle(0, 0, wide, high, EMPTY)]
    if prod(layout.mesh_shape) <= _MOST:
        for box, ranks in _blocks(layout, dims):
            parts += frame.block(box, ranks, whole=len(ranks) == prod(layout.mesh_shape))
    if here is not None and layout.holds(here):
        parts.append(frame.outline([layout.section(here)[d] for d in dims]))
    names = [f"{layout.shape[d]:,}" for d in dims]
    parts += frame.labels(names)
    return svg(parts, wide + 60, high + 20)


def _drawn_dims(layout: "Layout") -> list[int]:
    """Return the two dimensions to draw, or as many as there are."""
    cut = list(layout.sharded_dims)[:2]
    others = [d for d in reversed(range(layout.ndim)) if d not in cut]
    return sorted([*cut, *others[: 2 - len(cut)]])


def _blocks(layout: "Layout", dims: Sequence[int]) -> list[tuple["Box", list[int]]]:
    """Return the distinct blocks in the drawn dimensions, each with the ranks that hold it."""
    found: dict[Box, list[int]] = {}
    for rank, coords in enumerate(product(*map(range, layout.mesh_shape))):
        section = layout.section(coords)
        if layout.holds(coords) and all(start < stop for start, stop in section):
            found.setdefault(tuple([section[d] for d in dims]), []).append(rank)
    return list(found.items())


def _measures(rows: int, columns: int) -> tuple[float, float]:
    """Return width and height of a picture: the array's proportions, with a minimum for both."""
    longest = max(rows, columns, 1)
    wide = max(_THIN, _LONG * max(columns, 1) / longest)
    high = max(_THIN, _LONG * 0.7 * max(rows, 1) / longest)
    return wide, high


class _Frame:
    """Map from array indices to positions in a picture."""

    def __init__(self, ndim: int, rows: int, columns: int, wide: float, high: float) -> None:
        self._ndim, self._rows, self._columns = ndim, max(rows, 1), max(columns, 1)
        self._wide, self._high = wide, high

    def _place(self, box: "Sequence[tuple[int, int]]") -> tuple[float, float, float, float]:
        """Return left, top, width and height of a box."""
        (top, bottom), (left, right) = [(0, 1)] * (2 - self._ndim) + list(box)
        across, down = self._wide / self._columns, self._high / self._rows
        return left * across, top * down, (right - left) * across, (bottom - top) * down

    def block(self, box: "Box", ranks: Sequence[int], whole: bool) -> list[str]:
        """Draw a block in the color of its first rank, with its ranks' numbers if there is room."""
        left, top, wide, high = self._place(box)
        parts = [_rectangle(left, top, wide, high, colour_of(ranks[0]))]
        text = "all ranks" if whole and len(ranks) > 1 else ", ".join(map(str, ranks[:4]))
        text += ", ..." if len(ranks) > 4 and not whole else ""
        if _DIGIT * len(text) < wide and high > 11:
            parts.append(_text(left + wide / 2, top + high / 2 + 4, text, LINE, "middle"))
        return parts

    def outline(self, box: "Sequence[tuple[int, int]]") -> str:
        """Draw a frame around a box."""
        left, top, wide, high = self._place(box)
        return (
            f'<rect x="{left + 1:.1f}" y="{top + 1:.1f}" width="{max(wide - 2, 1):.1f}" '
            f'height="{max(high - 2, 1):.1f}" fill="none" stroke="{INK}" stroke-width="2"/>'
        )

    def labels(self, names: Sequence[str]) -> list[str]:
        """Draw the lengths of the dimensions beside and below the picture."""
        parts = []
        if names:
            parts.append(_text(self._wide / 2, self._high + 14, names[-1], INK, "middle"))
        if len(names) > 1:
            parts.append(_text(self._wide + 4, self._high / 2 + 4, names[0], INK, "start"))
        return parts


def _rectangle(x: float, y: float, wide: float, high: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{colour}" '
        f'stroke="{LINE}"/>'
    )


def _text(x: float, y: float, text: str, colour: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


# -- meshes and placements -------------------------------------------------------------------------


def mesh_svg(
    shape: Sequence[int], names: Sequence[str] | None = None, here: "Coords | None" = None
) -> str:
    """Draw the grid of ranks of a mesh, at most 16 by 16; this rank has a frame."""
    rows, columns = (prod(shape[:-1]), shape[-1]) if len(shape) > 1 else (1, prod(shape))
    cell, high = 34.0, 22.0
    shown_rows, shown_columns = min(rows, 16), min(columns, 16)
    parts = []
    for row, column in product(range(shown_rows), range(shown_columns)):
        rank = row * columns + column
        x, y = column * cell, 16 + row * high
        parts.append(_rectangle(x, y, cell, high, colour_of(rank)))
        parts.append(_text(x + cell / 2, y + 15, str(rank), LINE, "middle"))
    if here is not None:
        row, column = divmod(_number(here, shape), max(columns, 1))
        if row < shown_rows and column < shown_columns:
            parts.append(
                f'<rect x="{column * cell + 1:g}" y="{17 + row * high:g}" width="{cell - 2:g}" '
                f'height="{high - 2:g}" fill="none" stroke="{INK}" stroke-width="2"/>'
            )
    dims = [f"{name}=" for name in names] if names else [""] * len(shape)
    text = " x ".join([f"{name}{length}" for name, length in zip(dims, shape, strict=True)])
    if (rows, columns) != (shown_rows, shown_columns):
        text += ", the first ones"
    parts.append(_text(0, 11, text, INK, "start"))
    return svg(parts, max(shown_columns * cell, _DIGIT * len(text)), 20 + shown_rows * high)


def placement_svg(placement: "Placement") -> str:
    """Draw the block that each of four ranks has under a placement."""
    kind = type(placement).__name__
    side = getattr(placement, "dim", 0)
    parts = []
    for rank in range(4):
        left = rank * 62.0
        parts.append(_rectangle(left, 16, 48, 48, EMPTY))
        box: tuple[float, float, float, float] | None = (left, 16, 48, 48)
        if kind == "Shard":
            box = (left, 16 + 12 * rank, 48, 12) if side == 0 else (left + 12 * rank, 16, 12, 48)
        elif kind == "At":
            box = box if rank == getattr(placement, "coordinate", 0) else None
        if box is not None:
            parts.append(_rectangle(*box, colour_of(0 if kind == "Replicate" else rank)))
        if kind == "Partial" and rank:
            parts.append(_text(left - 7, 44, "+", INK, "middle"))
        parts.append(_text(left, 11, f"rank {rank}", INK, "start"))
    return svg(parts, 4 * 62.0, 68)


def _number(coords: "Coords", mesh_shape: Sequence[int]) -> int:
    rank = 0
    for coordinate, size in zip(coords, mesh_shape, strict=True):
        rank = rank * size + coordinate
    return rank
