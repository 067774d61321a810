"""Means and variances: mean, var, std, average.

Variances take two passes, as NumPy's do: first the mean over all ranks, then the sum of squared
deviations from it, each with one small allreduce. Chan's formulas would merge the ranks' own means
and deviations in one round. But deviations from the global mean need no correction, however large
the offset of the data, and the second message costs little compared with the two passes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distarray.array import (
    DistArray,
    Objects,
    as_distarray,
    common_mesh,
    implements,
    to_layout,
    wrap,
)
from distarray.array.portable import as_array
from distarray.array.probes import keeps_dims
from distarray.config import config
from distarray.engines import reproducible
from distarray.engines.reducing import (
    NoValue,
    check_reduction_out,
    finish,
    part_beside,
    reduce,
    reduced,
    write,
)
from distarray.engines.rehearsing.hollow import Hollow
from distarray.engines.tiles import TILE, PairwiseSum, restricted, spot, tiles
from distarray.layout import Fold, Layout
from distarray.plan import ReductionPlan, plan_reduction
from distarray.typing import Array, ArrayLike, Axes, DType, DTypeLike

__all__ = ["average", "mean", "std", "var", "variance"]

#: Maximum bytes of blocks for which NumPy's variance, which copies the block, is faster than ours.
_LONG = 1 << 22


@implements(np.mean, through={Fold.SUM}, at=True, objects=Objects.GATHER, small=np.ndarray.mean)
def mean(
    a: ArrayLike,
    axis: Axes = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    keepdims: bool = NoValue,
    *,
    where: ArrayLike = NoValue,
) -> Any:
    """Compute the arithmetic mean over axes; see :func:`numpy.mean`.

    Cost
    ----
    The cost of :func:`distarray.ops.reductions.sum`; with `where` also an allreduce of the counts.
    """
    x = as_distarray(a, common_mesh(a, out, where))
    keepdims = keeps_dims(keepdims)
    kind = kind_of(np.mean, x.dtype, x.ndim, axis, dtype)  # type: ignore[arg-type]
    if out is not None:
        check_reduction_out(np.mean, x, out, axis=axis, dtype=dtype, keepdims=keepdims)
    if dtype is None and x.dtype.kind in "iub":
        dtype = np.dtype(np.float64)
    elif dtype is None and x.dtype == np.float16:
        dtype = np.dtype(np.float32)
    if where is not NoValue and where is not True:
        x = x.plain()
    count = counted(x, axis, keepdims, where)
    warn_if(count, 0, "Mean of empty slice")
    total = reduce(np.add, x, axis, dtype, None, keepdims, where=where)
    if out is not None:
        return copied(divided(cast_for(total, out), count), out)
    result = divided(total, count)
    return result if result.dtype == kind else result.like(result.block.astype(kind))


@implements(np.var, through={Fold.SUM}, at=True, objects=Objects.GATHER)
def var(
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
    """Compute the variance over axes; see :func:`numpy.var`.

    Cost
    ----
    Two allreduces of the result, of the means and of the squared deviations, if a reduced
    dimension is cut; one if `mean` is given; one more, of the counts, with `where`.
    """
    ddof = chosen_ddof(ddof, correction)
    result = variance(np.var, a, axis, dtype, out, ddof, keepdims, where, mean)
    return result if out is None else copied(result, out)


@implements(np.std, through={Fold.SUM}, at=True, objects=Objects.GATHER)
def std(
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
    """Compute the standard deviation over axes; see :func:`numpy.std` and :func:`var`.

    Cost
    ----
    The cost of :func:`var`.
    """
    ddof = chosen_ddof(ddof, correction)
    result = variance(np.std, a, axis, dtype, out, ddof, keepdims, where, mean)
    return root(result, out)


def root(variance: DistArray, out: DistArray | None) -> Any:
    """Compute the square root of a variance, in its data type."""
    variance = variance.plain()
    part = np.sqrt(variance.block).astype(variance.dtype, copy=False)
    return copied(variance.like(part), out) if out is not None else variance.like(part)


def cast_for(total: DistArray, out: DistArray) -> DistArray:
    """Cast a sum to the data type of `out`, in which NumPy would have added."""
    total = total.plain()
    return total.like(total.mesh.asarray(total.block).astype(out.dtype))


def copied(result: DistArray, out: DistArray) -> Any:
    """Write the result to `out`, and return it."""
    return write(result.block, result.layout, result.mesh, out)


def chosen_ddof(ddof: float, correction: float) -> Any:
    """Return the correction of the divisor, which has two names.

    Raises
    ------
    ValueError
        If both are given.
    """
    if correction is NoValue:
        return ddof
    if ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return correction


@lru_cache(maxsize=1024, typed=True)  # NumPy accepts neither a truth value nor 1.0 for 1
def kind_of(
    function: Callable[..., Any],
    source: DType,
    ndim: int,
    axis: Axes,
    dtype: DTypeLike | None,
) -> DType:
    """Return the data type of a statistic; raise NumPy's exceptions about data type and axis."""
    kind: DType = function(np.ones((1,) * ndim, source), axis=axis, dtype=dtype).dtype
    return kind


def counted(x: DistArray, axis: Axes, keepdims: bool, where: ArrayLike) -> DistArray | np.intp:
    """Count the elements of a result: one number for all, or an array if there is a mask."""
    if where is NoValue or where is True:
        plan = plan_reduction(x.layout, axis, keepdims, x.dtype)
        return np.intp(prod([x.layout.shape[dim] for dim in plan.axes]))
    plan = plan_reduction(x.layout, axis, keepdims, np.dtype(np.intp))
    mask = np.broadcast_to(part_beside(as_distarray(where, x.mesh), x), x.block.shape)
    part = reduced(np.add, mask, plan.axes, np.intp, keepdims)
    count: DistArray = finish(part, plan, np.add, x.mesh)
    return count.plain()


def warn_if(count: DistArray | np.intp, limit: float, text: str) -> None:
    """Warn if at most `limit` elements contribute to a result that this rank holds."""
    if isinstance(count, DistArray) and count.mesh.coords is None:
        return
    block = count.block if isinstance(count, DistArray) else count
    if isinstance(block, Hollow):
        return
    if block <= limit if block.ndim == 0 else np.any(block <= limit):
        warnings.warn(text, RuntimeWarning, stacklevel=1)


def divided(total: DistArray, count: DistArray | Array | np.intp) -> DistArray:
    """Divide a sum by a count, in the sum's data type and memory.

    A pending sum stays pending, unless the divisor is zero: a contribution of 0 would become NaN.
    """
    if isinstance(count, DistArray) or (not count.ndim and not count):
        total = total.plain()
    divisor: Any = to_layout(count, total.layout).block if isinstance(count, DistArray) else count
    block: Any = total.block
    if isinstance(block, np.generic):
        quotient: Any = block.dtype.type(block / divisor)
        return total.like(quotient)
    return total.like(np.true_divide(block, divisor, out=block, casting="unsafe"))


def variance(
    function: Callable[..., Any],
    a: ArrayLike,
    axis: Axes,
    dtype: DTypeLike | None,
    out: DistArray | None,
    ddof: float,
    keepdims: bool,
    where: ArrayLike,
    mean: ArrayLike | None,
) -> DistArray:
    """Compute the variance for a call of `function`, in the data type of `out` if it is given."""
    x = as_distarray(a, common_mesh(a, out, where, mean)).plain()
    keepdims = keeps_dims(keepdims)
    kind = kind_of(function, x.dtype, x.ndim, axis, dtype)  # type: ignore[arg-type]
    if out is not None:
        check_reduction_out(function, x, out, axis=axis, dtype=dtype, keepdims=keepdims)
    if dtype is None and x.dtype.kind in "iub":
        dtype = np.dtype(np.float64)
    plan = plan_reduction(x.layout, axis, keepdims, kind)
    mean = NoValue if mean is None else mean
    if out is None and where is mean is NoValue and _is_numpys(x, plan):
        part = np.var(x.block, axis, dtype, ddof=ddof, keepdims=keepdims)
        return wrap(part, plan.layout, x.mesh)
    return _in_two_passes(x, plan, axis, dtype, out, ddof, where, mean)


def _in_two_passes(
    x: DistArray,
    plan: ReductionPlan,
    axis: Axes,
    dtype: DTypeLike | None,
    out: DistArray | None,
    ddof: float,
    where: ArrayLike,
    mean: ArrayLike,
) -> DistArray:
    """Compute the variance of an array that may be cut or masked, or whose mean is given."""
    count = counted(x, axis, True, where)
    warn_if(count, ddof, "Degrees of freedom <= 0 for slice")
    if mean is NoValue:
        centre = centre_of(x, axis, dtype, where, count)
    else:
        if type(mean) in (int, float, complex):
            mean = np.asarray(mean, np.result_type(x.dtype, mean))
        centre = part_beside(as_distarray(mean, x.mesh), x)
    skip = None
    if where is not NoValue and where is not True:
        skip = ~part_beside(as_distarray(where, x.mesh), x)
    total = squared_deviations(x, centre, plan, dtype, skip)
    if out is not None:
        total = cast_for(total, out)
    if isinstance(count, DistArray) and not plan.keepdims:
        count = squeezed(count, plan.axes)
    degrees: Any = np.maximum(count - ddof, 0)
    return divided(total, degrees)


def _is_numpys(x: DistArray, plan: ReductionPlan) -> bool:
    """Return True if NumPy's call suffices: no slice is cut, and a copy of the block is small."""
    block = x.block
    whole = type(block) is np.ndarray and not plan.mesh_dims and 0 < block.nbytes <= _LONG
    return whole and not config.settings.reproducible


def centre_of(
    x: DistArray, axis: Axes, dtype: DTypeLike | None, where: ArrayLike, count: DistArray | np.intp
) -> Array:
    """Return the mean to subtract from this rank's block of a plain array."""
    total = reduce(np.add, x, axis, dtype, None, True, where=where)
    return part_beside(divided(total, count), x)


def squeezed(kept: DistArray, axes: tuple[int, ...]) -> DistArray:
    """Return a result without the dimensions that were reduced and kept."""
    cuts = [cut for dim, cut in enumerate(kept.layout.cuts) if dim not in axes]
    layout = Layout.from_cuts(cuts, kept.layout.mesh_shape)
    shape = layout.local_shape(kept.mesh.coords)
    outside = kept.mesh.coords is None
    part = kept.mesh.xp.zeros(shape, kept.dtype) if outside else kept.block.reshape(shape)
    return wrap(part if part.ndim else kept.mesh.scalar(part), layout, kept.mesh)


def squared_deviations(
    x: DistArray, centre: Array, plan: ReductionPlan, dtype: DTypeLike | None, skip: Array | None
) -> DistArray:
    """Sum the squared distances of a plain array from the centre.

    Parameters
    ----------
    x : DistArray
        The values.
    centre : array
        Subtracted from the values; broadcasts onto the block.
    plan : ReductionPlan
        Plan of the sum.
    dtype : dtype or None
        Data type in which the sums are computed.
    skip : array of bool, optional
        True where elements are left out; broadcasts onto the block.
    """
    block, mesh = x.block, x.mesh
    shape = plan.layout.local_shape(mesh.coords)
    if config.settings.reproducible and mesh.coords is not None:
        square = _squares(block, centre, skip)
        part = reproducible.ordered_sum(square, plan.axes, x.layout, mesh, plan.dtype)
        part = part.reshape(shape)
        return wrap(part if part.ndim else mesh.scalar(part), plan.layout, mesh)
    if block.size:
        part = _summed_squares(block, centre, plan, dtype, skip).reshape(shape)
    else:
        part = mesh.xp.zeros(shape, plan.dtype)
    return finish(part, plan, np.add, mesh)  # type: ignore[no-any-return]


def _summed_squares(
    block: Array, centre: Array, plan: ReductionPlan, dtype: DTypeLike | None, skip: Array | None
) -> Array:
    """Compute the block's own sums, tile by tile: no temporary is as large as the block."""
    if block.size <= TILE:
        whole: Array = reduced(np.add, _squares(block, centre, skip), plan.axes, dtype, True)
        return whole
    shape = [1 if dim in plan.axes else extent for dim, extent in enumerate(block.shape)]
    result = np.empty(shape, plan.dtype, like=block)
    running = PairwiseSum()
    for key in tiles(block):
        tile_skip = None if skip is None else restricted(key, skip)
        square = _squares(block[key], restricted(key, centre), tile_skip)
        part = reduced(np.add, square, plan.axes, dtype, True)
        where = spot(key, plan.axes)
        if where == key:
            result[where] = part
        else:
            running.add(part)
    return result if running.is_empty else running.total()


def _squares(block: Array, centre: Array, skip: Array | None) -> Array:
    """Compute the squared distances; zero where elements are left out."""
    difference = as_array(np.subtract(block, centre))
    if difference.dtype.kind == "c":
        square = as_array(np.square(difference.real))
        square += np.square(difference.imag)
    else:
        square = np.square(difference, out=difference)
    if skip is not None:
        np.copyto(square, 0, where=skip)
    return square


@implements(np.average, objects=Objects.GATHER)
def average(
    a: ArrayLike,
    axis: Axes = None,
    weights: ArrayLike | None = None,
    returned: bool = False,
    *,
    keepdims: bool = NoValue,
) -> Any:
    """Compute the weighted average over axes; see :func:`numpy.average`.

    Raises
    ------
    ZeroDivisionError
        On all ranks, if weights sum to zero.

    Cost
    ----
    The cost of :func:`mean`; with weights one allreduce for their sum, one for the weighted sum,
    and an exchange of weights whose layout differs from that of `a`.
    """
    x = as_distarray(a, common_mesh(a, weights))
    if axis is not None:
        axis = normalize_axis_tuple(axis, x.ndim, argname="axis")
    if weights is None:
        found = mean(x, axis, keepdims=keepdims)
        scale: Any = found.dtype.type(x.size / found.size)  # divides by zero where NumPy does
        return (found, _filled_like(found, scale)) if returned else found
    weight = _weights(as_distarray(weights, x.mesh), x, axis)
    kind = np.result_type(x.dtype, weight.dtype, *(["f8"] if x.dtype.kind in "iub" else []))
    scale = reduce(np.add, weight, axis, kind, None, keepdims)
    if bool((scale == 0.0).any()) and x.mesh.coords is not None:
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    weighted = np.multiply(x, weight, dtype=kind)
    found = reduce(np.add, weighted, axis, None, None, keepdims) / scale
    return (found, _filled_like(found, scale)) if returned else found


def _weights(weight: DistArray, x: DistArray, axis: tuple[int, ...] | None) -> DistArray:
    """Return the weights in a shape that broadcasts onto the array."""
    if weight.shape == x.shape:
        return weight
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    if weight.shape != tuple([x.shape[dim] for dim in axis]):
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis."
        )
    ordered = wrap(
        weight.block.transpose(np.argsort(axis).tolist()),
        weight.layout.transpose(np.argsort(axis).tolist()),
        weight.mesh,
    )
    key = tuple([slice(None) if dim in axis else None for dim in range(x.ndim)])
    return ordered[key]


def _filled_like(found: DistArray, scale: Array) -> DistArray:
    """Return the sum of the weights in the shape of the average."""
    found = found.plain()
    if found.block.ndim == 0:
        return as_distarray(scale, found.mesh)
    full = found.like(np.empty_like(found.block, dtype=scale.dtype))
    full[...] = scale
    return full
