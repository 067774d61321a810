"""trace, and diagonals that stay on their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, call, implements, to_layout, wrap
from distarray.array.one_rank import Alone
from distarray.engines.contracting.operands import read
from distarray.layout import Cut
from distarray.typing import ArrayLike, DTypeLike, Out

__all__ = ["merged", "trace"]


def merged(x: DistArray, first: int, second: int) -> DistArray:
    """The diagonal of two dimensions of equal extent, in the place of the first.

    Each rank keeps its elements of the diagonal, as a view of its block; nothing moves unless both
    dimensions are cut and one of them in reverse.
    """
    cuts = x.layout.cuts
    if cuts[first].mesh_dims and cuts[second].mesh_dims and min(_steps(cuts, first, second)) < 0:
        x = to_layout(x, x.layout.without_cut([second]))
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
    diagonal = block.diagonal(0, first, second)  # as its last dimension
    rest = [d for d in out if d != first]
    order = [len(rest) if d == first else rest.index(d) for d in out]
    return wrap(diagonal.transpose(order), layout, x.mesh)


def _steps(cuts: Sequence[Cut], *dims: int) -> list[int]:
    return [cuts[dim].step for dim in dims]


def _common(a: Cut, b: Cut) -> Cut:
    """The blocks in which the blocks of two cuts meet."""
    if not b.mesh_dims:
        return a
    if not a.mesh_dims:
        return b
    counts = []
    for i in range(a.parts):
        start, stop = a.interval(i)
        for j in range(b.parts):
            low, high = b.interval(j)
            counts.append(max(0, min(stop, high) - max(start, low)))
    return Cut.ragged(counts, (*a.mesh_dims, *b.mesh_dims), (*a.radix, *b.radix))


def _diagonal(x: DistArray, offset: int, axis1: int, axis2: int) -> DistArray:
    """The diagonal as the last dimension, as :func:`numpy.diagonal` has it."""
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
    """Whether the result has dimensions, which are cut as those of the array; or is an error."""
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
    if x.ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    first = normalize_axis_index(axis1, x.ndim, "axis1")
    second = normalize_axis_index(axis2, x.ndim, "axis2")
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
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
