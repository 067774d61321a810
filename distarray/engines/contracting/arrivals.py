"""Received operands kept as fragments and concatenated lazily."""

from typing import NamedTuple, Self

import numpy as np

from distarray.array import DistArray, movement
from distarray.layout import Interval, Layout
from distarray.typing import Array, Shape

__all__ = ["Arrived"]


class Arrived(NamedTuple):
    """This rank's block of an operand in the requested layout, as fragments.

    Attributes
    ----------
    pieces : list of (slices, array)
        The fragments. Elements that this rank already had are a view of its block.
    shape : tuple of int
        The shape of the whole block.
    dim : int
        The dimension along which ranges of the block are taken.
    dtype : dtype
    """

    pieces: list[movement.Piece]
    shape: Shape
    dim: int
    dtype: np.dtype[np.generic]

    @classmethod
    def of(cls, x: DistArray, want: Layout, dim: int) -> Self:
        """Redistribute an operand to a layout.

        Cost
        ----
        One exchange of the elements that are not yet on the rank that needs them.
        """
        pieces = movement.pieces(x.block, x.layout, want, x.mesh)
        return cls(pieces, want.local_shape(x.mesh.coords), dim, x.dtype)

    @property
    def longest(self) -> Interval:
        """The longest range that is stored in one fragment."""
        found = [(0, 0)]
        for slices, part in self.pieces:
            place = slices[self.dim]
            rest = part.shape[: self.dim] + part.shape[self.dim + 1 :]
            if rest == self.shape[: self.dim] + self.shape[self.dim + 1 :]:
                found.append((place.start, place.stop))
        return max(found, key=lambda place: place[1] - place[0])

    def stretch(self, start: int, stop: int) -> Array:
        """Return a range of the block: a view if one fragment has all of it, else a copy."""
        before = (slice(None),) * self.dim
        first, last = self.longest
        for slices, part in self.pieces:
            own = slices[self.dim]
            if first <= start and stop <= last and (own.start, own.stop) == (first, last):
                view: Array = part[(*before, slice(start - first, stop - first))]
                return view
        shape = (*self.shape[: self.dim], stop - start, *self.shape[self.dim + 1 :])
        target = np.empty(shape, self.dtype)
        for slices, part in self.pieces:
            own = slices[self.dim]
            low, high = max(start, own.start), min(stop, own.stop)
            if low < high:
                into = list(slices)
                into[self.dim] = slice(low - start, high - start)
                target[tuple(into)] = part[(*before, slice(low - own.start, high - own.start))]
        return target
