"""Diagonals of two dimensions: views in which every element stays on its rank."""

from typing import Any

import numpy as np

from distarray.array import DistArray, to_layout, wrap
from distarray.array.portable import make_read_only
from distarray.array.sharing import derived, link
from distarray.array.views import flipped, permuted
from distarray.layout import Cut
from distarray.typing import Array

__all__ = ["diagonal_of", "merged"]


def diagonal_of(x: DistArray, offset: int, first: int, second: int) -> DistArray:
    """Return the diagonal of two dimensions as the last dimension, as :func:`numpy.diagonal`.

    Parameters
    ----------
    x : DistArray
    offset : int
        Offset of the diagonal above the main diagonal.
    first, second : int
        The dimensions, counted from the front.

    Cost
    ----
    That of :func:`merged`.
    """
    entries: list[Any] = [(0, 1, extent) for extent in x.shape]
    below, right = max(0, -offset), max(0, offset)
    length = max(0, min(x.shape[first] - below, x.shape[second] - right))
    entries[first] = (below if length else 0, 1, length)
    entries[second] = (right if length else 0, 1, length)
    found = merged(x.sliced(tuple(entries)), first, second)
    kept = first - (second < first)
    return permuted(found, [*[d for d in range(found.ndim) if d != kept], kept])


def merged(x: DistArray, first: int, second: int) -> DistArray:
    """Replace two dimensions of equal extent by their diagonal, at the position of the first.

    Parameters
    ----------
    x : DistArray
    first, second : int
        The dimensions.

    Returns
    -------
    DistArray
        A view. It is read-only if both dimensions are cut and exactly one of them in reverse.

    Cost
    ----
    None: each rank keeps its elements of the diagonal. But if both dimensions are cut and exactly
    one of them in reverse, an exchange makes the second dimension whole on every rank.
    """
    cuts = x.layout.cuts
    steps = [cuts[dim].step for dim in (first, second) if cuts[dim].parts > 1]
    if len(steps) == 2 and min(steps) < 0:
        return _merged_in_reverse(x, first, second, max(steps) < 0)
    return derived(x, lambda y: _merged(y, first, second))


def _merged(x: DistArray, first: int, second: int) -> DistArray:
    cuts = x.layout.cuts
    section = x.layout.section(x.mesh.coords)
    start = max(section[first][0], section[second][0])
    stop = max(start, min(section[first][1], section[second][1]))
    key = [slice(None)] * x.ndim
    for dim in (first, second):
        key[dim] = slice(start - section[dim][0], stop - section[dim][0])
    labels = list(range(x.ndim))
    labels[second] = first
    out = [d for d in range(x.ndim) if d != second]
    made = x.layout.replace(first, _common(cuts[first], cuts[second]))
    layout = x.layout.with_cuts([made.cuts[d] for d in out])
    if x.mesh.coords is None:
        return wrap(x.mesh.xp.empty(layout.local_shape(None), x.dtype), layout, x.mesh)
    block = x.block[tuple(key)]
    if isinstance(block, np.ndarray):
        return wrap(np.einsum(block, labels, out), layout, x.mesh)  # unlike diagonal, writeable
    diagonal = block.diagonal(0, first, second)  # the diagonal is the last dimension
    rest = [d for d in out if d != first]
    order = [len(rest) if d == first else rest.index(d) for d in out]
    return wrap(diagonal.transpose(order), layout, x.mesh)


def _merged_in_reverse(x: DistArray, first: int, second: int, both: bool) -> DistArray:
    """Merge as :func:`merged` two cut dimensions of which one or both are cut in reverse."""
    if both:
        kept = first - (second < first)
        return flipped(merged(flipped(x, [first, second]), first, second), [kept])
    moved = _merged(to_layout(x, x.layout.without_cut([second])), first, second)
    transfer = _Gathered(moved.block.copy(), first, second)
    found = moved.like(transfer.block[...])
    make_read_only(found.block)
    link(x, found, transfer, lambda y: _merged(y, first, second))
    return found


class _Gathered:
    """One-way transfer from an array to a diagonal whose elements have moved between ranks."""

    overlaps = False

    def __init__(self, block: Array, first: int, second: int) -> None:
        self.block, self._dims = block, (first, second)

    def down(self, source: Any, target: Any) -> None:
        """Copy the diagonal of the source into the block."""
        first, second = self._dims
        moved = to_layout(source, source.layout.without_cut([second]))
        self.block[...] = _merged(moved, first, second).block

    def up(self, source: Any, target: Any) -> None:
        """Do nothing: the diagonal is read-only."""


def _common(a: Cut, b: Cut) -> Cut:
    """Return the cut whose blocks are the intersections of the blocks of two cuts."""
    if b.parts == 1:
        return a
    if a.parts == 1:
        return b
    counts = []
    for i in range(a.parts):
        start, stop = a.interval(i)
        for j in range(b.parts):
            low, high = b.interval(j)
            counts.append(max(0, min(stop, high) - max(start, low)))
    return Cut.ragged(counts, (*a.mesh_dims, *b.mesh_dims), (*a.radix, *b.radix))
