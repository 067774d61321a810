"""Reductions that ignore NaN: nansum, nanprod, nanmax, nanmin, nanmean, nanvar, nanstd."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements, to_layout
from distarray.array.probes import keeps_dims
from distarray.engines.reducing import NoValue, check_reduction_out, part_beside, reduce
from distarray.ops import statistics
from distarray.ops.scans import without_nan
from distarray.plan import plan_reduction
from distarray.typing import Array, ArrayLike, Axes, DTypeLike

__all__ = ["nanmax", "nanmean", "nanmin", "nanprod", "nanstd", "nansum", "nanvar"]


@implements(np.nansum)
def nansum(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Sum with NaN as zero; see :func:`numpy.nansum`.

    Cost
    ----
    The cost of :func:`distarray.ops.reductions.sum`, and one copy of the block.
    """
    return reduce(np.add, without_nan(a, 0)[0], axis, dtype, out, keepdims, initial, where)


@implements(np.nanprod)
def nanprod(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Multiply with NaN as one; see :func:`numpy.nanprod`.

    Cost
    ----
    The cost of :func:`nansum`.
    """
    return reduce(np.multiply, without_nan(a, 1)[0], axis, dtype, out, keepdims, initial, where)


@implements(np.nanmax)
def nanmax(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Return the largest element that is not NaN; see :func:`numpy.nanmax`.

    An all-NaN slice gives NaN, with a RuntimeWarning on the ranks that hold its result.

    Cost
    ----
    The cost of :func:`distarray.engines.reducing.reduce` with ``fmax``, which MPI does not have.
    """
    return _extreme(np.fmax, a, axis, out, keepdims, initial, where)


@implements(np.nanmin)
def nanmin(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Return the smallest element that is not NaN; see :func:`numpy.nanmin` and :func:`nanmax`.

    Cost
    ----
    The cost of :func:`nanmax`.
    """
    return _extreme(np.fmin, a, axis, out, keepdims, initial, where)


def _extreme(
    ufunc: np.ufunc,
    a: ArrayLike,
    axis: Axes,
    out: DistArray | None,
    keepdims: bool,
    initial: ArrayLike,
    where: ArrayLike,
) -> Any:
    result = reduce(ufunc, a, axis, None, out, keepdims, initial, where)
    block = result.block if isinstance(result, DistArray) else result
    kind = getattr(block, "dtype", np.dtype(object)).kind  # a Python object has no dtype
    if kind in "fcmM" and np.isnan(block).any():
        warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=1)
    return result


@implements(np.nanmean)
def nanmean(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    *,
    where: ArrayLike = NoValue,
) -> Any:
    """Compute the mean of the elements that are not NaN; see :func:`numpy.nanmean`.

    Cost
    ----
    Two allreduces, of the sums and of the counts, if a reduced dimension is cut.
    """
    x, mask = without_nan(a, 0)
    if mask is None:
        return statistics.mean(x, axis, dtype, out, keepdims, where=where)
    keepdims = keeps_dims(keepdims)
    _check_inexact(dtype, out)
    if out is not None:
        check_reduction_out(np.nanmean, x, out, axis=axis, dtype=dtype, keepdims=keepdims)
    count = _count(x, mask, axis, keepdims, where)
    total = reduce(np.add, x, axis, dtype, None, keepdims, where=where)
    if out is not None:
        total = statistics.cast_for(total, out)
    result = _divided(total, count)
    statistics.warn_if(count, 0, "Mean of empty slice")
    return result if out is None else statistics.copied(result, out)


@implements(np.nanvar)
def nanvar(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    ddof: float = 0,
    keepdims: bool = NoValue,
    *,
    where: ArrayLike = NoValue,
    mean: ArrayLike = NoValue,
    correction: float = NoValue,
) -> Any:
    """Compute the variance of the elements that are not NaN; see :func:`numpy.nanvar`.

    Cost
    ----
    Three allreduces, of the counts, the sums and the squared deviations, if a reduced dimension
    is cut.
    """
    result = _variance(np.nanvar, a, axis, dtype, out, ddof, keepdims, where, mean, correction)
    return result if out is None else statistics.copied(result, out)


@implements(np.nanstd)
def nanstd(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    ddof: float = 0,
    keepdims: bool = NoValue,
    *,
    where: ArrayLike = NoValue,
    mean: ArrayLike = NoValue,
    correction: float = NoValue,
) -> Any:
    """Compute the standard deviation of elements that are not NaN; see :func:`numpy.nanstd`.

    Cost
    ----
    The cost of :func:`nanvar`.
    """
    result = _variance(np.nanstd, a, axis, dtype, out, ddof, keepdims, where, mean, correction)
    return statistics.root(result, out)


def _check_inexact(dtype: DTypeLike | None, out: DistArray | None) -> None:
    if dtype is not None and np.dtype(dtype).kind not in "fc":
        raise TypeError("If a is inexact, then dtype must be inexact")
    if out is not None and out.dtype.kind not in "fc":
        raise TypeError("If a is inexact, then out must be inexact")


def _count(x: DistArray, mask: Array, axis: Axes, keepdims: bool, where: ArrayLike) -> DistArray:
    """Count the elements that are not NaN and that contribute to each result."""
    counts: DistArray = reduce(np.add, x.like(~mask), axis, np.intp, None, keepdims, where=where)
    return counts.plain()


def _divided(total: DistArray, count: DistArray | Array) -> DistArray:
    """Divide sums by counts, which may be zero; NumPy warns only of other errors."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return statistics.divided(total, count)


def _variance(
    function: Callable[..., Any],
    a: ArrayLike,
    axis: Axes,
    dtype: DTypeLike | None,
    out: DistArray | None,
    ddof: float,
    keepdims: bool,
    where: ArrayLike,
    mean: ArrayLike,
    correction: float,
) -> DistArray:
    x, mask = without_nan(as_distarray(a, common_mesh(a, out, where, mean)).plain(), 0)
    if mask is None:
        ddof = statistics.chosen_ddof(ddof, correction)
        return statistics.variance(function, x, axis, dtype, out, ddof, keepdims, where, mean)
    _check_inexact(dtype, out)
    ddof = statistics.chosen_ddof(ddof, correction)
    keepdims = keeps_dims(keepdims)
    if out is not None:
        check_reduction_out(function, x, out, axis=axis, dtype=dtype, keepdims=keepdims)
    kind = statistics.kind_of(np.var, x.dtype, x.ndim, axis, dtype)  # type: ignore[arg-type]
    count = _count(x, mask, axis, True, where)
    if where is not NoValue and where is not True:
        mask = mask | ~part_beside(as_distarray(where, x.mesh), x)
    plan = plan_reduction(x.layout, axis, keepdims, kind)
    if mean is NoValue:
        sums = reduce(np.add, x, axis, dtype, None, True, where=where)
        centre = part_beside(_divided(sums, count), x)
    else:
        centre = part_beside(as_distarray(mean, x.mesh), x)
    total = statistics.squared_deviations(x, centre, plan, dtype, mask).plain()
    if out is not None:
        total = statistics.cast_for(total, out)
    if not keepdims:
        count = statistics.squeezed(count, plan.axes)
    freedom = to_layout(count, total.layout).block - ddof
    result = _divided(total, freedom)
    if np.any(freedom <= 0) and x.mesh.coords is not None:
        warnings.warn("Degrees of freedom <= 0 for slice.", RuntimeWarning, stacklevel=1)
        part = np.where(freedom <= 0, result.dtype.type(np.nan), result.block)
        result = result.computed(part)
    return result
