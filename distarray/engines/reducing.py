"""The reduction engine: reduce the block, then fold across the ranks that share the axis.

Every reduction is planned once for each (ufunc, layout, axis, ...). The plan calls NumPy on a tiny
array, which yields the data type of the result and NumPy's errors about wrong arguments. All ranks
therefore raise NumPy's own error before any message is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array import (
    DistArray,
    as_distarray,
    common_mesh,
    ends,
    faults,
    movement,
    wrap,
)
from distarray.array.base import check_out
from distarray.array.portable import as_array, refuse_read_only, ufunc_method
from distarray.array.probes import as_axis, condition, hollow, keeps_dims, tiny
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.engines import chains, reproducible
from distarray.engines.folds import (
    RULES,
    are_times,
    combine,
    identity,
    is_of_objects,
    loop_dtype,
    neutral,
)
from distarray.layout import Fold, Layout, Partial
from distarray.plan import ReductionPlan, plan_reduction, restrict
from distarray.typing import Array, ArrayLike, Axes, DType, DTypeLike, Out, Shape

__all__ = [
    "NoValue",
    "check_reduction_out",
    "check_target",
    "finish",
    "part_beside",
    "reduce",
    "reduced",
    "write",
]

NoValue: Any = np._NoValue

#: NumPy functions that other array libraries implement instead of ``ufunc.reduce``.
_NAMED: dict[np.ufunc, Any] = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.maximum: np.max,
    np.minimum: np.min,
    np.logical_or: np.any,
    np.logical_and: np.all,
}
_HOST: tuple[type, ...] = (np.ndarray, np.generic)


def reduce(
    ufunc: np.ufunc,
    a: ArrayLike,
    axis: Axes = 0,
    dtype: DTypeLike = None,
    out: Any = None,
    keepdims: bool = False,
    initial: ArrayLike = NoValue,
    where: ArrayLike | bool = True,
) -> Any:
    """Apply ``ufunc.reduce`` to a distributed array.

    Parameters
    ----------
    ufunc : ufunc
        A ufunc of two operands.
    a : DistArray or array_like
        The array. Pending folds of the same kind stay pending if that changes no precision.
    axis, dtype, out, keepdims, initial, where
        As in :meth:`numpy.ufunc.reduce`; `out` may be a DistArray of any layout or a NumPy
        array, which then receives the result on every rank.

    Returns
    -------
    DistArray
        The remaining dimensions are cut as in `a`. A 0-d result is a finished scalar on every
        rank; the fold of a large n-d result may be left pending.

    Raises
    ------
    AxisError, TypeError, ValueError
        NumPy's own errors, on all ranks.

    Cost
    ----
    No communication if no reduced dimension is cut; else one allreduce of the result, or the
    messages of :func:`~distarray.engines.folds.fold_with` if MPI has no such operation. Ufuncs
    whose order matters (subtract, divide, ...): the ranks along the axis compute one after another,
    each sends one slab to the next, all agree on errors, and the last rank broadcasts the result.
    """
    x: DistArray = a if type(a) is DistArray else as_distarray(a, common_mesh(a, out, where))
    axis = axis if type(axis) is int or axis is None else _as_axis(axis)
    keepdims = keeps_dims(keepdims)
    into: Any = out[0] if isinstance(out, tuple) else out
    if is_of_objects(ufunc, x.dtype, dtype) or (into is not None and are_times(x, into)):
        return _gathered(ufunc, x, axis, dtype, into, keepdims, initial, where)
    if into is None and initial is NoValue and (where is True or where is NoValue):
        return _planned(ufunc, x, axis, dtype, keepdims)
    return _with_arguments(ufunc, x, axis, dtype, into, keepdims, initial, where)


def _planned(ufunc: np.ufunc, x: DistArray, axis: Axes, dtype: Any, keepdims: bool) -> Any:
    """Reduce without `out`, `initial` and `where`, by a cached plan."""
    mesh = x.mesh
    plan = _plan_of(ufunc, x.layout, x.dtype, axis, dtype, keepdims)
    if x.waits and not plan.layout.shape and not (plan.rounds and config.settings.reproducible):
        value = ends.fold(x, ufunc, dtype)
        if value is not None:
            return finish(value, plan, ufunc, mesh)
    block = x.block
    if not plan.direct or not block.size or (plan.rounds and config.settings.reproducible):
        return _folded(ufunc, x, plan, dtype)
    if plan.total is not None and type(block) is np.ndarray:
        # Minimize the overhead of a scalar result: programs compute scalars in loops.
        part = np.empty((), plan.dtype)
        ufunc.reduce(block, None, dtype, part)
        mesh.subgroup(plan.mesh_dims).allreduce_in_place(part, plan.total)
        return wrap(part[()], plan.layout, mesh)
    return finish(reduced(ufunc, block, plan.axes, dtype, keepdims), plan, ufunc, mesh)


def _with_arguments(
    ufunc: np.ufunc,
    x: DistArray,
    axis: Axes,
    dtype: DTypeLike,
    out: Out | Array,
    keepdims: bool,
    initial: ArrayLike,
    where: ArrayLike | bool,
) -> Any:
    """Reduce with an `out`, a mask or an initial value."""
    mask = None if where is True or where is NoValue else as_distarray(condition(where), x.mesh)
    if out is not None:
        check_target(out)
        dtype = loop_dtype(ufunc, x, out) if dtype is None else dtype
    keywords: dict[str, Any] = {"axis": axis, "dtype": dtype, "keepdims": keepdims}
    if initial is not NoValue:
        keywords["initial"] = initial = _value(initial)
    kind = _checked(ufunc, x, out, mask, keywords)
    plan = _with_rule(ufunc, x.layout, plan_reduction(x.layout, axis, keepdims, kind))
    return _folded(ufunc, x, plan, dtype, out, initial, mask)


def _folded(
    ufunc: np.ufunc,
    x: DistArray,
    plan: ReductionPlan,
    dtype: DTypeLike,
    out: Out | Array = None,
    initial: Any = NoValue,
    mask: DistArray | None = None,
) -> Any:
    """Reduce by the plan: fold contributions in any order, or in the order of the elements."""
    if _in_turn(ufunc, initial) or (plan.rounds and config.settings.reproducible):
        x, plan = _settled(x, plan)
        part = _in_order(ufunc, x, plan, dtype, initial, mask)
        return write(part if part.ndim else x.mesh.scalar(part), plan.layout, x.mesh, out)
    if not x.layout.is_plain and not _passes(ufunc, x, plan, mask):
        x, plan = _settled(x, plan)
    part = _contribution(ufunc, x, plan, dtype, initial, mask)
    return finish(part, plan, ufunc, x.mesh, out)


def _in_turn(ufunc: np.ufunc, initial: Any) -> bool:
    """Return True if elements must be folded one after the other, beginning with `initial`."""
    return ufunc not in RULES or (RULES[ufunc].positive and initial is not NoValue)


def _value(initial: ArrayLike) -> Any:
    """Convert an initial value to a value that NumPy accepts."""
    return initial.full()[()] if isinstance(initial, DistArray) else initial


def _as_axis(axis: Axes) -> Axes:
    return tuple(map(as_axis, axis)) if isinstance(axis, tuple) else as_axis(axis)


def _gathered(
    ufunc: np.ufunc,
    x: DistArray,
    axis: Axes,
    dtype: DTypeLike,
    out: Out | Array,
    keepdims: bool,
    initial: ArrayLike,
    where: ArrayLike | bool,
) -> Any:
    """Reduce Python objects, whose order may matter, or into times: on all gathered elements."""
    given: dict[str, Any] = {} if initial is NoValue else {"initial": _value(initial)}
    if where is not True and where is not NoValue:
        given["where"] = where.full() if isinstance(where, DistArray) else where
    given["out"] = out.full() if isinstance(out, DistArray) else out
    value: Any = ufunc.reduce(x.full(), axis=axis, dtype=dtype, keepdims=keepdims, **given)
    if out is not None:
        if value is not out:
            out[...] = value
        return out
    if not isinstance(value, (np.ndarray, np.generic)):
        return value
    return as_distarray(value, x.mesh)


@lru_cache(maxsize=4096, typed=True)  # NumPy accepts an axis 1, but neither True nor 1.0
def _plan_of(
    ufunc: np.ufunc,
    layout: Layout,
    source: DType,
    axis: Axes,
    dtype: DTypeLike,
    keepdims: bool,
) -> ReductionPlan:
    """Plan a reduction without `out`, `initial` and `where`; raise NumPy's errors."""
    made = ufunc.reduce(tiny(layout.shape, source), axis=axis, dtype=dtype, keepdims=keepdims)
    return _with_rule(ufunc, layout, plan_reduction(layout, axis, keepdims, _dtype_of(made)))


def _dtype_of(value: Any) -> DType:
    """Return the data type of a result of NumPy, which may be a plain Python object."""
    other = np.dtypes.StringDType() if isinstance(value, str) else np.dtype(object)
    return getattr(value, "dtype", other)


def _with_rule(ufunc: np.ufunc, layout: Layout, plan: ReductionPlan) -> ReductionPlan:
    """Add the attributes that depend on the ufunc to the plan."""
    rule = RULES.get(ufunc)
    if rule is None:  # the order matters
        whole = layout.is_plain and all(cut.parts == 1 for cut in layout.cuts)
        return plan._replace(direct=whole)
    total = rule.fold if plan.mesh_dims and not plan.layout.shape else None
    rounds = rule.rounds and plan.dtype.kind in "fc"
    return plan._replace(direct=layout.is_plain, rounds=rounds, total=total)


def _checked(
    ufunc: np.ufunc,
    x: DistArray,
    out: Out | Array,
    mask: DistArray | None,
    keywords: dict[str, Any],
) -> DType:
    """Return the data type of the result; raise NumPy's errors about any of the arguments."""
    if mask is not None:
        np.add.reduce(np.zeros(1), where=np.zeros(1, mask.dtype))  # NumPy checks its kind first
        if not _broadcasts(mask.shape, x.shape):
            where = np.broadcast_to(np.False_, mask.shape)
            ufunc.reduce(hollow(x.shape, x.dtype), where=where, **keywords)
        keywords = {**keywords, "where": tiny(mask.shape, mask.dtype)}
    if out is not None:
        check_reduction_out(ufunc.reduce, x, out, **keywords)
    return _dtype_of(ufunc.reduce(tiny(x.shape, x.dtype), **keywords))


def check_reduction_out(
    function: Callable[..., Any],
    x: DistArray,
    out: DistArray | Array,
    *,
    axis: Axes,
    keepdims: bool,
    **keywords: Any,
) -> None:
    """Raise NumPy's error about an `out` of a wrong shape or kind."""
    check_target(out)
    shape = plan_reduction(x.layout, axis, keepdims, x.dtype).layout.shape
    ones = np.ones([min(extent, 1) for extent in x.shape], x.dtype)
    function(ones, axis=axis, out=tiny(shape, out.dtype), keepdims=keepdims, **keywords)
    if tuple(out.shape) != shape:
        whole, other = hollow(x.shape, x.dtype), hollow(out.shape, x.dtype)
        np.add.reduce(whole, axis, None, out=other, keepdims=keepdims)


def check_target(out: DistArray | Array) -> None:
    """Raise NumPy's error about an `out` that is a scalar or read-only."""
    check_out(out)
    refuse_read_only(out, "output array is read-only")


def _broadcasts(shape: Shape, onto: Shape) -> bool:
    pairs = zip(reversed(shape), reversed(onto), strict=False)
    return len(shape) <= len(onto) and all(have in (want, 1) for have, want in pairs)


def _settled(x: DistArray, plan: ReductionPlan) -> tuple[DistArray, ReductionPlan]:
    """Bring the operand to a plain layout; return it and the plan for that layout."""
    x = x.plain()
    placed = plan_reduction(x.layout, plan.axes, plan.keepdims, plan.dtype)
    return x, placed._replace(rounds=plan.rounds)


def _passes(ufunc: np.ufunc, x: DistArray, plan: ReductionPlan, mask: DistArray | None) -> bool:
    """Return True if an array that is not plain can be reduced unchanged, with the same result."""
    fold, partials = RULES[ufunc].fold, x.layout.partials
    if mask is not None or (partials and (fold is None or plan.dtype != x.dtype)):
        return False
    return all(x.layout.placements[m].op is fold for m in partials)  # type: ignore[attr-defined]


def _in_order(
    ufunc: np.ufunc,
    x: DistArray,
    plan: ReductionPlan,
    dtype: DTypeLike,
    initial: Any,
    where: DistArray | None,
) -> Array:
    """Compute this rank's block of a result that depends on the order of operations."""
    shape = plan.layout.local_shape(x.mesh.coords)
    if x.mesh.coords is None:
        return _filled(x.mesh, shape, 0, plan.dtype)
    mask = None if where is None else part_beside(where, x)
    if not _in_turn(ufunc, initial):
        return reproducible.reduce(ufunc, x, plan.axes, plan.dtype, initial, mask).reshape(shape)
    if not chains.mixes(ufunc, x.dtype, dtype):
        return chains.reduce(ufunc, x, plan.axes, plan.dtype, initial, mask).reshape(shape)
    layout = chains.whole_along(x.layout, plan.axes[0]) if plan.axes else x.layout
    if mask is not None:
        mask = np.broadcast_to(mask, x.block.shape)
        mask = movement.moved(mask, x.layout, layout, x.mesh)
    block = movement.moved(x.block, x.layout, layout, x.mesh)
    part = as_array(reduced(ufunc, block, plan.axes, dtype, True, initial, mask))
    source = plan_reduction(layout, plan.axes, True, plan.dtype).layout
    target = plan_reduction(x.layout, plan.axes, True, plan.dtype).layout
    return movement.moved(part, source, target, x.mesh).reshape(shape)


def part_beside(a: DistArray, x: DistArray) -> Array:
    """Redistribute `a`, which broadcasts onto `x`, to match the layout of `x`; return the block."""
    a = a.plain()
    part: Array = x.mesh.asarray(
        movement.moved(a.block, a.layout, restrict(x.layout, a.shape), x.mesh)
    )
    return part


def _contribution(
    ufunc: np.ufunc,
    x: DistArray,
    plan: ReductionPlan,
    dtype: DTypeLike,
    initial: Any,
    where: DistArray | None,
) -> Array:
    """Reduce this rank's block; return the identity if there is nothing to reduce."""
    block, coords = x.block, x.mesh.coords
    if coords is None:
        return _filled(x.mesh, plan.layout.local_shape(None), 0, plan.dtype)
    mask = None if where is None else part_beside(where, x)
    if initial is None:
        initial = NoValue
    elif initial is not NoValue and not (RULES[ufunc].idempotent or plan.leads(coords)):
        initial = neutral(ufunc, plan.dtype)
    if not block.size or not x.layout.holds(coords):
        value = identity(ufunc, plan.dtype) if initial is NoValue else initial
        return _filled(x.mesh, plan.layout.local_shape(coords), value, plan.dtype)
    part: Array = reduced(ufunc, block, plan.axes, dtype, plan.keepdims, initial, mask)
    return part


def _filled(mesh: DeviceMesh, shape: Shape, value: Any, dtype: DType) -> Array:
    block: Array = mesh.xp.full(shape, value, dtype)
    return block


def reduced(
    ufunc: np.ufunc,
    block: Array,
    axes: tuple[int, ...],
    dtype: DTypeLike = None,
    keepdims: bool = False,
    initial: Any = NoValue,
    mask: Array | None = None,
) -> Any:
    """Apply ``ufunc.reduce`` to a block on any device; return an array or a NumPy scalar."""
    if isinstance(block, _HOST):
        if initial is NoValue and mask is None:
            return faults.reduce(ufunc, block, axes, dtype, None, keepdims)
        where = True if mask is None else mask
        return faults.reduce(ufunc, block, axes, dtype, None, keepdims, initial, where)
    if mask is not None:
        block = np.where(mask, block, identity(ufunc, block.dtype))
    named = {} if dtype is None or ufunc not in (np.add, np.multiply) else {"dtype": dtype}
    if ufunc in _NAMED:
        value = _NAMED[ufunc](block, axis=axes, keepdims=keepdims, **named)
    else:
        value = ufunc_method(ufunc, "reduce", block, axes, dtype, None, keepdims)
    value = value if dtype is None else value.astype(dtype, copy=False)  # `dtype` may be unused
    if initial is NoValue:
        return value
    return ufunc(value, np.asarray(initial).astype(value.dtype)[()])  # NumPy's conversion


def finish(
    part: Any, plan: ReductionPlan, ufunc: np.ufunc, mesh: DeviceMesh, out: Out | Array = None
) -> Any:
    """Fold the ranks' contributions, or leave a large result pending; write the result to `out`."""
    layout = plan.layout
    if not layout.shape:
        part = mesh.scalar(part)
    if plan.mesh_dims:
        if out is None and layout.shape and _stays_pending(plan, ufunc):
            fold = RULES[ufunc].fold or Fold.SUM
            pending = {m: Partial(fold) for m in plan.mesh_dims}
            return wrap(part, Layout.from_cuts(layout.cuts, layout.mesh_shape, pending), mesh)
        if mesh.coords is not None:
            part = combine(mesh.subgroup(plan.mesh_dims), as_array(part), ufunc)
    if not layout.shape and not isinstance(part, np.generic):
        part = mesh.scalar(part)
    return wrap(part, layout, mesh) if out is None else write(part, layout, mesh, out)


def _stays_pending(plan: ReductionPlan, ufunc: np.ufunc) -> bool:
    """Return True if a result is large enough to leave its fold pending until it is read."""
    if RULES[ufunc].fold is None:
        return False
    return plan.layout.size * plan.dtype.itemsize >= config.settings.replicate_below


def write(part: Array, layout: Layout, mesh: DeviceMesh, out: Out | Array) -> Any:
    """Wrap the result as a new array, or copy it into `out` with the casting of reductions."""
    if out is None:
        return wrap(part, layout, mesh)
    # As an array: a scalar NaN cannot be cast to an integer, but an array of NaN can.
    result = wrap(mesh.asarray(part), layout, mesh)
    if isinstance(out, DistArray):
        if out.layout.partials:
            out.settle()
        out.assign(result)
    else:
        np.copyto(out, result.full(), casting="unsafe")
    return out
