"""Scans: cumsum, cumprod, their nan- versions, and ``ufunc.accumulate``.

Each rank scans its own block; the fold of all that lies before it then comes by one exclusive
scan over the ranks along the axis (Blelloch, Prefix Sums and Their Applications, CMU-CS-90-190,
1990), and is folded into the block in place.
"""

import operator
from functools import lru_cache
from typing import Any

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
from distarray.config import config
from distarray.engines import chains, reproducible
from distarray.engines.folds import RULES, Ufunc, exclusive, neutral
from distarray.engines.reducing import check_target, loop_dtype, write
from distarray.engines.reshaping import in_line
from distarray.layout import Cut, Fold, Layout
from distarray.typing import Array

__all__ = [
    "accumulate",
    "cumprod",
    "cumsum",
    "cumulative_prod",
    "cumulative_sum",
    "nancumprod",
    "nancumsum",
]


def accumulate(ufunc: Ufunc, a: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
    """``ufunc.accumulate`` of a distributed array.

    Parameters
    ----------
    ufunc, axis, dtype, out
        As in :meth:`numpy.ufunc.accumulate`.
    a : DistArray or array_like
        Pending sums pass through cumulative sums.

    Returns
    -------
    DistArray
        Laid out as `a`.

    Raises
    ------
    AxisError, TypeError, ValueError
        NumPy's own, on all ranks.

    Cost
    ----
    Nothing if `axis` is not cut; else one exclusive scan of a slab of extent 1 over the ranks
    along it, about log2(p) rounds. Ufuncs whose order matters: the ranks take turns, and agree on
    errors by one allreduce of an integer.
    """
    x: DistArray = a if type(a) is DistArray else as_distarray(a, common_mesh(a, out))
    if type(axis) is not int and axis is not None and type(axis) is not tuple:
        axis = operator.index(axis)
    out = out[0] if type(out) is tuple else out
    dtype, kind, axis = _checked(ufunc, x, axis, dtype, out)
    if out is not None and not x.size:
        return out  # which may then have another shape
    if not x.layout.is_plain and not _passes(ufunc, x, kind):
        x = x.plain()
    rule = RULES.get(ufunc)
    if rule is None or (rule.rounds and kind.kind in "fc" and config.settings.reproducible):
        block = _in_order(ufunc, x, axis, dtype, kind)
    else:
        block = _scanned(ufunc, x, axis, kind)
    return write(block, x.layout, x.mesh, out)


def _passes(ufunc: Ufunc, x: DistArray, kind: np.dtype[Any]) -> bool:
    layout = x.layout
    sums = all(layout.placements[m].op is Fold.SUM for m in layout.partials)  # type: ignore[attr-defined]
    linear = ufunc is np.add and sums and not layout.ats and kind == x.dtype
    return linear and not config.settings.reproducible


def _checked(
    ufunc: Ufunc, x: DistArray, axis: Any, dtype: Any, out: Any
) -> tuple[Any, np.dtype[Any], int]:
    """The data types to ask for and of the result, and the axis counted from the front.

    Raises NumPy's errors about them and about an `out`.
    """
    if out is None:
        kind = _probed(ufunc, x.layout, x.dtype, axis, dtype)
    else:
        check_target(out)
        tiny = np.zeros([min(extent, 1) for extent in x.shape], x.dtype)
        ufunc.accumulate(tiny, axis, dtype, np.zeros(tiny.shape, out.dtype))
        if out.shape != x.shape and x.ndim == 1 and (x.size or not out.ndim):
            # Not asked of NumPy, which dies of it where there are no elements.
            raise ValueError("provided out is the wrong size for the accumulation.")
        if out.shape != x.shape:
            hollow = np.lib.stride_tricks.as_strided(np.zeros(1, x.dtype), x.shape, (0,) * x.ndim)
            ufunc.accumulate(hollow, axis, dtype, np.empty(out.shape, out.dtype))
        dtype = loop_dtype(ufunc, x, out) if dtype is None else dtype
        kind = ufunc.accumulate(tiny, axis, dtype).dtype
    axis = axis[0] if type(axis) is tuple else 0 if axis is None else axis
    return dtype, kind, normalize_axis_index(axis, x.ndim)


@lru_cache(maxsize=1024)
def _probed(
    ufunc: Ufunc, layout: Layout, source: np.dtype[Any], axis: Any, dtype: Any
) -> np.dtype[Any]:
    tiny = np.zeros([min(extent, 1) for extent in layout.shape], source)
    kind: np.dtype[Any] = ufunc.accumulate(tiny, axis, dtype).dtype
    return kind


def _scanned(ufunc: Ufunc, x: DistArray, axis: int, kind: np.dtype[Any]) -> Array:
    """This rank's part scanned by itself, then what lies before it folded in."""
    dtype = None if kind.kind in "mM" else kind
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


def _in_order(ufunc: Ufunc, x: DistArray, axis: int, dtype: Any, kind: Any) -> Array:
    """This rank's part of a scan whose order of operations counts."""
    if ufunc in RULES:
        work = reproducible.in_order_dtype(ufunc, kind)
        return chains.accumulate(ufunc, x, axis, work).astype(kind, copy=False)
    if not chains.mixes(ufunc, x.dtype, dtype):
        return chains.accumulate(ufunc, x, axis, kind)
    layout = chains.whole_along(x.layout, axis)
    block = movement.moved(x.block, x.layout, layout, x.mesh)
    block = ufunc_method(ufunc, "accumulate", block, axis, dtype)
    return movement.moved(block, layout, x.layout, x.mesh)


def _flat(a: Any) -> Any:
    """The operand in one dimension, in C order."""
    x = as_distarray(a)
    return x if x.ndim == 1 else in_line(x)


@implements(np.cumsum, through={Fold.SUM})
def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running total along an axis; see :func:`numpy.cumsum`.

    Returns
    -------
    DistArray
        Laid out as `a`; for ``axis=None`` in one dimension.

    Cost
    ----
    See :func:`accumulate`. ``axis=None`` flattens first, which redistributes unless `a` is whole
    or cut along its first dimension.

    Notes
    -----
    Integers agree with NumPy bit for bit; floats agree to rounding, and bit for bit under
    ``config.reproducible``, when the ranks take turns.
    """
    return _cumulated(np.add, a, axis, dtype, out)


@implements(np.cumprod)
def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running product along an axis; see :func:`numpy.cumprod` and :func:`cumsum`.

    Cost
    ----
    As :func:`cumsum`.
    """
    return _cumulated(np.multiply, a, axis, dtype, out)


@implements(np.nancumsum)
def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running total with NaN as zero; see :func:`numpy.nancumsum`.

    Cost
    ----
    As :func:`cumsum`.
    """
    return _cumulated(np.add, without_nan(a, 0)[0], axis, dtype, out)


@implements(np.nancumprod)
def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running product with NaN as one; see :func:`numpy.nancumprod`.

    Cost
    ----
    As :func:`cumsum`.
    """
    return _cumulated(np.multiply, without_nan(a, 1)[0], axis, dtype, out)


def without_nan(a: Any, value: Any) -> tuple[DistArray, Array | None]:
    """The operand with NaN replaced, and where this rank's block had any; None for integers."""
    x = as_distarray(a)
    if x.dtype.kind not in "fc":
        return x, None
    mask = np.isnan(x.block)
    return x.like(np.where(mask, x.dtype.type(value), x.block)), mask


def _cumulated(ufunc: Ufunc, a: Any, axis: Any, dtype: Any, out: Any) -> Any:
    x = as_distarray(a)
    if axis is None:
        x, axis = _flat(x), 0
        if out is not None and out.shape != x.shape and x.size:
            raise ValueError("provided out is the wrong size for the accumulation.")
    elif not x.ndim:
        np.cumsum(np.zeros(()), axis)  # raises what NumPy raises
        x, axis = x[..., None], 0
    else:
        axis = operator.index(axis)
    return accumulate(ufunc, x, axis, dtype, out)


@implements(np.cumulative_sum, through={Fold.SUM})
def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: Any = False
) -> Any:
    """Running total along an axis; see :func:`numpy.cumulative_sum`.

    Cost
    ----
    As :func:`cumsum`; with `include_initial` also one row a pair of neighbouring ranks, since
    every block moves by one index.
    """
    return _cumulative(np.add, x, axis, dtype, out, include_initial)


@implements(np.cumulative_prod)
def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: Any = False
) -> Any:
    """Running product along an axis; see :func:`numpy.cumulative_prod`.

    Cost
    ----
    As :func:`cumulative_sum`.
    """
    return _cumulative(np.multiply, x, axis, dtype, out, include_initial)


def _cumulative(ufunc: Ufunc, a: Any, axis: Any, dtype: Any, out: Any, include_initial: Any) -> Any:
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
    rest, first = [slice(None)] * x.ndim, [slice(None)] * x.ndim
    rest[axis], first[axis] = slice(1, None), slice(0, 1)
    if out is None:
        scanned = accumulate(ufunc, x, axis, dtype)
        out = empty(_longer(scanned.layout, axis), scanned.dtype, scanned.mesh)
        out[tuple(rest)] = scanned
    else:
        accumulate(ufunc, x, axis, dtype, out[tuple(rest)])
    out[tuple(first)] = ufunc.identity
    return out


def _longer(layout: Layout, axis: int) -> Layout:
    """The layout with one index more along an axis."""
    cuts = list(layout.cuts)
    cut = cuts[axis]
    cuts[axis] = Cut.chunked(cut.extent + 1, cut.mesh_dims, cut.radix)
    return Layout.from_cuts(cuts, layout.mesh_shape)
