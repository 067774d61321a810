"""trace, and diagonals that stay on their ranks."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from distarray.array import DistArray, call, implements, to_layout, wrap
from distarray.array.one_rank import Alone
from distarray.array.portable import make_read_only
from distarray.engines.contracting.operands import read
from distarray.layout import Cut
from distarray.ops.indexing.diagonals import diagonal_axes
from distarray.ops.shape import flipped
from distarray.typing import ArrayLike, DTypeLike, Out

__all__ = ["merged", "trace"]


def merged(x: DistArray, first: int, second: int) -> DistArray:
    """The diagonal of two dimensions of equal extent, in the place of the first.

    Each rank keeps its elements of the diagonal, as a view of its block; nothing moves unless both
    dimensions are cut and one of them in reverse. If elements have moved, the result is a read-only
    copy: what is written to it would not reach the array.
    """
    cuts = x.layout.cuts
    steps = [cuts[dim].step for dim in (first, second) if cuts[dim].parts > 1]
    if len(steps) == 2 and min(steps) < 0:
        return _merged_in_reverse(x, first, second, max(steps) < 0)
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
    diagonal = block.diagonal(0, first, second)  # which is the last dimension of the result
    rest = [d for d in out if d != first]
    order = [len(rest) if d == first else rest.index(d) for d in out]
    return wrap(diagonal.transpose(order), layout, x.mesh)


def _merged_in_reverse(x: DistArray, first: int, second: int, both: bool) -> DistArray:
    """As :func:`merged`, if one of the dimensions is cut in reverse, or both are."""
    if both:
        diagonal = merged(flipped(x, [first, second]), first, second)
        return flipped(diagonal, [first - (second < first)])
    copy = merged(to_layout(x, x.layout.without_cut([second])), first, second)
    make_read_only(copy.block)
    return copy


def _common(a: Cut, b: Cut) -> Cut:
    """The cut whose blocks are the intersections of the blocks of two cuts."""
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


def _diagonal(x: DistArray, offset: int, axis1: int, axis2: int) -> DistArray:
    """The diagonal as the last dimension, as in :func:`numpy.diagonal`."""
    entries: list[Any] = [(0, 1, extent) for extent in x.shape]
    below, right = max(0, -offset), max(0, offset)
    length = max(0, min(x.shape[axis1] - below, x.shape[axis2] - right))
    entries[axis1] = (below if length else 0, 1, length)
    entries[axis2] = (right if length else 0, 1, length)
    found = merged(x.sliced(tuple(entries)), axis1, axis2)
    kept = axis1 - (axis2 < axis1)
    order = [*[d for d in range(found.ndim) if d != kept], kept]
    return wrap(found.block.transpose(order), found.layout.transpose(order), x.mesh)


def _keeps_dimensions(a: DistArray, *_: Any, **__: Any) -> bool:
    """Whether the result keeps dimensions, cut as those of the array, or the call is an error."""
    return np.ndim(a) != 2 or a.dtype.kind not in "biufc"


@implements(np.trace, alone=Alone(unless=_keeps_dimensions))
def trace(
    a: ArrayLike,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: DTypeLike = None,
    out: Out = None,
) -> Any:
    """As :func:`numpy.trace`.

    Cost
    ----
    That of the sum of the diagonal: each rank sums its part, then one allreduce.
    """
    (x,), _ = read(a, out=out)
    offset, axis1, axis2 = map(index, (offset, axis1, axis2))
    first, second = diagonal_axes(x.ndim, axis1, axis2)
    return call(np.sum, _diagonal(x, offset, first, second), axis=-1, dtype=dtype, out=out)


@implements(np.linalg.trace)
def _linalg_trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike = None) -> Any:
    return trace(x, offset, -2, -1, dtype)


@implements(np.linalg.matrix_transpose, at=True, computes=False)
def _linalg_matrix_transpose(x: ArrayLike, /) -> Any:
    (a,), _ = read(x)
    if a.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {a.ndim}")
    order = [*range(a.ndim - 2), a.ndim - 1, a.ndim - 2]
    return a.transpose(order)
