"""The trees by which sums are added up under ``config.reproducible``: who adds what to what.

A tree is a property of the number of summands alone, so that the bits of a sum do not depend on who
holds which of them. Its nodes are ranges of indices. A rank's range is made of whole nodes, whose
sums it computes, and at its two ends of parts of leaves, which it hands on as they are.

Three trees: that of NumPy's own pairwise sum along memory; one of chunks of rows for sums over
dimensions that come before others, where NumPy adds one row after the other, which no two ranks
can do at the same time; and one of the chunks whose products BLAS sums.
"""

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["CHUNK", "Piece", "Tree"]

#: Rows that are added one after the other.
CHUNK = 64
#: Numbers that NumPy's pairwise sum adds without dividing them again, and what it divides by.
_BLOCK, _LANES = 128, 8


class Piece(NamedTuple):
    """A range of summands: a node of the tree, or a part of one leaf.

    Attributes
    ----------
    start, stop : int
        The range.
    is_node : bool
        Whether it is a node, whose sum is one value. Of a part of a leaf each summand is one.
    """

    start: int
    stop: int
    is_node: bool

    @property
    def values(self) -> int:
        """How many values stand for it."""
        return 1 if self.is_node else self.stop - self.start


class Tree(NamedTuple):
    """The tree of a sum.

    Attributes
    ----------
    length : int
        The number of summands.
    width : int
        Of NumPy's pairwise sum: the real numbers in a summand, 1 or 2. Of chunks: 0.
    chunk : int
        The summands of a leaf, if these are chunks.
    """

    length: int
    width: int
    chunk: int = CHUNK

    def is_leaf(self, start: int, stop: int) -> bool:
        """Whether a node is not divided."""
        count = stop - start
        return count * self.width <= _BLOCK if self.width else count <= self.chunk

    def middle(self, start: int, stop: int) -> int:
        """Where a node that is no leaf is divided."""
        count = stop - start
        if self.width:
            half = count * self.width // 2
            return start + (half - half % _LANES) // self.width
        chunks = -(-count // self.chunk)
        return start + self.chunk * (1 << ((chunks - 1).bit_length() - 1))

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """The pieces that a range of summands consists of, in order: about 2 log2(length)."""
        return list(self._pieces(0, self.length, start, stop)) if start < stop else []

    def _pieces(self, low: int, high: int, start: int, stop: int) -> Iterator[Piece]:
        if stop <= low or high <= start:
            return
        if start <= low and high <= stop:
            yield Piece(low, high, True)
        elif self.is_leaf(low, high):
            yield Piece(max(low, start), min(high, stop), False)
        else:
            middle = self.middle(low, high)
            yield from self._pieces(low, middle, start, stop)
            yield from self._pieces(middle, high, start, stop)
