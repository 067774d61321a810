"""Tiles of a block that fit in cache, and running totals of their sums."""

from collections.abc import Iterator

from distarray.typing import Array

__all__ = ["TILE", "PairwiseSum", "restricted", "spot", "tiles"]


#: Number of elements in a tile.
TILE = 1 << 16


def tiles(block: Array) -> Iterator[tuple[slice, ...]]:
    """Yield keys of tiles of about TILE elements, cut along the dimension of the largest stride.

    A small block is a single tile.
    """
    whole = (slice(None),) * block.ndim
    if block.size <= TILE:
        yield whole
        return
    dim = max(range(block.ndim), key=lambda d: abs(block.strides[d]))
    rows = max(1, TILE * block.shape[dim] // block.size)
    for start in range(0, block.shape[dim], rows):
        yield (*whole[:dim], slice(start, start + rows), *whole[dim + 1 :])


def restricted(key: tuple[slice, ...], array: Array) -> Array:
    """Return the elements of an array for a tile; the array broadcasts onto the block."""
    lead = len(key) - array.ndim
    parts = zip(key[lead:], array.shape, strict=True)
    return array[tuple([slice(None) if extent == 1 else part for part, extent in parts])]


def spot(key: tuple[slice, ...], axes: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the key of a tile's reduction over axes in the result, which keeps the axes."""
    return tuple([slice(None) if dim in axes else part for dim, part in enumerate(key)])


class PairwiseSum:
    """Running total that adds sums of equally many parts, so that rounding errors grow slowly."""

    __slots__ = ("_count", "_levels")

    def __init__(self) -> None:
        self._count = 0
        self._levels: list[Array] = []

    @property
    def is_empty(self) -> bool:
        """True if no part has been added yet."""
        return not self._count

    def add(self, part: Array) -> None:
        """Add a part."""
        self._count += 1
        count = self._count
        while not count % 2:
            part = self._levels.pop() + part
            count //= 2
        self._levels.append(part)

    def total(self) -> Array:
        """Return the sum of the parts."""
        total = self._levels[-1]
        for part in reversed(self._levels[:-1]):
            total = part + total
        return total
