"""Indices of the largest and smallest elements: argmax, argmin, nanargmax, nanargmin.

Each rank sends only the pair (value, index) of its own best element. Among equal best values
the lowest index wins, since NumPy returns the first occurrence in C order. NaN wins over all.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, Objects, as_distarray, implements, movement, wrap
from distarray.array.portable import contiguous
from distarray.array.probes import tiny
from distarray.comm import devices
from distarray.engines.folds import fold_with
from distarray.engines.reducing import NoValue, write
from distarray.layout import Layout
from distarray.ops.scans import without_nan
from distarray.plan import ReductionPlan, plan_reduction
from distarray.typing import Array, ArrayLike, Axis, Out

__all__ = ["argmax", "argmin", "nanargmax", "nanargmin"]

_INDEX = np.dtype(np.int64)
_NOWHERE = np.iinfo(_INDEX).max


@implements(np.argmax, objects=Objects.GATHER, small=np.ndarray.argmax)
def argmax(a: ArrayLike, axis: Axis = None, out: Out = None, *, keepdims: bool = NoValue) -> Any:
    """Find the first largest element, along an axis or in C order; see :func:`numpy.argmax`.

    Returns
    -------
    DistArray
        Other dimensions are cut as in `a`; for ``axis=None`` a scalar on every rank.

    Cost
    ----
    Nothing if `axis` is not cut; else one pair (value, index) for each element of the result: an
    allgather for a small result; an exchange of sections and a gather of the winners for a large
    one.
    """
    return _search(np.argmax, a, axis, out, keepdims)


@implements(np.argmin, objects=Objects.GATHER, small=np.ndarray.argmin)
def argmin(a: ArrayLike, axis: Axis = None, out: Out = None, *, keepdims: bool = NoValue) -> Any:
    """Find the first smallest element; see :func:`numpy.argmin` and :func:`argmax`.

    Cost
    ----
    The cost of :func:`argmax`.
    """
    return _search(np.argmin, a, axis, out, keepdims)


@implements(np.nanargmax, objects=Objects.GATHER)
def nanargmax(a: ArrayLike, axis: Axis = None, out: Out = None, *, keepdims: bool = NoValue) -> Any:
    """Find the first largest element that is not NaN; see :func:`numpy.nanargmax`.

    Raises
    ------
    ValueError
        On all ranks, if all elements of a slice are NaN.

    Cost
    ----
    The cost of :func:`argmax`, and of :func:`numpy.all` for the NaN.
    """
    x = _without_nan(a, -np.inf, axis)
    return _search(np.argmax, x, axis, out, keepdims)


@implements(np.nanargmin, objects=Objects.GATHER)
def nanargmin(a: ArrayLike, axis: Axis = None, out: Out = None, *, keepdims: bool = NoValue) -> Any:
    """Find the first smallest element that is not NaN; see :func:`nanargmax`.

    Cost
    ----
    The cost of :func:`nanargmax`.
    """
    x = _without_nan(a, np.inf, axis)
    return _search(np.argmin, x, axis, out, keepdims)


def _without_nan(a: ArrayLike, value: float, axis: Axis) -> DistArray:
    x, mask = without_nan(a, value)
    empty = mask is not None and x.size and bool(np.all(x.like(mask), axis=axis).any())
    if empty and x.mesh.coords is not None:
        raise ValueError("All-NaN slice encountered")
    return x


def _search(
    function: Callable[..., Any], a: ArrayLike, axis: Axis, out: Out, keepdims: bool
) -> Any:
    x = as_distarray(a)
    keepdims = keepdims is not NoValue and bool(keepdims)
    axis = None if axis is None else operator.index(axis)
    axis, plan = _planned(function, x.layout, x.dtype, axis, keepdims)
    if out is not None:
        _check_out(function, plan, out)
    mesh = x.mesh
    if out is None and not plan.mesh_dims and x.block.size and mesh.coords is not None:
        found = _first(function, x.block, axis, keepdims)  # every slice is on one rank
        return wrap(found if plan.layout.shape else mesh.scalar(found), plan.layout, mesh)
    shape = plan.layout.local_shape(mesh.coords)
    if mesh.coords is None:
        part = mesh.xp.zeros(shape, _INDEX)
    else:
        value, part = _local(function, x, plan, axis)
        if plan.mesh_dims:
            pick = partial(_pick, function, x.dtype)
            part = fold_with(mesh.subgroup(plan.mesh_dims), _records(value, part), pick)
        part = part.reshape(shape)
    return write(part if part.ndim else mesh.scalar(part), plan.layout, mesh, out)


@lru_cache(maxsize=1024, typed=True)  # NumPy accepts neither a truth value nor 1.0 for 1
def _planned(
    function: Callable[..., Any],
    layout: Layout,
    dtype: np.dtype[Any],
    axis: int | None,
    keepdims: bool,
) -> tuple[int | None, ReductionPlan]:
    """Return the axis counted from the front, and the plan of the result; raise NumPy's errors."""
    function(tiny(layout.shape, dtype), axis=axis)
    axis = None if axis is None or not layout.ndim else normalize_axis_index(axis, layout.ndim)
    return axis, plan_reduction(layout, axis, keepdims, _INDEX)


def _check_out(function: Callable[..., Any], plan: ReductionPlan, out: DistArray) -> None:
    """Raise NumPy's exception for an `out` of a wrong shape or kind."""
    if tuple(out.shape) != plan.layout.shape:
        raise ValueError(f"output array does not match result of np.{function.__name__}.")
    function(np.zeros((1, 1)), axis=0, out=np.zeros(1, out.dtype))


def _local(
    function: Callable[..., Any], x: DistArray, plan: ReductionPlan, axis: int | None
) -> tuple[Array, Array]:
    """Return the block's winners and their global indices, with all reduced dimensions kept."""
    block, layout, mesh = x.block, x.layout, x.mesh
    shape = [1 if dim in plan.axes else extent for dim, extent in enumerate(block.shape)]
    starts = movement.starts(layout, mesh)
    if not block.size:
        return mesh.xp.zeros(shape, x.dtype), mesh.xp.full(shape, _NOWHERE, _INDEX)
    if axis is None or not x.ndim:
        at = np.unravel_index(int(_first(function, block)), block.shape)
        value = block[tuple([slice(i, i + 1) for i in at])]
        index = 0
        for i, start, extent in zip(at, starts, layout.shape, strict=True):
            index = index * extent + int(i) + start
        return value.reshape(shape), mesh.xp.full(shape, index, _INDEX)
    index = _first(function, block, axis, True)
    value = np.take_along_axis(block, index, axis) if plan.mesh_dims else index
    return value, index + starts[axis]


def _first(
    function: Callable[..., Any], block: Array, axis: int | None = None, keepdims: bool = False
) -> Any:
    """Apply the function to a block; of several NaN, CuPy's takes any, NumPy's the first."""
    found = function(block, axis, keepdims=keepdims)
    if not devices.on_device(block) or block.dtype.kind not in "fc":
        return found
    is_nan = np.isnan(block)
    first = np.argmax(is_nan, axis, keepdims=keepdims)
    return np.where(np.any(is_nan, axis, keepdims=keepdims), first, found)


def _records(value: Array, index: Array) -> Array:
    """Pack pairs (value, index) as rows of bytes, one row per element."""
    count, width = index.size, value.dtype.itemsize
    rows = np.empty((count, width + _INDEX.itemsize), np.uint8, like=index)
    rows[:, :width] = contiguous(value).reshape(count, 1).view(np.uint8)
    rows[:, width:] = contiguous(index).reshape(count, 1).view(np.uint8)
    return rows


def _pick(function: Callable[..., Any], dtype: np.dtype[Any], rows: Array) -> Array:
    """Return the index of the best of the ranks' records; of equal values, the lowest index."""
    width = dtype.itemsize
    value = contiguous(rows[..., :width]).view(dtype)[..., 0]
    index = contiguous(rows[..., width:]).view(_INDEX)[..., 0]
    order = np.argsort(index, axis=0, kind="stable")
    columns = np.arange(index.shape[1], like=index)
    index, value = index[order, columns], value[order, columns]
    # A rank without elements sorts last. It gets the value of the first record, which wins a tie.
    value = np.where(index == _NOWHERE, value[:1], value)
    best = _first(function, value, 0)
    picked: Array = index[best, columns]
    return picked
