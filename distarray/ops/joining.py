"""concatenate, stack and their relatives.

The result gets the layout for which the least data has to move
(:func:`~distarray.plan.joining.joined_layout`). Each operand is assigned to its box of the result,
so only elements that change rank are sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import (
    DistArray,
    as_distarray,
    common_mesh,
    implements,
    wrap,
)
from distarray.array.one_rank import Alone
from distarray.array.portable import refuse_read_only
from distarray.array.probes import hollow
from distarray.array.storage import common_order
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.engines.assembling import Part, assemble, fill_parts
from distarray.engines.reshaping import in_line, reshaped
from distarray.layout import Cut, Layout
from distarray.ops.shape import atleast_1d, atleast_2d, atleast_3d, expand_dims, moveaxis
from distarray.typing import Array, ArrayLike, Casting, DType, DTypeLike, Out, Shape

__all__ = ["append", "concatenate", "stack"]


# -- along an existing axis ----------------------------------------------------------------------


@implements(
    np.concatenate,
    at=True,
    alone=Alone(unless=lambda arrays, *_, **__: isinstance(arrays, DistArray)),
)
def concatenate(
    arrays: Sequence[ArrayLike] | DistArray,
    /,
    axis: int | None = 0,
    out: Out = None,
    *,
    dtype: DTypeLike = None,
    casting: Casting = "same_kind",
) -> DistArray:
    """Join the arrays one after another along a dimension.

    Parameters
    ----------
    arrays : sequence of array_like
        DistArrays of any placement; other arrays count as replicated.
    axis : int or None
        The dimension to join along. None flattens all arrays first, in C order.
    out : DistArray, optional
        Receives the result.
    dtype, casting
        As in :func:`numpy.concatenate`.

    Returns
    -------
    DistArray
        If the arrays are not cut along `axis`, it has the layout of the operand for which the
        least data has to move. Otherwise it gets the canonical cut along `axis`.

    Cost
    ----
    Nothing for arrays with equal layouts that are whole along `axis`. Otherwise, for each array,
    one message per pair of ranks with the sender's elements of the receiver's new block; and one
    allreduce for the order in memory, unless an array is known to be in C order.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    if isinstance(arrays, DistArray) and arrays.ndim > 1 and out is None and axis is not None:
        return _merged(arrays, axis, dtype, casting)
    operands = _operands(arrays, out)
    if axis is None:
        operands = [in_line(x) for x in _promoted(arrays, operands)]
        axis = 0
    return _joined(operands, axis, out, dtype, casting)


def _operands(arrays: Sequence[ArrayLike] | DistArray, out: Out = None) -> list[DistArray]:
    if not hasattr(type(arrays), "__getitem__"):
        np.concatenate(arrays)  # raises; a generator is already exhausted here
    mesh = common_mesh(*arrays, out) if not isinstance(arrays, DistArray) else arrays.mesh
    return [as_distarray(x, mesh) for x in arrays]


def _promoted(
    arrays: Sequence[ArrayLike] | DistArray, operands: list[DistArray]
) -> list[DistArray]:
    """Return the operands; Python numbers are cast to the data type that all of them promote to."""
    weak = [type(x) in (int, float, complex) for x in arrays]
    if not any(weak):
        return operands
    pairs = list(zip(arrays, operands, weak, strict=True))
    kind = np.result_type(*[x if number else operand.dtype for x, operand, number in pairs])
    return [operand.astype(kind) if number else operand for _, operand, number in pairs]


def _merged(x: DistArray, axis: int, dtype: DTypeLike, casting: Casting) -> DistArray:
    """Join the subarrays of `x` one after another: a reshape, for any number of them."""
    axis = normalize_axis_index(axis, x.ndim - 1)
    probe = np.concatenate([np.empty((0,), x.dtype)], dtype=dtype, casting=casting)
    shape = list(x.shape[1:])
    shape[axis] *= x.shape[0]
    joined = reshaped(moveaxis(x, 0, axis), tuple(shape), copy=True)
    cast: DistArray = joined.astype(probe.dtype, copy=False)
    return cast


def _joined(
    operands: Sequence[DistArray],
    axis: int,
    out: Out = None,
    dtype: DTypeLike = None,
    casting: Casting = "same_kind",
) -> DistArray:
    layouts = tuple([x.layout for x in operands])
    dtypes = tuple([x.dtype for x in operands])
    if out is not None:
        return _joined_into(out, operands, layouts, dtypes, axis, dtype, casting)
    wanted = None if dtype is None else np.dtype(dtype)
    axis, kind, alike = _fit(layouts, dtypes, axis, wanted, casting, config.replicate_below)
    mesh = common_mesh(*operands)
    operands = _read(operands, kind)
    if alike is None:
        shape, parts = _in_a_row(operands, axis)
        return assemble(shape, kind, parts, mesh, order=_joint_order(operands))
    blocks = [mesh.asarray(x.block) for x in operands]
    return wrap(mesh.xp.concatenate(blocks, axis, dtype=kind, casting=casting), alike, mesh)


def _joint_order(operands: Sequence[DistArray]) -> tuple[int, ...]:
    """Return the dimension order in memory in which NumPy stores the joined arrays.

    A dimension in which all arrays have the extent 1 does not determine its own place. NumPy then
    sorts by insertion (PyArray_CreateMultiSortedStridePerm in its sources).
    """
    order = common_order(operands)
    if order == tuple(range(len(order))):
        return order
    shapes = [x.shape for x in operands]
    found: list[int] = []
    for dim in range(len(order)):
        place = len(found)
        for before, other in reversed(list(enumerate(found))):
            if any(shape[dim] != 1 != shape[other] for shape in shapes):
                if order.index(other) < order.index(dim):
                    break
                place = before
        found.insert(place, dim)
    return tuple(found)


def _read(operands: Sequence[DistArray], dtype: DType) -> Sequence[DistArray]:
    """Return the operands; text is converted to numbers if the result is numeric.

    If one rank's text cannot be converted, all ranks raise.
    """
    if dtype.kind in "SU":
        return operands
    return [x.astype(dtype) if x.dtype.kind in "SU" else x for x in operands]


def _in_a_row(operands: Sequence[DistArray], axis: int) -> tuple[Shape, list[Part]]:
    """Return the shape of the operands one after another, and the parts of the result."""
    shape = list(operands[0].shape)
    parts, position = [], 0
    for x in operands:
        origin = [0] * x.ndim
        origin[axis] = position
        position += x.shape[axis]
        parts.append((tuple(origin), x))
    shape[axis] = position
    return tuple(shape), parts


@lru_cache(maxsize=2048, typed=True)  # NumPy accepts neither a truth value nor 1.0 for 1
def _fit(
    layouts: tuple[Layout, ...],
    dtypes: tuple[DType, ...],
    axis: int,
    dtype: DType | None,
    casting: Casting,
    limit: int,
) -> tuple[int, DType, Layout | None]:
    """Return axis and data type of the result, and its layout if joining blocks suffices.

    `limit` is `config.replicate_below`, on which the layout depends.
    """
    probe = np.concatenate(_probes(layouts, dtypes, axis), axis, dtype=dtype, casting=casting)
    axis %= probe.ndim
    return axis, probe.dtype, _layout_if_alike(layouts, dtypes, axis, probe.dtype, limit)


def _probes(layouts: Sequence[Layout], dtypes: Sequence[DType], axis: int) -> list[Array]:
    """Return arrays like the operands, of length 0 along the axis, to raise NumPy's errors."""
    probes = []
    for layout, dtype in zip(layouts, dtypes, strict=True):
        shape = list(layout.shape)
        if -layout.ndim <= axis < layout.ndim:
            shape[axis] = 0
        probes.append(hollow(shape, dtype))
    return probes


def _layout_if_alike(
    layouts: Sequence[Layout],
    dtypes: Sequence[DType],
    axis: int,
    dtype: DType,
    limit: int,
) -> Layout | None:
    """Return the result's layout if the operands have equal layouts and are whole along the axis.

    Replicated operands are left to :func:`assemble` if only their result is large enough to cut.
    """
    model = layouts[0]
    if model.cuts[axis].mesh_dims or not model.is_plain:
        return None
    for layout in layouts[1:]:
        if layout is not model and layout.placements != model.placements:
            return None
        if any(a != b for d, (a, b) in enumerate(zip(model.cuts, layout.cuts)) if d != axis):
            return None
    result = model.replace(axis, Cut.whole(sum([layout.shape[axis] for layout in layouts])))
    sizes = [x.size * d.itemsize for x, d in zip(layouts, dtypes, strict=True)]
    if result.is_replicated and max(sizes) < limit <= result.size * dtype.itemsize:
        return None
    return result


def _joined_into(
    out: DistArray | Array,
    operands: Sequence[DistArray],
    layouts: tuple[Layout, ...],
    dtypes: tuple[DType, ...],
    axis: int,
    dtype: DTypeLike,
    casting: Casting,
) -> DistArray:
    probes = _probes(layouts, dtypes, axis)
    axis %= np.concatenate(probes, axis, casting="unsafe").ndim
    shape, parts = _in_a_row(operands, axis)
    if tuple(out.shape) != shape:
        raise ValueError("Output array is the wrong shape")
    refuse_read_only(out)
    into = np.empty(probes[0].shape, out.dtype)
    np.concatenate(probes, axis, out=into, dtype=dtype, casting=casting)
    _, parts = _in_a_row(_read(operands, out.dtype), axis)
    written: DistArray = _into(out, shape, parts, common_mesh(*operands, out))
    return written


def _into(out: DistArray | Array, shape: Shape, parts: Sequence[Part], mesh: DeviceMesh) -> Any:
    if not isinstance(out, DistArray):
        np.copyto(out, assemble(shape, out.dtype, parts, mesh).full())
        return out
    if any(np.may_share_memory(out.block, x.block) for _, x in parts):
        # Each rank may decide this by itself: the messages are the same in both branches.
        out.block[...] = assemble(shape, out.dtype, parts, mesh, out.layout).block
    else:
        fill_parts(out, parts)
    return out


# -- along a new axis, or after new axes have been added -----------------------------------------


@implements(np.stack, at=True)
def stack(
    arrays: Sequence[ArrayLike],
    axis: int = 0,
    out: Out = None,
    *,
    dtype: DTypeLike = None,
    casting: Casting = "same_kind",
) -> DistArray:
    """Join the arrays along a new dimension; see :func:`numpy.stack`.

    Parameters and cost are those of :func:`concatenate`; if the arrays have the same layout,
    nothing is sent.
    """
    operands = _operands(arrays, out)
    if not operands:
        raise ValueError("need at least one array to stack")
    if len({x.shape for x in operands}) != 1:
        raise ValueError("all input arrays must have the same shape")
    axis = normalize_axis_index(axis, operands[0].ndim + 1)
    return _joined([expand_dims(x, axis) for x in operands], axis, out, dtype, casting)


@implements(np.vstack, at=True)
def vstack(
    tup: Sequence[ArrayLike], *, dtype: DTypeLike = None, casting: Casting = "same_kind"
) -> DistArray:
    """Stack the arrays along rows, as :func:`numpy.vstack`; costs as :func:`concatenate`."""
    operands = [atleast_2d(x) for x in _operands(tup)]
    return _joined(operands, 0, None, dtype, casting)


@implements(np.hstack, at=True)
def hstack(
    tup: Sequence[ArrayLike], *, dtype: DTypeLike = None, casting: Casting = "same_kind"
) -> DistArray:
    """Stack the arrays along columns, as :func:`numpy.hstack`; costs as :func:`concatenate`."""
    operands = [atleast_1d(x) for x in _operands(tup)]
    axis = 0 if operands and operands[0].ndim == 1 else 1
    return _joined(operands, axis, None, dtype, casting)


@implements(np.dstack, at=True)
def dstack(tup: Sequence[ArrayLike]) -> DistArray:
    """Stack arrays along the third axis, as :func:`numpy.dstack`; costs as :func:`concatenate`."""
    return _joined([atleast_3d(x) for x in _operands(tup)], 2)


@implements(np.column_stack, at=True)
def column_stack(tup: Sequence[ArrayLike]) -> DistArray:
    """Stack the arrays as columns, as :func:`numpy.column_stack`; costs as :func:`concatenate`."""
    operands = [x if x.ndim > 1 else atleast_2d(x).transpose() for x in _operands(tup)]
    return _joined(operands, 1)


@implements(np.append, at=True)
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> DistArray:
    """Append values to the array, as :func:`numpy.append`; costs as :func:`concatenate`."""
    operands = _operands([arr, values])
    if axis is None:
        return _joined([in_line(x) for x in operands], 0)
    return _joined(operands, axis)
