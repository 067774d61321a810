"""norm, vector_norm and matrix_norm: of each rank's block, then folded across the ranks."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distarray.array import DistArray, call, implements, wrap
from distarray.array.one_rank import Alone
from distarray.config import config
from distarray.engines.factoring import small
from distarray.ops.linalg.svd import svdvals
from distarray.ops.ufuncs import call_ufunc
from distarray.typing import ArrayLike, Axes

__all__ = ["matrix_norm", "norm", "vector_norm"]

#: The order of a norm, a number or a name.
NormOrder: TypeAlias = float | str | None


def _has_dimensions(
    x: ArrayLike, ord: NormOrder = None, axis: Axes = None, keepdims: bool = False
) -> bool:
    """Return True if the norm is cut as the array is, or needs a matrix's singular values."""
    return axis is not None or keepdims or ord in (2, -2, "nuc")


@implements(np.linalg.norm, alone=Alone(unless=_has_dimensions))
def norm(x: ArrayLike, ord: NormOrder = None, axis: Axes = None, keepdims: bool = False) -> Any:
    """Compute every kind of norm, of vectors and of matrices, as :func:`numpy.linalg.norm`.

    Parameters
    ----------
    x : array_like
        Any placement.
    ord, axis, keepdims
        As in NumPy.

    Returns
    -------
    DistArray
        The remaining dimensions are cut as in `x`; a 0-d result is a scalar on every rank.

    Raises
    ------
    ValueError, TypeError, AxisError
        NumPy's own exceptions, on all ranks.

    Cost
    ----
    Nothing if no reduced dimension is cut, else one allreduce of the result. Norms of matrices that
    need singular values (2, -2, "nuc"): the cost of :func:`numpy.linalg.svdvals`.
    """
    (a,) = small.read(x)
    if _is_at_hand(a):
        return small.at_once(partial(np.linalg.norm, ord=ord, axis=axis, keepdims=keepdims), a)
    if not issubclass(a.dtype.type, (np.inexact, np.object_)):
        a = a.astype(float)
    if axis is None and _is_plain_sum(a, ord):
        total = _squares(a)
        return call(np.reshape, total, (1,) * a.ndim) if keepdims else total
    axes = _axes(axis, a.ndim)
    if len(axes) == 1:
        return _of_vectors(a, ord, axes, keepdims)
    if len(axes) == 2:
        return _of_matrices(a, ord, axes, keepdims)
    raise ValueError("Improper number of dimensions to norm.")


def _is_at_hand(a: DistArray) -> bool:
    """Return True if NumPy's call suffices; not if bits must agree: it adds in another order."""
    known = a.layout.is_replicated and isinstance(a.block, (np.ndarray, np.generic))
    return known and not config.reproducible


def _is_plain_sum(a: DistArray, ord: NormOrder) -> bool:
    """Return True if the norm is the root of the sum of all squares."""
    if ord is None:
        return True
    return (a.ndim == 2 and ord in ("f", "fro")) or (a.ndim == 1 and ord == 2)


def _squares(a: DistArray) -> Any:
    if a.dtype.kind == "c":
        parts = [call(np.vdot, part, part) for part in (call(np.real, a), call(np.imag, a))]
        total = call_ufunc(np.add, *parts)
    else:
        total = call(np.vdot, a, a)
    return call_ufunc(np.sqrt, total)


def _axes(axis: Axes, ndim: int) -> tuple[Any, ...]:
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, tuple):
        return axis
    try:
        return (int(axis),)  # type: ignore[arg-type]
    except Exception as error:
        raise TypeError("'axis' must be None, an integer or a tuple of integers") from error


def _of_vectors(a: DistArray, ord: NormOrder, axes: tuple[Any, ...], keepdims: bool) -> Any:
    how = {"axis": axes, "keepdims": keepdims}
    if ord == inf:
        return call(np.max, call_ufunc(np.absolute, a), initial=0, **how)
    if ord == -inf:
        return call(np.min, call_ufunc(np.absolute, a), **how)
    if ord == 0:
        nonzero = call_ufunc(np.not_equal, a, 0).astype(small.real_type(a.dtype))
        return call(np.sum, nonzero, **how)
    if ord == 1:
        return call(np.sum, call_ufunc(np.absolute, a), **how)
    if ord is None or ord == 2:
        return call_ufunc(np.sqrt, call(np.sum, _squared(a), **how))
    if isinstance(ord, str):
        raise ValueError(f"Invalid norm order '{ord}' for vectors")
    powers = call_ufunc(np.absolute, a)
    powers = call_ufunc(np.power, powers, ord, out=powers if powers.ndim else None)
    total = call(np.sum, powers, **how)
    return call_ufunc(np.power, total, np.reciprocal(ord, dtype=total.dtype))


def _squared(a: DistArray) -> DistArray:
    """Return the squares of magnitudes, computed as NumPy does."""
    if a.dtype.kind != "c":
        squares: DistArray = call_ufunc(np.multiply, a, a)
    else:
        squares = call(np.real, call_ufunc(np.multiply, call_ufunc(np.conjugate, a), a))
    return squares


def _of_matrices(a: DistArray, ord: NormOrder, axes: tuple[Any, ...], keepdims: bool) -> Any:
    row, column = [normalize_axis_index(axis, a.ndim) for axis in axes]
    if row == column:
        raise ValueError("Duplicate axes given.")
    if ord in (2, -2, "nuc"):
        result = _of_values(a, ord, row, column)
    elif ord in (1, -1, inf, -inf):
        result = _of_sums(a, ord, row, column)
    elif ord in (None, "fro", "f"):
        result = call_ufunc(np.sqrt, call(np.sum, _squared(a), axis=(row, column)))
    else:
        raise ValueError("Invalid norm order for matrices.")
    if keepdims:
        shape = [1 if d in (row, column) else n for d, n in enumerate(a.shape)]
        result = call(np.reshape, result, shape)
    return result


def _of_sums(a: DistArray, ord: float, row: int, column: int) -> Any:
    """Return the largest or smallest of the sums of columns (1) or rows (inf)."""
    summed, left = (row, column) if abs(ord) == 1 else (column, row)
    sums = call(np.sum, call_ufunc(np.absolute, a), axis=summed)
    left -= left > summed
    if ord > 0:
        return call(np.max, sums, axis=left, initial=0)
    return call(np.min, sums, axis=left)


def _of_values(a: DistArray, ord: float | str, row: int, column: int) -> Any:
    axes = [*[d for d in range(a.ndim) if d not in (row, column)], row, column]
    values = svdvals(wrap(a.block.transpose(axes), a.layout.transpose(axes), a.mesh))
    if ord == "nuc":
        return call(np.sum, values, axis=-1, initial=0)
    if ord == 2:
        return call(np.max, values, axis=-1, initial=0)
    return call(np.min, values, axis=-1)


@implements(np.linalg.matrix_norm)
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: NormOrder = "fro") -> Any:
    """Compute norms of matrices, as :func:`numpy.linalg.matrix_norm`; see :func:`norm`."""
    return norm(x, axis=(-2, -1), keepdims=keepdims, ord=ord)


@implements(np.linalg.vector_norm)
def vector_norm(
    x: ArrayLike, /, *, axis: Axes = None, keepdims: bool = False, ord: NormOrder = 2
) -> Any:
    """Compute norms of vectors, as :func:`numpy.linalg.vector_norm`.

    Several axes are reduced without flattening, so no element moves.

    Cost
    ----
    One allreduce of the result if a reduced dimension is cut.
    """
    (a,) = small.read(x)
    if _is_at_hand(a):
        function = partial(np.linalg.vector_norm, axis=axis, keepdims=keepdims, ord=ord)
        return small.at_once(function, a)
    if not issubclass(a.dtype.type, (np.inexact, np.object_)):
        a = a.astype(float)
    if axis is None and (ord is None or ord == 2) and a.ndim:
        total = _squares(a)
        return call(np.reshape, total, (1,) * a.ndim) if keepdims else total
    axes = normalize_axis_tuple(range(a.ndim) if axis is None else axis, a.ndim)
    return _of_vectors(a, ord, axes, keepdims)
