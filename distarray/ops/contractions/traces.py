"""trace, and diagonals whose elements stay on their ranks."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from distarray.array import DistArray, call, implements
from distarray.array.one_rank import Alone
from distarray.engines.contracting.operands import read
from distarray.engines.diagonals import diagonal_of
from distarray.ops.indexing.diagonals import diagonal_axes
from distarray.typing import ArrayLike, DTypeLike, Out

__all__ = ["trace"]


def _keeps_dimensions(a: DistArray, *_: Any, **__: Any) -> bool:
    """Return True if the result is an array, cut as the operand is, or the call is an error."""
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
    """Sum the elements of a diagonal, as :func:`numpy.trace`.

    Cost
    ----
    The cost of summing the diagonal: each rank sums its elements, then one allreduce.
    """
    (x,), _ = read(a, out=out)
    offset, axis1, axis2 = map(index, (offset, axis1, axis2))
    first, second = diagonal_axes(x.ndim, axis1, axis2)
    return call(np.sum, diagonal_of(x, offset, first, second), axis=-1, dtype=dtype, out=out)


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
