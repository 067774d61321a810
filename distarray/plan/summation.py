"""Trees in which sums are added under ``config.reproducible``, and each rank's pieces of them.

A tree depends only on the number of summands, so that the bits of a sum do not depend on the ranks
that hold the summands. The nodes of a tree are ranges of indices. A rank's range consists of whole
nodes, whose sums the rank computes, and at both ends of partial leaves, whose summands the rank
passes on unchanged.

There are three trees. The first is the tree of NumPy's own pairwise sum along memory. The second
has chunks of rows, for sums over dimensions that come before others: NumPy adds one row after the
other there, which two ranks cannot do at the same time. The third has the chunks whose products
BLAS sums.
"""

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["CHUNK", "Piece", "Tree"]

#: Number of rows that are added one after the other.
CHUNK = 64
#: Largest number of values that NumPy's pairwise sum adds without dividing them, and the multiple
#: at which it divides.
_BLOCK, _LANES = 128, 8


class Piece(NamedTuple):
    """Range of summands: a node of the tree, or a part of one leaf.

    Attributes
    ----------
    start, stop : int
        The range.
    is_node : bool
        True if it is a node, whose sum is one value. In a part of a leaf, each summand is one
        value.
    """

    start: int
    stop: int
    is_node: bool

    @property
    def values(self) -> int:
        """Number of values that represent the piece in a message."""
        return 1 if self.is_node else self.stop - self.start


class Tree(NamedTuple):
    """Tree of a sum.

    Attributes
    ----------
    length : int
        The number of summands.
    width : int
        For NumPy's pairwise sum: the real numbers in a summand, 1 or 2. For chunks: 0.
    chunk : int
        The number of summands of a leaf, if the leaves are chunks.
    """

    length: int
    width: int
    chunk: int = CHUNK

    def is_leaf(self, start: int, stop: int) -> bool:
        """Return True if a node is not divided."""
        count = stop - start
        return count * self.width <= _BLOCK if self.width else count <= self.chunk

    def middle(self, start: int, stop: int) -> int:
        """Return the index at which a node that is no leaf is divided."""
        count = stop - start
        if self.width:
            half = count * self.width // 2
            return start + (half - half % _LANES) // self.width
        chunks = -(-count // self.chunk)
        return start + self.chunk * (1 << ((chunks - 1).bit_length() - 1))

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """Return the pieces of a range of summands, in order: about 2 log2(length) of them."""
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
