"""Scans: cumsum, cumprod, their nan- versions, and ``ufunc.accumulate``.

Each rank scans its own block. One exclusive scan over the ranks along the axis returns the fold of
all elements before the block (Blelloch, Prefix Sums and Their Applications, CMU-CS-90-190, 1990).
The rank folds this value into its block in place.
"""

import operator
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import (
    DistArray,
    as_distarray,
    common_mesh,
    empty,
    implements,
    movement,
)
from distarray.array.portable import ufunc_method
from distarray.array.probes import hollow, tiny
from distarray.config import config
from distarray.engines import chains, reproducible
from distarray.engines.folds import RULES, exclusive, loop_dtype, neutral
from distarray.engines.reducing import check_target, write
from distarray.engines.reshaping import in_line
from distarray.layout import Cut, Fold, Layout, Partial
from distarray.typing import Array, ArrayLike, Axis, DType, DTypeLike

__all__ = [
    "AxisOfUfunc",
    "accumulate",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "from_front",
    "nancumprod",
    "nancumsum",
    "one_axis",
    "order_matters",
    "without_nan",
]

#: Axis of a ufunc's method: a single axis, as an integer or in a tuple.
AxisOfUfunc: TypeAlias = int | tuple[int, ...] | None

_accumulate: Any = np.ufunc.accumulate  # untyped here: in the stubs its axis is an integer only


def accumulate(
    ufunc: np.ufunc,
    a: ArrayLike,
    axis: AxisOfUfunc = 0,
    dtype: DTypeLike | None = None,
    out: DistArray | tuple[DistArray, ...] | None = None,
) -> Any:
    """Compute ``ufunc.accumulate`` of a distributed array.

    Parameters
    ----------
    ufunc, axis, dtype, out
        As in :meth:`numpy.ufunc.accumulate`.
    a : DistArray or array_like
        A pending sum stays pending through a cumulative sum.

    Returns
    -------
    DistArray
        In the layout of `a`.

    Raises
    ------
    AxisError, TypeError, ValueError
        NumPy's own exceptions, on all ranks.

    Cost
    ----
    Nothing if `axis` is not cut; else one exclusive scan of a slab of extent 1 over the ranks
    along it, about log2(p) rounds. If the order of operations matters, the ranks take turns, and
    one allreduce of an integer makes errors known to all.
    """
    x = a if type(a) is DistArray else as_distarray(a, common_mesh(a, out))
    out = out[0] if isinstance(out, tuple) else out
    dtype, kind, axis = _checked(ufunc, x, axis, dtype, out)
    if out is not None and not x.size:
        return out  # `out` may then have another shape
    if not x.layout.is_plain and not _passes(ufunc, x, kind):
        x = x.plain()
    if order_matters(ufunc, kind):
        block = _in_order(ufunc, x, axis, dtype, kind)
    else:
        block = _scanned(ufunc, x, axis, kind)
    return write(block, x.layout, x.mesh, out)


def _passes(ufunc: np.ufunc, x: DistArray, kind: DType) -> bool:
    """Return True if the scan of a pending sum is the sum of the scans of its contributions."""
    layout = x.layout
    sums = all(layout.placements[m] == Partial(Fold.SUM) for m in layout.partials)
    linear = ufunc is np.add and sums and not layout.ats and kind == x.dtype
    return linear and not config.settings.reproducible


def order_matters(ufunc: np.ufunc, kind: DType) -> bool:
    """Return True if the result depends on the order of operations, which must then be NumPy's."""
    rule = RULES.get(ufunc)
    if rule is None:
        return True
    return rule.rounds and kind.kind in "fc" and config.settings.reproducible


def _checked(
    ufunc: np.ufunc, x: DistArray, axis: AxisOfUfunc, dtype: DTypeLike | None, out: DistArray | None
) -> tuple[DTypeLike | None, DType, int]:
    """Return the data type to ask for, the result's data type, and the axis from the front.

    Raise NumPy's errors about them and about `out`.
    """
    axis = one_axis(axis)
    if out is None:
        kind = _probed(ufunc, x.layout, x.dtype, axis, dtype)  # type: ignore[arg-type]
    else:
        dtype = _checked_out(ufunc, x, axis, dtype, out)
        kind = _accumulate(ufunc, tiny(x.shape, x.dtype), axis, dtype).dtype
    return dtype, kind, from_front(axis, x.ndim)


def _checked_out(
    ufunc: np.ufunc,
    x: DistArray,
    axis: AxisOfUfunc,
    dtype: DTypeLike | None,
    out: DistArray | Array,
) -> DTypeLike | None:
    """Return the data type to compute in for an `out`; raise NumPy's errors about it."""
    check_target(out)
    probe = tiny(x.shape, x.dtype)
    _accumulate(ufunc, probe, axis, dtype, np.zeros(probe.shape, out.dtype))
    if out.shape != x.shape and x.ndim == 1 and (x.size or not out.ndim):
        # NumPy's function is not called: it crashes here if there are no elements.
        raise ValueError("provided out is the wrong size for the accumulation.")
    if out.shape != x.shape:
        _accumulate(ufunc, hollow(x.shape, x.dtype), axis, dtype, np.empty(out.shape, out.dtype))
    return loop_dtype(ufunc, x, out) if dtype is None else dtype


def one_axis(axis: AxisOfUfunc) -> AxisOfUfunc:
    """Return an axis as ufunc methods read it: any value but None and a tuple is an integer."""
    return axis if axis is None or isinstance(axis, tuple) else operator.index(axis)


def from_front(axis: AxisOfUfunc, ndim: int) -> int:
    """Return the axis of a ufunc's method counted from the front; None is the first."""
    axis = axis[0] if isinstance(axis, tuple) else 0 if axis is None else axis
    return normalize_axis_index(axis, ndim)


@lru_cache(maxsize=1024, typed=True)  # NumPy accepts neither a truth value nor 1.0 for 1
def _probed(
    ufunc: np.ufunc, layout: Layout, source: DType, axis: AxisOfUfunc, dtype: DTypeLike | None
) -> DType:
    kind: DType = _accumulate(ufunc, tiny(layout.shape, source), axis, dtype).dtype
    return kind


def _scanned(ufunc: np.ufunc, x: DistArray, axis: int, kind: DType) -> Array:
    """Scan this rank's block by itself, then fold in the fold of all earlier blocks."""
    dtype = None if kind.kind in "mMT" else kind
    block: Array = ufunc_method(ufunc, "accumulate", x.block, axis, dtype)
    mesh, cut = x.mesh, x.layout.cuts[axis]
    if mesh.coords is None or cut.parts == 1:
        return block
    slab = tuple([1 if dim == axis else extent for dim, extent in enumerate(block.shape)])
    start = neutral(ufunc, kind)
    if 0 in slab:
        return block
    if block.shape[axis]:
        total = block[(slice(None),) * axis + (slice(-1, None),)]
    else:
        total = mesh.xp.full(slab, start, kind)
    group = mesh.subgroup(cut.mesh_dims)
    before = exclusive(group, total, ufunc, start, backwards=cut.step < 0)
    if chains.neighbours(cut, mesh.coords)[0] is not None:
        ufunc(before, block, out=block)
    return block


def _in_order(
    ufunc: np.ufunc, x: DistArray, axis: int, dtype: DTypeLike | None, kind: DType
) -> Array:
    """Compute this rank's block of a scan that depends on the order of operations."""
    if ufunc in RULES:
        work = reproducible.in_order_dtype(ufunc, kind)
        return chains.accumulate(ufunc, x, axis, work).astype(kind, copy=False)
    if not chains.mixes(ufunc, x.dtype, dtype):
        return chains.accumulate(ufunc, x, axis, kind)
    layout = chains.whole_along(x.layout, axis)
    block = movement.moved(x.block, x.layout, layout, x.mesh)
    block = ufunc_method(ufunc, "accumulate", block, axis, dtype)
    return movement.moved(block, layout, x.layout, x.mesh)


@implements(np.cumsum, through={Fold.SUM}, small=np.ndarray.cumsum)
def cumsum(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: DistArray | None = None
) -> Any:
    """Compute the running total along an axis; see :func:`numpy.cumsum`.

    Returns
    -------
    DistArray
        In the layout of `a`; 1-d for ``axis=None``.

    Cost
    ----
    See :func:`accumulate`. ``axis=None`` flattens first, which redistributes unless `a` is whole
    or cut along its first dimension.

    Notes
    -----
    Integers agree with NumPy bit for bit. Floats agree up to rounding, and bit for bit under
    ``config.reproducible``, under which the ranks take turns.
    """
    return _cumulated(np.add, a, axis, dtype, out)


@implements(np.cumprod, small=np.ndarray.cumprod)
def cumprod(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: DistArray | None = None
) -> Any:
    """Compute the running product along an axis; see :func:`numpy.cumprod` and :func:`cumsum`.

    Cost
    ----
    The cost of :func:`cumsum`.
    """
    return _cumulated(np.multiply, a, axis, dtype, out)


@implements(np.nancumsum)
def nancumsum(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: DistArray | None = None
) -> Any:
    """Compute the running total with NaN as zero; see :func:`numpy.nancumsum`.

    Cost
    ----
    The cost of :func:`cumsum`.
    """
    return _cumulated(np.add, without_nan(a, 0)[0], axis, dtype, out)


@implements(np.nancumprod)
def nancumprod(
    a: ArrayLike, axis: Axis = None, dtype: DTypeLike | None = None, out: DistArray | None = None
) -> Any:
    """Compute the running product with NaN as one; see :func:`numpy.nancumprod`.

    Cost
    ----
    The cost of :func:`cumsum`.
    """
    return _cumulated(np.multiply, without_nan(a, 1)[0], axis, dtype, out)


def without_nan(a: ArrayLike, value: float) -> tuple[DistArray, Array | None]:
    """Return the operand with NaN replaced, and a mask of this block's NaN; None for integers."""
    x = as_distarray(a)
    if x.dtype.kind not in "fc":
        return x, None
    mask = np.isnan(x.block)
    return x.like(np.where(mask, x.dtype.type(value), x.block)), mask


def _cumulated(
    ufunc: np.ufunc, a: ArrayLike, axis: Axis, dtype: DTypeLike | None, out: DistArray | None
) -> Any:
    x = as_distarray(a)
    if axis is None:
        x, axis = x if x.ndim == 1 else in_line(x), 0
        if out is not None and out.shape != x.shape and x.size:
            raise ValueError("provided out is the wrong size for the accumulation.")
    elif not x.ndim:
        np.cumsum(np.zeros(()), axis)  # raises NumPy's exception
        x, axis = x[..., None], 0
    else:
        axis = normalize_axis_index(operator.index(axis), x.ndim)
    return accumulate(ufunc, x, axis, dtype, out)


@implements(np.cumulative_sum, through={Fold.SUM})
def cumulative_sum(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    include_initial: bool = False,
) -> Any:
    """Compute the running total along an axis; see :func:`numpy.cumulative_sum`.

    Cost
    ----
    The cost of :func:`cumsum`; with `include_initial` also one row per pair of neighbouring ranks,
    since every block moves by one index.
    """
    return _cumulative(np.add, x, axis, dtype, out, include_initial)


@implements(np.cumulative_prod)
def cumulative_prod(
    x: ArrayLike,
    /,
    *,
    axis: Axis = None,
    dtype: DTypeLike | None = None,
    out: DistArray | None = None,
    include_initial: bool = False,
) -> Any:
    """Compute the running product along an axis; see :func:`numpy.cumulative_prod`.

    Cost
    ----
    The cost of :func:`cumulative_sum`.
    """
    return _cumulative(np.multiply, x, axis, dtype, out, include_initial)


def _cumulative(
    ufunc: np.ufunc,
    a: ArrayLike,
    axis: Axis,
    dtype: DTypeLike | None,
    out: DistArray | None,
    include_initial: bool,
) -> Any:
    x = as_distarray(a)
    if not x.ndim:
        x = x[..., None]
    if axis is None:
        if x.ndim >= 2:
            raise ValueError(
                "For arrays which have more than one dimension ``axis`` argument is required."
            )
        axis = 0
    if not include_initial:
        return accumulate(ufunc, x, axis, dtype, out)
    axis = normalize_axis_index(operator.index(axis), x.ndim)
    before = (slice(None),) * axis
    first, rest = (*before, slice(0, 1)), (*before, slice(1, None))
    if out is None:
        scanned = accumulate(ufunc, x, axis, dtype)
        out = empty(_longer(scanned.layout, axis), scanned.dtype, scanned.mesh)
        out[rest] = scanned
    else:
        accumulate(ufunc, x, axis, dtype, out[rest])
    out[first] = ufunc.identity
    return out


def _longer(layout: Layout, axis: int) -> Layout:
    """Return the layout with one index more along an axis."""
    cut = layout.cuts[axis]
    longer = Cut.chunked(cut.extent + 1, cut.mesh_dims, cut.radix)
    return layout.settled().replace(axis, longer)
