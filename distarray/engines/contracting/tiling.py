"""Tiles of a product: which elements of it are computed together, whoever computes them.

The tiles lie at multiples of their size in the global index space, and their size depends on the
shapes alone. So the bits of an element depend on its rows, its columns and its place in a tile, and
not on where the arrays are cut.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from distarray.plan import Contraction, Tree

__all__ = ["SIZES", "Sizes", "Tiling", "tiling_of"]

Labels = tuple[int, ...]


class Sizes(NamedTuple):
    """The size that tiles have about.

    Attributes
    ----------
    rows, columns : int
        The most rows and columns of a tile.
    depth : int
        The most summands that BLAS adds.
    """

    rows: int
    columns: int
    depth: int


#: Larger ones are hardly faster, and where a cut is in one, both ranks do it as a whole.
SIZES = Sizes(96, 128, 512)
#: About how many numbers fit in a cache: the most of a factor's tile of few summands.
_MOST = 1 << 17


class Side(NamedTuple):
    """One of two factors: its labels, those of extent 1 that are stretched left out.

    Attributes
    ----------
    others : tuple of int
        Labels of the result that the other factor does not carry, but for `edge`.
    edge : tuple of int
        The longest of them, which is divided into tiles; none of a vector.
    tile : int
        The extent of a tile.
    """

    others: Labels
    edge: Labels
    tile: int


class Tiling(NamedTuple):
    """How a product is divided.

    Attributes
    ----------
    left, right : Side
        The factors: rows and columns of matrices.
    stack : tuple of int
        Labels that both factors and the result carry.
    depth : int
        The longest summed label, which is divided and may be cut.
    inner : tuple of int
        The other summed labels, which are not.
    tree : Tree
        How the sums of stretches of `depth` are added up. Its leaves are what BLAS adds.
    summands : int
        How many that is at the most.
    grains : tuple of int
        For each label the numbers of which boundaries of its cut are multiples; 0: it is not cut.
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
    """The tiles of a contraction; None if it is not a product of two (stacks of) matrices."""
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
    # The columns of a vector's tile lie in rows of memory: long ones are copied faster.
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
    """The labels of rows, columns and stacks, and those summed over, of a product of matrices."""
    if len(spec.terms) != 2:
        return None
    a, b = [[label for label in term if label >= 0] for term in spec.terms]
    stack = [label for label in spec.out if label in a and label in b]
    summed = [label for label in a if label in b and label not in spec.out]
    rows, columns = [[x for x in spec.out if x in term and x not in stack] for term in (a, b)]
    # A label that one operand alone sums over is of no kind.
    used = 2 * len(stack) + 2 * len(summed) + len(rows) + len(columns)
    return [rows, columns, stack, summed] if summed and used == len(a) + len(b) else None


def _side(labels: Sequence[int], spec: Contraction, most: int, summands: int) -> Side:
    """One factor's labels, and tiles of at most so many indices; more of them for few summands."""
    if not labels:
        return Side((), (), 1)
    edge = _longest(labels, spec)
    extent, room = spec.extents[edge], _MOST // max(1, summands)
    most = max(min(most, 8 * room + 8), min(extent // 32, room))
    tile = max(1, extent)
    if extent > most:  # full registers of the processor: a multiple of 8
        tile = min(most, -(-_even(extent, most) // 8) * 8)
    return Side(tuple([label for label in labels if label != edge]), (edge,), tile)


def _size(labels: Sequence[int], spec: Contraction) -> int:
    return prod([spec.extents[label] for label in labels])


def _longest(labels: Sequence[int], spec: Contraction) -> int:
    return max(labels, key=lambda label: spec.extents[label])


def _grain(extent: int, inner: int, most: int) -> int:
    """The indices whose summands, `inner` for each, BLAS adds: fewer of few, for ranks to share."""
    most = most if extent * inner >= 4 * most else most // 2
    return _even(extent, max(1, most // max(1, inner)))


def _even(extent: int, most: int) -> int:
    """The size of parts of an extent that are about equal, none above `most`."""
    return max(1, -(-extent // max(1, -(-extent // most))))
