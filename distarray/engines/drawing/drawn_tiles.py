"""The index space of an array cut into tiles, each with its own random numbers.

The grid depends on the shape alone, so that every layout sees the same tiles. A rank draws the
tiles that its section meets, each from the beginning up to the last row that it wants, and keeps
its part. What it draws in vain is therefore bounded: where a cut falls into a tile, that tile.

* A tile has about 16,384 elements, 0.1 ms of normals, against which addressing it counts little;
  a section that is smaller than a tile costs at most one tile. Of arrays of 4M elements and more,
  tiles that are one piece of the flattened array have twice as many.
* A dimension of more than 16 elements gives a tile at most one part in eight of its length, so
  that cuts along any dimension fall mostly between tiles; of the last dimension, at least 16 and
  at most 128 elements, whose rows are still copied at the speed of memory.
* Dimensions of 16 elements and less are not divided when they are the last: their rows lie in one
  piece in the block, and numbers are drawn straight into it. A program that cuts such a dimension
  draws on each rank all of its rows.

Of (4096, 4096) on 6 ranks, a rank draws 1.13 times its part if rows are cut, and 1.31 times if
columns are; on 2, 4, 8 or 16 ranks just its part.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from distarray.layout import Box

__all__ = ["TILE", "Tile", "tile_count", "tile_extents", "tiles"]

#: Elements of a tile.
TILE = 1 << 14
#: The last dimension is not divided up to this length.
_NARROW = 16
#: A tile's part of the last dimension, if that suffices to fill the tile.
_WIDE = 128
#: A cut of a dimension in so many parts falls between tiles.
_PARTS = 8
#: Arrays of so many elements have tiles of twice the size, if those are one piece of them.
_LARGE = 1 << 22


class Tile(NamedTuple):
    """What a section wants of one tile.

    Attributes
    ----------
    number : int
        Of the tile, in C order of the grid.
    start, extents : tuple of int
        The elements to be drawn: where they begin, in global indices, and how many there are in
        each dimension; the tile up to the last row that is wanted.
    wanted : tuple of slice
        Those of them that the section has.
    target : tuple of slice
        Where in the section's block they belong.
    whole : bool
        Whether all that is drawn is wanted.
    """

    number: int
    start: tuple[int, ...]
    extents: tuple[int, ...]
    wanted: tuple[slice, ...]
    target: tuple[slice, ...]
    whole: bool


@lru_cache(maxsize=1024)
def tile_extents(shape: tuple[int, ...], room: int = TILE) -> tuple[int, ...]:
    """Extents of the tiles of an array, at most `room` elements together."""
    found = [1] * len(shape)
    for limits in (_shares(shape), shape):
        for dim in reversed(range(len(shape))):
            others = prod(found) // found[dim]
            while found[dim] < limits[dim]:
                longer = min(2 * found[dim], limits[dim])
                if others * longer > room:
                    break
                found[dim] = longer
    if room == TILE and prod(shape) >= _LARGE and tuple(found[1:]) == shape[1:]:
        found[0] *= 2
    return tuple(found)


def _shares(shape: tuple[int, ...]) -> list[int]:
    """The parts of the dimensions that a tile gets in the first place."""
    shares = [extent // _PARTS for extent in shape]
    if shape:
        extent = shape[-1]
        shares[-1] = extent if extent <= _NARROW else min(max(shares[-1], _NARROW), _WIDE)
    return shares


def tile_count(shape: tuple[int, ...], room: int = TILE) -> int:
    """Number of tiles of an array."""
    return prod([-(-n // t) for n, t in zip(shape, tile_extents(shape, room), strict=True)])


def tiles(shape: tuple[int, ...], section: Box, room: int = TILE) -> Iterator[Tile]:
    """The tiles that a section of an array of a shape meets, in C order."""
    if any(start >= stop for start, stop in section):
        return
    if not shape:
        yield Tile(0, (), (), (), (), True)
        return
    extents = tile_extents(shape, room)
    # A stream can be left early: of its slowest dimension, the last rows need not be drawn.
    slowest = next((dim for dim, extent in enumerate(extents) if extent > 1), None)
    ranges = []
    stride = 1
    for dim in reversed(range(len(shape))):
        limit = section[dim][1] if dim == slowest else shape[dim]
        ranges.append(_along(*section[dim], extents[dim], limit, stride))
        stride *= -(-shape[dim] // extents[dim])
    if len(shape) == 1:
        for number, low, size, mine, there, complete in ranges[0]:
            yield Tile(number, (low,), (size,), (mine,), (there,), complete)
        return
    first, *others = reversed(ranges)
    inner = list(product(*others))  # the first dimension may be of any length
    for part in first:
        for parts in inner:
            numbers, starts, sizes, wanted, target, whole = zip(part, *parts, strict=True)
            yield Tile(sum(numbers), starts, sizes, wanted, target, all(whole))


def _along(
    start: int, stop: int, extent: int, limit: int, stride: int
) -> Iterator[tuple[int, int, int, slice, slice, bool]]:
    """One dimension's part of each tile that an interval meets."""
    for number in range(start // extent, -(-stop // extent)):
        low = number * extent
        high = min(low + extent, limit)
        first, last = max(low, start), min(high, stop)
        wanted, target = slice(first - low, last - low), slice(first - start, last - start)
        whole = first == low and last == high
        yield number * stride, low, high - low, wanted, target, whole
