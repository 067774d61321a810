"""Reductions: sum, prod, max, min, any, all, count_nonzero, ptp.

Each is one ufunc, reduced by the engine in :mod:`distarray.engines.reducing`.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, implements
from distarray.array.probes import keeps_dims
from distarray.engines.reducing import NoValue, finish, reduce
from distarray.layout import Fold, Layout
from distarray.plan import ReductionPlan, plan_reduction
from distarray.typing import ArrayLike, Axes, DTypeLike

__all__ = ["all", "amax", "amin", "any", "count_nonzero", "max", "min", "prod", "ptp", "sum"]


@implements(np.sum, through={Fold.SUM}, at=True, small=np.ndarray.sum)
def sum(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Sum the elements over axes; see :func:`numpy.sum`.

    Returns
    -------
    DistArray
        The remaining dimensions are cut as in `a`; a full sum is a scalar on every rank.

    Cost
    ----
    One allreduce of the result if a summed dimension is cut. A large result stays pending, without
    a message yet. See :func:`distarray.engines.reducing.reduce`.
    """
    return reduce(np.add, a, axis, dtype, out, keepdims, initial, where)


@implements(np.prod, through={Fold.PROD}, at=True, small=np.ndarray.prod)
def prod(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Multiply the elements over axes; see :func:`numpy.prod`.

    Cost
    ----
    The cost of :func:`sum`.
    """
    return reduce(np.multiply, a, axis, dtype, out, keepdims, initial, where)


@implements(np.max, through={Fold.MAX}, at=True, small=np.ndarray.max)
def max(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Return the largest element over axes, NaN first; see :func:`numpy.max`.

    Cost
    ----
    The cost of :func:`sum`.
    """
    return reduce(np.maximum, a, axis, None, out, keepdims, initial, where)


@implements(np.amax, through={Fold.MAX}, at=True, small=np.ndarray.max)
def amax(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Call :func:`max` under its other name."""
    return reduce(np.maximum, a, axis, None, out, keepdims, initial, where)


@implements(np.min, through={Fold.MIN}, at=True, small=np.ndarray.min)
def min(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Return the smallest element over axes, NaN first; see :func:`numpy.min`.

    Cost
    ----
    The cost of :func:`sum`.
    """
    return reduce(np.minimum, a, axis, None, out, keepdims, initial, where)


@implements(np.amin, through={Fold.MIN}, at=True, small=np.ndarray.min)
def amin(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    initial: ArrayLike = NoValue,
    where: ArrayLike = NoValue,
) -> Any:
    """Call :func:`min` under its other name."""
    return reduce(np.minimum, a, axis, None, out, keepdims, initial, where)


@implements(np.any, through={Fold.ANY}, at=True, small=np.ndarray.any)
def any(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    *,
    where: ArrayLike = NoValue,
) -> Any:
    """Check whether any element is true, over axes; see :func:`numpy.any`.

    Cost
    ----
    The cost of :func:`sum`.
    """
    return reduce(np.logical_or, a, axis, bool, out, keepdims, NoValue, where)


@implements(np.all, through={Fold.ALL}, at=True, small=np.ndarray.all)
def all(
    a: ArrayLike,
    axis: Axes = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    *,
    where: ArrayLike = NoValue,
) -> Any:
    """Check whether all elements are true, over axes; see :func:`numpy.all`.

    Cost
    ----
    The cost of :func:`sum`.
    """
    return reduce(np.logical_and, a, axis, bool, out, keepdims, NoValue, where)


@implements(np.count_nonzero, at=True)
def count_nonzero(a: ArrayLike, axis: Axes = None, *, keepdims: bool = False) -> Any:
    """Count the elements that are not zero, over axes; see :func:`numpy.count_nonzero`.

    Cost
    ----
    The cost of :func:`sum`, with integers.
    """
    x = as_distarray(a)
    if axis is not None:
        np.zeros((), x.dtype).astype(bool)  # raises NumPy's exception about records
    kept = keeps_dims(keepdims) if axis is not None or keepdims else False
    plan = _counting(x.layout, axis, kept)
    if x.block.size and x.layout.holds(x.mesh.coords):
        # Over all axes NumPy counts much faster if no axes are passed.
        axes = None if len(plan.axes) == x.ndim else plan.axes
        part = x.mesh.asarray(np.count_nonzero(x.block, axis=axes))
        if plan.keepdims:
            part = part.reshape(plan.layout.local_shape(x.mesh.coords))
    else:
        part = x.mesh.xp.zeros(plan.layout.local_shape(x.mesh.coords), np.intp)
    return finish(part, plan, np.add, x.mesh)


@lru_cache(maxsize=1024, typed=True)  # NumPy accepts neither a truth value nor 1.0 for 1
def _counting(layout: Layout, axis: Axes, keepdims: bool) -> ReductionPlan:
    """Return the plan of a count; raise NumPy's errors about the axis."""
    np.count_nonzero(np.zeros([0] * layout.ndim), axis)
    return plan_reduction(layout, axis, keepdims, np.dtype(np.intp))


@implements(np.ptp)
def ptp(
    a: ArrayLike, axis: Axes = None, out: DistArray | None = None, keepdims: bool = NoValue
) -> Any:
    """Subtract the smallest from the largest element over axes; see :func:`numpy.ptp`.

    Cost
    ----
    The cost of :func:`max` and :func:`min`.
    """
    largest = reduce(np.maximum, a, axis, None, out, keepdims)
    smallest = reduce(np.minimum, a, axis, None, None, keepdims)
    return np.subtract(largest, smallest, out)  # type: ignore[arg-type]
