"""The pictures of the manual, drawn from Layout objects when it is built.

Each picture is a row of panels, one a rank, each showing the whole index space with what that
rank holds in colour. ``python docs/draw_layouts.py DIRECTORY`` writes them as SVG.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

from distarray.layout import Layout, Partial, Replicate, Shard, view_layout
from distarray.layout.pictures import COLOURS, EMPTY, INK, LINE
from distarray.layout.pictures import rank_label as label
from distarray.plan import plan_exchange, rank_of

CELL, GAP, HEAD = 16, 28, 22

#: Colour of each cell of the global index space as one rank has it; EMPTY where it has nothing.
Panel = Callable[[tuple[int, int]], str]


def coordinates(layout: Layout) -> Iterator[tuple[int, ...]]:
    """The coordinates of the mesh, in the order of the ranks."""
    return product(*[range(length) for length in layout.mesh_shape])


def inside(cell: tuple[int, int], layout: Layout, coords: tuple[int, ...]) -> bool:
    """Whether a rank holds a cell."""
    section = layout.section(coords)
    return all(start <= at < stop for at, (start, stop) in zip(cell[-layout.ndim :], section))


def held(layout: Layout, coords: tuple[int, ...]) -> Panel:
    """What a rank holds, in its own colour."""
    colour = COLOURS[rank_of(coords, layout.mesh_shape)]
    return lambda cell: colour if inside(cell, layout, coords) else EMPTY


def moved(src: Layout, dst: Layout, coords: tuple[int, ...]) -> Panel:
    """What a rank holds afterwards, in the colour of the rank that it had it from."""
    plan = plan_exchange(src, dst, coords)
    own = rank_of(coords, dst.mesh_shape)
    origins = [(t.peer, t.slices) for t in plan.receives]
    origins += [(own, plan.kept[1])] if plan.kept else []
    corner = [start for start, _ in dst.section(coords)]

    def colour(cell: tuple[int, int]) -> str:
        at = [index - start for index, start in zip(cell[-dst.ndim :], corner)]
        for peer, slices in origins:
            if all(part.start <= index < part.stop for part, index in zip(slices, at)):
                return COLOURS[peer]
        return EMPTY

    return colour


def seen(base: Layout, view: Layout, key: tuple[slice, slice], coords: tuple[int, ...]) -> Panel:
    """A view within its base: what it takes of a rank's block in full colour, the rest pale."""
    colour = COLOURS[rank_of(coords, base.mesh_shape)]
    taken = [range(*part.indices(extent)) for part, extent in zip(key, base.shape)]

    def shade(cell: tuple[int, int]) -> str:
        if not inside(cell, base, coords):
            return EMPTY
        if not all(index in indices for index, indices in zip(cell, taken)):
            return colour + "44"
        place = tuple([indices.index(index) for index, indices in zip(cell, taken)])
        assert inside(place, view, coords), "a view holds its elements where the base does"
        return colour

    return shade


def svg(panels: list[tuple[str, Panel]], shape: tuple[int, ...]) -> str:
    """A row of panels, each with a line of text above."""
    rows, columns = shape if len(shape) == 2 else (1, shape[0])
    wide = columns * CELL + GAP
    parts = []
    for number, (words, panel) in enumerate(panels):
        left = number * wide
        parts.append(f'<text x="{left}" y="{HEAD - 8}" font-size="12" fill="{INK}">{words}</text>')
        for cell in product(range(rows), range(columns)):
            x, y = left + cell[1] * CELL, HEAD + cell[0] * CELL
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="{panel(cell)}" '
                f'stroke="{LINE}"/>'
            )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{len(panels) * wide}" '
        f'height="{HEAD + rows * CELL + 4}" font-family="sans-serif">'
    )
    return "\n".join([head, *parts, "</svg>\n"])


def of_layout(layout: Layout) -> str:
    """The picture of a layout."""
    return svg(
        [(label(c, layout.mesh_shape), held(layout, c)) for c in coordinates(layout)], layout.shape
    )


def of_exchange(src: Layout, dst: Layout) -> str:
    """The picture of a redistribution: where each element of the new blocks comes from."""
    return svg(
        [(label(c, dst.mesh_shape), moved(src, dst, c)) for c in coordinates(dst)], dst.shape
    )


def of_view(base: Layout, key: tuple[slice, slice]) -> str:
    """The picture of a view in its base."""
    spans = [part.indices(extent) for part, extent in zip(key, base.shape)]
    entries = tuple([(start, step, len(range(start, stop, step))) for start, stop, step in spans])
    view = view_layout(base, entries)
    panels = [(label(c, base.mesh_shape), seen(base, view, key, c)) for c in coordinates(base)]
    return svg(panels, base.shape)


def pictures() -> Iterator[tuple[str, str]]:
    """Name and content of every picture."""
    shape, four, grid = (8, 8), (4,), (2, 2)
    rows = Layout.chunked(shape, four, [Shard(0)])
    columns = Layout.chunked(shape, four, [Shard(1)])
    yield "rows", of_layout(rows)
    yield "columns", of_layout(columns)
    yield "replicated", of_layout(Layout.chunked(shape, four, [Replicate()]))
    yield "blocks", of_layout(Layout.chunked(shape, grid, [Shard(0), Shard(1)]))
    yield "mixed", of_layout(Layout.chunked(shape, grid, [Replicate(), Shard(0)]))
    yield "nested", of_layout(Layout.chunked(shape, grid, [Shard(0), Shard(0)]))
    yield "uneven", of_layout(Layout.chunked((9, 6), four, [Shard(0)]))
    yield "partial", of_layout(Layout.chunked(shape, four, [Partial("sum")]))
    yield "rows_to_columns", of_exchange(rows, columns)
    yield "view", of_view(rows, (slice(1, -1), slice(1, -1)))
    yield "strided", of_view(rows, (slice(None, None, 3), slice(None)))


def write(directory: Path) -> None:
    """Write all pictures."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pictures():
        (directory / f"{name}.svg").write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
