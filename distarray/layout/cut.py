"""Cut of one array dimension into contiguous blocks.

A :class:`Cut` computes which indices block ``part`` owns, and which blocks own the indices
``start`` to ``stop``. Both take time independent of the number of blocks (with explicit boundaries,
a binary search). The blocks can be

* the blocks of ``torch.chunk``, nested when several mesh dimensions cut the same dimension,
* blocks with explicit boundaries, for example of a boolean mask or a ragged ``from_local``,
* a strided view of either: index ``i`` of the view is index ``offset + i * step`` of the base. A
  slice moves no data, and its blocks are contiguous in the view's own indices.
"""

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, pairwise
from math import prod
from typing import NamedTuple

__all__ = ["Cut", "Interval"]

#: Half-open range of indices.
Interval = tuple[int, int]


class Cut(NamedTuple):
    """Division of one array dimension among the mesh dimensions that shard it.

    A tuple for speed: programs whose shapes keep changing create and compare many cuts.

    Parameters
    ----------
    extent : int
        Number of indices of the dimension.
    mesh_dims : tuple of int
        Mesh dimensions that cut the dimension, the coarsest first. Empty: every rank has it whole.
    radix : tuple of int
        Sizes of those mesh dimensions; block numbers are mixed-radix numbers with these digits.
    base : int
        Extent of the base, the dimension that is divided into the blocks. A view is at most as
        long.
    offset, step : int
        Index ``i`` of this cut is index ``offset + i * step`` of the base.
    bounds : tuple of int, optional
        Boundaries of the base's blocks, ``prod(radix) + 1`` of them. By default the blocks are
        those of ``torch.chunk``.

    Examples
    --------
    >>> from distarray.layout import Cut
    >>> cut = Cut.chunked(10, (0,), (4,))
    >>> [cut.interval(part) for part in range(cut.parts)], cut.owner(7)
    ([(0, 3), (3, 6), (6, 9), (9, 10)], 2)
    >>> odd = cut.view(1, 2, 5)  # of 1, 3, 5, 7 and 9
    >>> [odd.interval(part) for part in range(odd.parts)]
    [(0, 1), (1, 3), (3, 4), (4, 5)]
    """

    extent: int
    mesh_dims: tuple[int, ...] = ()
    radix: tuple[int, ...] = ()
    base: int = 0
    offset: int = 0
    step: int = 1
    bounds: tuple[int, ...] | None = None

    @classmethod
    def whole(cls, extent: int) -> "Cut":
        """Return the cut of a dimension that every rank holds whole."""
        return cls(extent, base=extent)

    @classmethod
    def chunked(cls, extent: int, mesh_dims: tuple[int, ...], radix: tuple[int, ...]) -> "Cut":
        """Return the canonical cut: the blocks of ``torch.chunk``, nested left to right."""
        return cls(extent, mesh_dims, radix, extent)

    @classmethod
    def ragged(
        cls, counts: Iterable[int], mesh_dims: tuple[int, ...], radix: tuple[int, ...]
    ) -> "Cut":
        """Return a cut into blocks of these lengths; the canonical cut if it has these lengths."""
        bounds = (0, *accumulate(counts))
        canonical = cls.chunked(bounds[-1], mesh_dims, radix)
        if all(
            canonical.interval(part) == bounds[part : part + 2] for part in range(len(bounds) - 1)
        ):
            return canonical
        return cls(bounds[-1], mesh_dims, radix, bounds[-1], bounds=bounds)

    @property
    def parts(self) -> int:
        """Number of blocks."""
        return prod(self.radix)

    @property
    def is_canonical(self) -> bool:
        """True if the blocks are those of ``torch.chunk`` for this extent."""
        return self.bounds is None and self.base == self.extent and self.step == 1

    def is_shift_of(self, other: "Cut") -> bool:
        """Return True if both are views of the same blocks that differ at most in their offset."""
        return (
            self.extent == other.extent
            and self.mesh_dims == other.mesh_dims
            and self.radix == other.radix
            and self.base == other.base
            and self.step == other.step
            and self.bounds == other.bounds
        )

    def part(self, coords: tuple[int, ...]) -> int:
        """Return the block number of a mesh coordinate."""
        number = 0
        for mesh_dim, size in zip(self.mesh_dims, self.radix, strict=True):
            number = number * size + coords[mesh_dim]
        return number

    def digits(self, part: int) -> tuple[int, ...]:
        """Return the coordinates along ``mesh_dims`` of a block number."""
        if len(self.radix) == 1:
            return (part,)
        digits = []
        for size in reversed(self.radix):
            part, digit = divmod(part, size)
            digits.append(digit)
        return tuple(reversed(digits))

    def interval(self, part: int) -> Interval:
        """Return the interval of indices that a block owns."""
        if not self.radix:
            return 0, self.extent
        low, high = self._base_interval(part)
        extent, offset, step = self.extent, self.offset, self.step
        if step > 0:
            start, stop = -((offset - low) // step), -((offset - high) // step)
        else:
            start, stop = (high - offset) // step + 1, (low - offset) // step + 1
        start = 0 if start < 0 else start if start < extent else extent
        return start, start if stop < start else stop if stop < extent else extent

    def owner(self, index: int) -> int:
        """Return the block that owns an index, which must be within the extent."""
        return self._base_owner(self.offset + index * self.step) if self.radix else 0

    def owners(self, start: int, stop: int) -> range:
        """Return the blocks that own an index in ``start:stop``, and empty blocks between them."""
        if start >= stop:
            return range(0)
        first, last = self.owner(start), self.owner(stop - 1)
        return range(min(first, last), max(first, last) + 1)

    def view(self, start: int, step: int, extent: int) -> "Cut":
        """Return the cut of a slice ``[start + i * step for i in range(extent)]``; no move."""
        if self.parts == 1 or extent == 0:
            return Cut(extent, self.mesh_dims, self.radix, extent)
        offset, stride = self.offset + start * self.step, self.step * step if extent > 1 else 1
        return Cut(extent, self.mesh_dims, self.radix, self.base, offset, stride, self.bounds)

    def rounded(self, grain: int) -> "Cut":
        """Return the cut with its boundaries at the nearest multiples of `grain`, or at the end.

        Examples
        --------
        >>> from distarray.layout import Cut
        >>> cut = Cut.chunked(10, (0,), (3,)).rounded(3)
        >>> [cut.interval(part) for part in range(cut.parts)]
        [(0, 3), (3, 9), (9, 10)]
        """
        order = range(self.parts)[:: -1 if self.step < 0 else 1]
        before = [self.interval(part)[0] for part in order[1:]]
        after = [min((start + grain // 2) // grain * grain, self.extent) for start in before]
        if after == before:
            return self
        bounds = (0, *after, self.extent)
        if self.step > 0:
            return Cut(self.extent, self.mesh_dims, self.radix, self.extent, bounds=bounds)
        bounds = tuple([self.extent - bound for bound in reversed(bounds)])
        last = self.extent - 1
        return Cut(self.extent, self.mesh_dims, self.radix, self.extent, last, -1, bounds)

    def in_units(self, unit: int, phase: int = 0) -> "Cut":
        """Return a cut of the same extent with equally many units per block, the last ones fewer.

        Parameters
        ----------
        unit : int
            Number of indices of a unit.
        phase : int
            Number of indices of the first unit that come before index 0.

        Examples
        --------
        >>> from distarray.layout import Cut
        >>> cut = Cut.chunked(12, (0,), (3,)).in_units(3)
        >>> [cut.interval(part) for part in range(3)]
        [(0, 6), (6, 12), (12, 12)]
        """
        extent, dims, radix, parts = self.extent, self.mesh_dims, self.radix, self.parts
        units = Cut.chunked(-(-(extent + phase) // unit), dims, radix)
        if units.base % parts and sum([size > 1 for size in radix]) > 1:
            ends = [units.interval(part)[1] * unit - phase for part in range(parts)]
            bounds = (0, *[min(end, extent) for end in ends])
            return Cut.ragged([b - a for a, b in pairwise(bounds)], dims, radix)
        block = -(-units.base // parts) * unit
        if not phase and block == -(-extent // parts):
            return Cut.chunked(extent, dims, radix)
        return Cut(extent, dims, radix, block * parts, phase)

    def _base_interval(self, part: int) -> Interval:
        if self.bounds is not None:
            return self.bounds[part], self.bounds[part + 1]
        start, length = 0, self.base
        if len(self.radix) == 1:
            block = -(-length // self.radix[0])
            start = min(part * block, length)
            return start, min(start + block, length)
        for size, digit in zip(self.radix, self.digits(part), strict=True):
            block = -(-length // size)
            begin = min(digit * block, length)
            start, length = start + begin, min(block, length - begin)
        return start, start + length

    def _base_owner(self, index: int) -> int:
        if self.bounds is not None:
            return bisect_right(self.bounds, index) - 1
        part, length = 0, self.base
        if len(self.radix) == 1:
            return index // -(-length // self.radix[0])
        for size in self.radix:
            block = -(-length // size)
            digit, index = divmod(index, block)
            part, length = part * size + digit, min(block, length - digit * block)
        return part
