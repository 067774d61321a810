"""Tiles of a product: the elements that are computed together, on whichever rank.

The tiles begin at multiples of their size in the global index space, and their size depends on the
shapes alone. So the bits of an element depend on its rows, its columns and its position in a tile,
and not on the cuts of the arrays.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from distarray.plan import Contraction, Tree

__all__ = ["SIZES", "Sizes", "Tiling", "tiling_of"]

Labels = tuple[int, ...]


class Sizes(NamedTuple):
    """Approximate sizes of tiles.

    Attributes
    ----------
    rows, columns : int
        The most rows and columns of a tile.
    depth : int
        The most summands that one BLAS call adds.
    """

    rows: int
    columns: int
    depth: int


#: Larger tiles are hardly faster, and if a cut divides a tile, both ranks compute the whole tile.
SIZES = Sizes(96, 128, 512)
#: Approximate number of elements that fit in a cache: the most in a factor's tile of few summands.
_MOST = 1 << 17


class Side(NamedTuple):
    """Labels of one of two factors, without broadcast labels of extent 1.

    Attributes
    ----------
    others : tuple of int
        Labels of the result that the other factor does not have, except `edge`.
    edge : tuple of int
        The longest such label, which is divided into tiles; empty for a vector.
    tile : int
        The extent of a tile.
    """

    others: Labels
    edge: Labels
    tile: int


class Tiling(NamedTuple):
    """Division of a product into tiles.

    Attributes
    ----------
    left, right : Side
        The factors: rows and columns of matrices.
    stack : tuple of int
        Labels that both factors and the result have.
    depth : int
        The longest summed label, which is divided into tiles and may be cut.
    inner : tuple of int
        The other summed labels, which are neither divided nor cut.
    tree : Tree
        The tree that adds up the sums of ranges of `depth`. BLAS adds the summands of each leaf.
    summands : int
        The most summands of a leaf.
    grains : tuple of int
        For each label, the number of which the boundaries of its cut are multiples; 0 if it must
        not be cut.
    """

    left: Side
    right: Side
    stack: Labels
    depth: int
    inner: Labels
    tree: Tree
    summands: int
    grains: tuple[int, ...]


@lru_cache(maxsize=1024)
def tiling_of(spec: Contraction, sizes: Sizes) -> Tiling | None:
    """Make the tiles of a contraction, or None if it is no product of two (stacks of) matrices."""
    kinds = _kinds(spec)
    if kinds is None:
        return None
    rows, columns, stack, summed = kinds
    depth = _longest(summed, spec)
    inner = tuple([label for label in summed if label != depth])
    several = _size(inner, spec)
    grain = _grain(spec.extents[depth], several, sizes.depth)
    grains = [0 if label in inner else 1 for label in range(len(spec.extents))]
    grains[depth] = grain
    # The columns of a vector's tile are stored in rows of memory: long rows are copied faster.
    width = 8 * sizes.columns if _size(rows, spec) == 1 else sizes.columns
    return Tiling(
        _side(rows, spec, sizes.rows, grain * several),
        _side(columns, spec, width, grain * several),
        tuple(stack),
        depth,
        inner,
        Tree(spec.extents[depth], 0, grain),
        max(1, grain * several),
        tuple(grains),
    )


def _kinds(spec: Contraction) -> list[list[int]] | None:
    """Return the row, column, stack and summed labels of a product of matrices."""
    if len(spec.terms) != 2:
        return None
    a, b = [[label for label in term if label >= 0] for term in spec.terms]
    stack = [label for label in spec.out if label in a and label in b]
    summed = [label for label in a if label in b and label not in spec.out]
    rows, columns = [[x for x in spec.out if x in term and x not in stack] for term in (a, b)]
    # A label that only one operand sums over is in none of the lists.
    used = 2 * len(stack) + 2 * len(summed) + len(rows) + len(columns)
    return [rows, columns, stack, summed] if summed and used == len(a) + len(b) else None


def _side(labels: Sequence[int], spec: Contraction, most: int, summands: int) -> Side:
    """Divide one factor's labels, with tiles of at most `most` indices.

    Tiles have more indices if there are few summands.
    """
    if not labels:
        return Side((), (), 1)
    edge = _longest(labels, spec)
    extent, room = spec.extents[edge], _MOST // max(1, summands)
    most = max(min(most, 8 * room + 8), min(extent // 32, room))
    tile = max(1, extent)
    if extent > most:  # a multiple of 8 fills the processor's registers
        tile = min(most, -(-_even(extent, most) // 8) * 8)
    return Side(tuple([label for label in labels if label != edge]), (edge,), tile)


def _size(labels: Sequence[int], spec: Contraction) -> int:
    return prod([spec.extents[label] for label in labels])


def _longest(labels: Sequence[int], spec: Contraction) -> int:
    return max(labels, key=lambda label: spec.extents[label])


def _grain(extent: int, inner: int, most: int) -> int:
    """Return the indices per leaf; BLAS adds `inner` summands for each index.

    A short sum has smaller leaves, so that ranks can share them.
    """
    most = most if extent * inner >= 4 * most else most // 2
    return _even(extent, max(1, most // max(1, inner)))


def _even(extent: int, most: int) -> int:
    """Return the size of about equal parts of an extent, at most `most`."""
    return max(1, -(-extent // max(1, -(-extent // most))))
