"""Means and variances: mean, var, std, average.

Variances take two passes, as NumPy's do: the mean over all ranks first, then the sum of squared
deviations from it, each with one small allreduce. Chan's formulas would merge the ranks' own means
and deviations in one round, but the deviations of a pass about the global mean need no correction
however large the offset of the data is, and the second message is small against the two passes.
"""

import warnings
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distarray.array import DistArray, as_distarray, common_mesh, implements, wrap
from distarray.config import config
from distarray.layout import Fold
from distarray.ops import reproducible
from distarray.ops.reducing import (
    NoValue,
    check_out,
    finish,
    local_mask,
    place,
    reduce,
    reduced,
    write,
)

__all__ = ["average", "mean", "std", "var"]

Array = Any


@implements(np.mean, through={Fold.SUM}, at=True)
def mean(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    keepdims: Any = NoValue,
    *,
    where: Any = NoValue,
) -> Any:
    """Arithmetic mean over axes; see :func:`numpy.mean`.

    Cost
    ----
    As :func:`distarray.ops.reductions.sum`; with `where` a second allreduce, of the counts.
    """
    x = as_distarray(a, common_mesh(a, out, where))
    keepdims = keepdims is not NoValue and bool(keepdims)
    kind = kind_of(np.mean, x.dtype, x.ndim, axis, dtype)
    if out is not None:
        check_out(np.mean, x, out, axis=axis, dtype=dtype, keepdims=keepdims)
    if dtype is None and x.dtype.kind in "iub":
        dtype = np.dtype(np.float64)
    elif dtype is None and x.dtype == np.float16:
        dtype = np.dtype(np.float32)
    count = counted(x, axis, keepdims, where)
    warn_if(count, 0, "Mean of empty slice")
    total = reduce(np.add, x, axis, dtype, None, keepdims, where=where)
    part = divided(total, count)
    if part.dtype != kind:
        part = part.astype(kind)
    return write(part, total._layout, x._mesh, out)


@implements(np.var, through={Fold.SUM}, at=True)
def var(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = NoValue,
    *,
    where: Any = NoValue,
    mean: Any = NoValue,
    correction: Any = NoValue,
) -> Any:
    """Variance over axes; see :func:`numpy.var`.

    Cost
    ----
    Two allreduces of the result, of the means and of the squared deviations, if a reduced
    dimension is cut; one if `mean` is given; one more, of the counts, with `where`.
    """
    ddof = chosen_ddof(ddof, correction)
    result = _variance(np.var, a, axis, dtype, out, ddof, keepdims, where, mean)
    return result if out is None else write(result._block, result._layout, result._mesh, out)


@implements(np.std, through={Fold.SUM}, at=True)
def std(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: Any = None,
    ddof: Any = 0,
    keepdims: Any = NoValue,
    *,
    where: Any = NoValue,
    mean: Any = NoValue,
    correction: Any = NoValue,
) -> Any:
    """Standard deviation over axes; see :func:`numpy.std` and :func:`var`.

    Cost
    ----
    As :func:`var`.
    """
    ddof = chosen_ddof(ddof, correction)
    result = _variance(np.std, a, axis, dtype, out, ddof, keepdims, where, mean)
    return root(result, out)


def root(variance: DistArray, out: Any) -> Any:
    """The square root of a variance, in its data type."""
    variance._settle()
    part = np.sqrt(variance._block).astype(variance.dtype, copy=False)
    return write(part, variance._layout, variance._mesh, out)


def chosen_ddof(ddof: Any, correction: Any) -> Any:
    if correction is NoValue:
        return ddof
    if ddof != 0:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return correction


def kind_of(function: Any, source: np.dtype[Any], ndim: int, axis: Any, dtype: Any) -> Any:
    """The data type of a statistic; raises what NumPy raises about data type and axis."""
    return function(np.ones((1,) * ndim, source), axis=axis, dtype=dtype).dtype


def counted(x: DistArray, axis: Any, keepdims: bool, where: Any) -> Any:
    """Number of elements a result is made of: one for all, or an array where there is a mask."""
    if where is NoValue or where is True:
        plan = place(x._layout, axis, keepdims, x.dtype)
        return np.intp(np.prod([x.shape[dim] for dim in plan.axes], dtype=np.intp))
    x = x._plain()
    plan = place(x._layout, axis, keepdims, np.dtype(np.intp))
    mask = np.broadcast_to(local_mask(as_distarray(where, x._mesh), x), x._block.shape)
    part = reduced(np.add, mask, plan.axes, np.intp, keepdims)
    counts = finish(part, plan, np.add, x._mesh)
    counts._settle()
    return counts._block


def warn_if(count: Any, limit: Any, text: str) -> None:
    """Warn where no more than `limit` elements go into a result that this rank holds."""
    if np.any(count <= limit):
        warnings.warn(text, RuntimeWarning, stacklevel=4)


def divided(total: DistArray, count: Any) -> Array:
    """A sum's block divided by the count, in the sum's data type; a pending sum stays one."""
    if isinstance(count, np.ndarray) and total._layout.partials:
        total._settle()
    block = total._block
    if isinstance(block, np.generic):
        return block.dtype.type(block / count)
    return np.true_divide(block, count, out=block, casting="unsafe")


def _variance(
    function: Any,
    a: Any,
    axis: Any,
    dtype: Any,
    out: Any,
    ddof: Any,
    keepdims: Any,
    where: Any,
    mean: Any,
) -> DistArray:
    x = as_distarray(a, common_mesh(a, out, where, mean))
    keepdims = keepdims is not NoValue and bool(keepdims)
    kind = kind_of(np.var, x.dtype, x.ndim, axis, dtype)
    if out is not None:
        check_out(function, x, out, axis=axis, dtype=dtype, keepdims=keepdims)
    if dtype is None and x.dtype.kind in "iub":
        dtype = np.dtype(np.float64)
    count = counted(x, axis, keepdims, where)
    warn_if(count, ddof, "Degrees of freedom <= 0 for slice")
    if mean is NoValue or mean is None:
        centre = centre_of(x, axis, dtype, where, count)
    else:
        centre = local_mask(as_distarray(mean, x._mesh), x)
    total = squared_deviations(x, centre, axis, kind, dtype, keepdims, where)
    part = divided(total, np.maximum(count - ddof, 0))
    return wrap(part, total._layout, total._mesh)


def centre_of(x: DistArray, axis: Any, dtype: Any, where: Any, count: Any) -> Array:
    """The mean, with the reduced dimensions kept, of what this rank's block is part of."""
    total = reduce(np.add, x, axis, dtype, None, True, where=where)
    total._settle()
    x = x._plain()
    if isinstance(count, np.ndarray):
        count = count.reshape(total._block.shape)
    return divided(total, count)


def squared_deviations(
    x: DistArray,
    centre: Array,
    axis: Any,
    kind: np.dtype[Any],
    dtype: Any,
    keepdims: bool,
    where: Any,
    skip: Array | None = None,
) -> DistArray:
    """Sums of the squared distances from the centre, which broadcasts onto the block."""
    x = x._plain()
    plan = place(x._layout, axis, keepdims, kind)
    mask = None
    if where is not NoValue and where is not True:
        mask = local_mask(as_distarray(where, x._mesh), x)
    square = _squared(np.subtract(x._block, centre))
    if skip is not None:
        square = np.where(skip, square.dtype.type(0), square)
    if config.reproducible:
        if mask is not None:
            square = np.where(mask, square, square.dtype.type(0))
        part = reproducible.binned_sum(square, plan.axes, x._layout, x._mesh, kind)
        part = part.reshape(plan.layout.local_shape(x._mesh.coords))
        return wrap(part if part.ndim else part[()], plan.layout, x._mesh)
    part = reduced(np.add, square, plan.axes, dtype, keepdims, mask=mask)
    return finish(part, plan, np.add, x._mesh)


def _squared(difference: Array) -> Array:
    """The squared magnitudes of the elements."""
    if difference.dtype.kind == "c":
        real, imag = difference.real, difference.imag
        return np.add(np.square(real), np.square(imag))
    return np.square(difference)


@implements(np.average)
def average(
    a: Any, axis: Any = None, weights: Any = None, returned: Any = False, *, keepdims: Any = NoValue
) -> Any:
    """Weighted average over axes; see :func:`numpy.average`.

    Raises
    ------
    ZeroDivisionError
        On all ranks, if weights sum to zero.

    Cost
    ----
    As :func:`mean`; with weights one allreduce for their sum, one for the weighted sum, and what
    it takes to bring weights that lie otherwise to where `a` is.
    """
    x = as_distarray(a, common_mesh(a, weights))
    if axis is not None:
        axis = normalize_axis_tuple(axis, x.ndim, argname="axis")
    if weights is None:
        found = mean(x, axis, keepdims=keepdims)
        scale: Any = found.dtype.type(x.size / found.size)  # NumPy too divides by zero here
        return (found, _filled_like(found, scale)) if returned else found
    weight = _weights(as_distarray(weights, x._mesh), x, axis)
    kind = np.result_type(x.dtype, weight.dtype, *(["f8"] if x.dtype.kind in "iub" else []))
    scale = reduce(np.add, weight, axis, kind, None, keepdims)
    if bool((scale == 0.0).any()):
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    weighted = np.multiply(x, weight, dtype=kind)
    found = reduce(np.add, weighted, axis, None, None, keepdims) / scale
    return (found, _filled_like(found, scale)) if returned else found


def _weights(weight: DistArray, x: DistArray, axis: tuple[int, ...] | None) -> DistArray:
    """The weights in a shape that broadcasts onto the array."""
    if weight.shape == x.shape:
        return weight
    if axis is None:
        raise TypeError("Axis must be specified when shapes of a and weights differ.")
    if weight.shape != tuple([x.shape[dim] for dim in axis]):
        raise ValueError(
            "Shape of weights must be consistent with shape of a along specified axis."
        )
    ordered = wrap(
        weight._block.transpose(np.argsort(axis)),
        weight._layout.transpose(np.argsort(axis).tolist()),
        weight._mesh,
    )
    key = tuple([slice(None) if dim in axis else None for dim in range(x.ndim)])
    return ordered[key]  # type: ignore[no-any-return]


def _filled_like(found: DistArray, scale: Any) -> DistArray:
    """The sum of the weights in the shape of the average."""
    found._settle()
    if found._block.ndim == 0:
        return as_distarray(scale, found._mesh)
    full = found._like(np.empty_like(found._block, dtype=scale.dtype))
    full[...] = scale
    return full
