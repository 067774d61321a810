"""Partition of an array's index space into tiles, each with its own random numbers.

The grid of tiles depends on the shape alone, so that it is the same for every layout. A rank draws
the tiles that intersect its section, each tile from the beginning up to the last row that the rank
needs, and keeps the elements of its section. A rank draws elements of other ranks only in tiles
that a cut divides.

* A tile has about 16,384 elements, 0.1 ms of normals, which is long compared with the time to
  address the tile; a section smaller than a tile costs at most one tile. In arrays of 4M elements
  and more, tiles that are contiguous in the flattened array have twice as many elements.
* A tile takes at most an eighth of a dimension of more than 16 elements, so that most cuts along
  any dimension fall between tiles; along the last dimension a tile has at least 16 and at most 128
  elements, so that its rows are copied at memory bandwidth.
* A last dimension of 16 elements or fewer is not divided: its rows are contiguous in the block, and
  numbers are drawn directly into the block. If a program cuts such a dimension, each rank draws all
  of its rows.

For a (4096, 4096) array on 6 ranks, a rank draws 1.13 times as many elements as it keeps if rows
are cut, and 1.31 times if columns are cut; on 2, 4, 8 or 16 ranks it draws exactly its own
elements.
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
#: Up to this length the last dimension is not divided.
_NARROW = 16
#: The most elements of the last dimension in a tile, if the other dimensions fill the tile.
_WIDE = 128
#: A tile takes at most this fraction (the reciprocal) of a dimension.
_PARTS = 8
#: Arrays of this many elements have tiles of twice the size, if tiles are contiguous.
_LARGE = 1 << 22


class Tile(NamedTuple):
    """Part of one tile that a section needs.

    Attributes
    ----------
    number : int
        The number of the tile, in C order of the grid.
    start, extents : tuple of int
        The elements to draw, the tile up to the last row that the section needs: their first global
        indices, and their number in each dimension.
    wanted : tuple of slice
        The drawn elements that belong to the section.
    target : tuple of slice
        Their positions in the section's block.
    whole : bool
        True if all drawn elements belong to the section.
    """

    number: int
    start: tuple[int, ...]
    extents: tuple[int, ...]
    wanted: tuple[slice, ...]
    target: tuple[slice, ...]
    whole: bool


@lru_cache(maxsize=1024)
def tile_extents(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the extents of the tiles of an array."""
    found = [1] * len(shape)
    for limits in (_shares(shape), shape):
        for dim in reversed(range(len(shape))):
            others = prod(found) // found[dim]
            while found[dim] < limits[dim]:
                longer = min(2 * found[dim], limits[dim])
                if others * longer > TILE:
                    break
                found[dim] = longer
    if prod(shape) >= _LARGE and tuple(found[1:]) == shape[1:]:
        found[0] *= 2
    return tuple(found)


def _shares(shape: tuple[int, ...]) -> list[int]:
    """Return the extents at which a tile stops growing until the other dimensions have grown."""
    shares = [extent // _PARTS for extent in shape]
    if shape:
        extent = shape[-1]
        shares[-1] = extent if extent <= _NARROW else min(max(shares[-1], _NARROW), _WIDE)
    return shares


def tile_count(shape: tuple[int, ...]) -> int:
    """Return the number of tiles of an array."""
    return prod([-(-n // t) for n, t in zip(shape, tile_extents(shape), strict=True)])


def tiles(shape: tuple[int, ...], section: Box) -> Iterator[Tile]:
    """Yield the tiles that intersect a section of an array, in C order."""
    if any(start >= stop for start, stop in section):
        return
    if not shape:
        yield Tile(0, (), (), (), (), True)
        return
    extents = tile_extents(shape)
    # A tile is drawn in C order: the last rows of its slowest dimension need not be drawn.
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
    """Yield one dimension's part of each tile that intersects an interval."""
    for number in range(start // extent, -(-stop // extent)):
        low = number * extent
        high = min(low + extent, limit)
        first, last = max(low, start), min(high, stop)
        wanted, target = slice(first - low, last - low), slice(first - start, last - start)
        whole = first == low and last == high
        yield number * stride, low, high - low, wanted, target, whole
