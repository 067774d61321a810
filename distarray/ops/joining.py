"""Putting arrays together: concatenate and its relatives.

The result is laid out where that moves least (:func:`~distarray.plan.joining.joined_layout`), and
each operand is assigned to its box of it, so that only what changes rank is sent.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import (
    DistArray,
    as_distarray,
    common_mesh,
    default_layout,
    empty,
    implements,
    movement,
    wrap,
)
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Layout
from distarray.ops.reshape import ravel, reshaped
from distarray.ops.shape import atleast_1d, atleast_2d, atleast_3d, expand_dims, moveaxis
from distarray.plan.joining import joined_layout

__all__ = ["Part", "append", "assemble", "concatenate", "fill_parts", "stack"]

#: An operand and the index of its first element in the result.
Part = tuple[tuple[int, ...], DistArray]


def assemble(
    shape: tuple[int, ...],
    dtype: Any,
    parts: Sequence[Part],
    mesh: DeviceMesh,
    layout: Layout | None = None,
) -> DistArray:
    """An array that consists of parts.

    Parameters
    ----------
    shape, dtype
        Of the result.
    parts : sequence of (origin, DistArray)
        Boxes that cover the result, or as much of it as is wanted; no pending folds.
    mesh : DeviceMesh
        The one that they are on.
    layout : Layout, optional
        Of the result; the one for which least is moved if not given, and a default layout if all
        parts are replicated.

    Returns
    -------
    DistArray

    Cost
    ----
    For each part one message a pair of ranks at most, with what the receiver lacks.
    """
    if layout is None:
        layout = joined_layout(shape, tuple([(x._layout, origin) for origin, x in parts]))
    if layout is None:
        layout = placed_by_size(shape, dtype, [x for _, x in parts], mesh)
    result = empty(layout, dtype, mesh)
    fill_parts(result, parts)
    return result


def placed_by_size(
    shape: Sequence[int], dtype: Any, operands: Sequence[DistArray], mesh: DeviceMesh
) -> Layout:
    """Where a result of replicated operands goes: replicated too, unless it alone is large."""
    layout = default_layout(tuple(shape), np.dtype(dtype).itemsize, mesh)
    if any(x.nbytes >= config.replicate_below for x in operands):
        return Layout.replicated(tuple(shape), mesh.shape)
    return layout


def fill_parts(result: DistArray, parts: Sequence[Part]) -> None:
    """Assign each part to its box of an array."""
    for origin, part in parts:
        if part.size:
            entries = [(a, 1, n) for a, n in zip(origin, part.shape, strict=True)]
            box = result._view(tuple(entries))
            block = part.to_local()
            movement.assign(box._block, box._layout, block, part._layout, result._mesh)


# -- along an axis that exists -------------------------------------------------------------------


@implements(np.concatenate, at=True)
def concatenate(
    arrays: Any,
    /,
    axis: int | None = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: Any = "same_kind",
) -> DistArray:
    """The arrays one after another along a dimension.

    Parameters
    ----------
    arrays : sequence of array_like
        DistArrays of any placement, and what NumPy takes, which counts as replicated.
    axis : int or None
        The dimension to join along. None flattens all arrays first, in C order.
    out : DistArray, optional
        Receives the result.
    dtype, casting
        As in :func:`numpy.concatenate`.

    Returns
    -------
    DistArray
        Where the arrays are not cut along `axis`, it is laid out as the operand for which least
        has to move. Otherwise it gets the canonical cut along `axis`.

    Cost
    ----
    Nothing for arrays laid out alike that are whole along `axis`. Otherwise, for each array, each
    rank sends what it holds of another's new block: one message a pair of ranks.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    if isinstance(arrays, DistArray) and arrays.ndim > 1 and out is None and axis is not None:
        return _merged(arrays, axis, dtype, casting)
    operands = _operands(arrays)
    if axis is None:
        operands = [ravel(x) for x in operands]
        axis = 0
    return _joined(operands, axis, out, dtype, casting)


def _operands(arrays: Any) -> list[DistArray]:
    mesh = common_mesh(*arrays) if not isinstance(arrays, DistArray) else arrays._mesh
    return [as_distarray(x, mesh) for x in arrays]


def _merged(x: DistArray, axis: int, dtype: Any, casting: Any) -> DistArray:
    """The subarrays of `x` one after another: a reshape, however many they are."""
    axis = normalize_axis_index(axis, x.ndim - 1)
    probe = np.concatenate([np.empty((0,), x.dtype)], dtype=dtype, casting=casting)
    shape = list(x.shape[1:])
    shape[axis] *= x.shape[0]
    joined = reshaped(moveaxis(x, 0, axis), tuple(shape), copy=True)
    cast: DistArray = joined.astype(probe.dtype, copy=False)
    return cast


def _joined(
    operands: Sequence[DistArray], axis: int, out: Any, dtype: Any, casting: Any
) -> DistArray:
    probe, axis = _probe(operands, axis, out, dtype, casting)
    mesh = common_mesh(*operands, out)
    if out is None:
        model = _common_model(operands, axis)
        if model is not None:
            blocks = [x._block for x in operands]
            block = mesh.xp.concatenate(blocks, axis, dtype=probe.dtype, casting=casting)
            cuts = list(model.cuts)
            cuts[axis] = type(cuts[axis]).whole(sum([x.shape[axis] for x in operands]))
            return wrap(block, model.with_cuts(cuts), mesh)
    shape = list(operands[0].shape)
    shape[axis] = sum([x.shape[axis] for x in operands])
    parts, position = [], 0
    for x in operands:
        origin = [0] * x.ndim
        origin[axis] = position
        position += x.shape[axis]
        parts.append((tuple(origin), x))
    if out is None:
        return assemble(tuple(shape), probe.dtype, parts, mesh)
    written: DistArray = _into(out, tuple(shape), parts, mesh)
    return written


def _probe(
    operands: Sequence[DistArray], axis: int, out: Any, dtype: Any, casting: Any
) -> tuple[np.ndarray[Any, Any], int]:
    """NumPy's result for arrays alike but of length 0 along the axis: its dtype, its errors."""
    probes = []
    for x in operands:
        shape = list(x.shape)
        if shape and -x.ndim <= axis < x.ndim:
            shape[axis] = 0
        probes.append(np.empty(shape, x.dtype) if 0 in shape or not shape else _flat(shape, x))
    shape = list(probes[0].shape) if probes else []
    if out is None:
        probe = np.concatenate(probes, axis, dtype=dtype, casting=casting)
        return probe, axis % probe.ndim
    axis %= np.concatenate(probes, axis, casting="unsafe").ndim
    wanted = list(operands[0].shape)
    wanted[axis] = sum([x.shape[axis] for x in operands])
    if list(out.shape) != wanted:
        raise ValueError("Output array is the wrong shape")
    into = np.empty(shape, out.dtype)
    return np.concatenate(probes, axis, out=into, dtype=dtype, casting=casting), axis


def _flat(shape: Sequence[int], x: DistArray) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.empty((), x.dtype), tuple(shape))


def _common_model(operands: Sequence[DistArray], axis: int) -> Layout | None:
    """The layout of operands that lie alike and whole along the axis, so that blocks are joined.

    Replicated ones are left to :func:`assemble` if their result alone is large enough to divide.
    """
    model = operands[0]._layout
    if model.cuts[axis].mesh_dims or not model.is_plain:
        return None
    if model.is_replicated:
        shape = list(model.shape)
        shape[axis] = sum([x.shape[axis] for x in operands])
        dtype = max([x.dtype for x in operands], key=lambda d: d.itemsize)
        if not placed_by_size(shape, dtype, operands, operands[0]._mesh).is_replicated:
            return None
    outer = model.without_cut((axis,)).cuts
    for x in operands[1:]:
        layout = x._layout
        if layout is not model and (
            not layout.is_plain
            or layout.placements != model.placements
            or any(a != b for d, (a, b) in enumerate(zip(outer, layout.cuts)) if d != axis)
        ):
            return None
    return model


def _into(out: Any, shape: tuple[int, ...], parts: Sequence[Part], mesh: DeviceMesh) -> Any:
    if not isinstance(out, DistArray):
        np.copyto(out, assemble(shape, out.dtype, parts, mesh).full())
        return out
    if any(np.may_share_memory(out._block, x._block) for _, x in parts):
        # Each rank decides this for itself: the messages are the same either way.
        out._block[...] = assemble(shape, out.dtype, parts, mesh, out._layout)._block
    else:
        fill_parts(out, parts)
    return out


# -- along a new axis, or as many as it takes ----------------------------------------------------


@implements(np.stack, at=True)
def stack(
    arrays: Any,
    axis: int = 0,
    out: Any = None,
    *,
    dtype: Any = None,
    casting: Any = "same_kind",
) -> DistArray:
    """The arrays side by side along a new dimension. See :func:`numpy.stack`.

    Parameters and cost are those of :func:`concatenate`; where the arrays are laid out alike,
    nothing is sent.
    """
    operands = _operands(arrays)
    if not operands:
        raise ValueError("need at least one array to stack")
    if len({x.shape for x in operands}) != 1:
        raise ValueError("all input arrays must have the same shape")
    axis = normalize_axis_index(axis, operands[0].ndim + 1)
    return _joined([expand_dims(x, axis) for x in operands], axis, out, dtype, casting)


@implements(np.vstack, at=True)
def vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> DistArray:
    """The arrays below one another. See :func:`numpy.vstack`; costs as :func:`concatenate`."""
    operands = [atleast_2d(x) for x in _operands(tup)]
    return _joined(operands, 0, None, dtype, casting)


@implements(np.hstack, at=True)
def hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> DistArray:
    """The arrays beside one another. See :func:`numpy.hstack`; costs as :func:`concatenate`."""
    operands = [atleast_1d(x) for x in _operands(tup)]
    axis = 0 if operands and operands[0].ndim == 1 else 1
    return _joined(operands, axis, None, dtype, casting)


@implements(np.dstack, at=True)
def dstack(tup: Any) -> DistArray:
    """The arrays behind one another. See :func:`numpy.dstack`; costs as :func:`concatenate`."""
    return _joined([atleast_3d(x) for x in _operands(tup)], 2, None, None, "same_kind")


@implements(np.column_stack, at=True)
def column_stack(tup: Any) -> DistArray:
    """The arrays as columns. See :func:`numpy.column_stack`; costs as :func:`concatenate`."""
    operands = [x if x.ndim > 1 else atleast_2d(x).transpose() for x in _operands(tup)]
    return _joined(operands, 1, None, None, "same_kind")


@implements(np.append, at=True)
def append(arr: Any, values: Any, axis: int | None = None) -> DistArray:
    """The array with values after it. See :func:`numpy.append`; costs as :func:`concatenate`."""
    arr, values = _operands([arr, values])
    if axis is None:
        arr, values = ravel(arr), ravel(values)
        axis = 0
    return _joined([arr, values], axis, None, None, "same_kind")


# -- nested lists --------------------------------------------------------------------------------


@implements(np.block, at=True)
def block(arrays: Any) -> DistArray:
    """An array put together from nested lists of blocks. See :func:`numpy.block`.

    Cost
    ----
    As :func:`concatenate`, in one step for all blocks: each is written to its place once.
    """
    depth = _depth(arrays, "arrays")
    leaves = list(_leaves(arrays))
    mesh = common_mesh(*leaves)
    operands = [as_distarray(x, mesh) for x in leaves]
    ndim = max([depth, *[x.ndim for x in operands]])
    lifted = iter([x._view((None,) * (ndim - x.ndim) + _whole(x)) for x in operands])
    shape, parts = _arranged(arrays, ndim - depth, ndim, lifted)
    return assemble(shape, np.result_type(*[x.dtype for x in operands]), parts, mesh)


def _whole(x: DistArray) -> tuple[tuple[int, int, int], ...]:
    return tuple([(0, 1, extent) for extent in x.shape])


def _depth(arrays: Any, name: str) -> int:
    """How deep the lists are nested, which must be the same everywhere."""
    if type(arrays) is tuple:
        raise TypeError(
            f"{name} is a tuple. Only lists can be used to arrange blocks, and np.block does not "
            "allow implicit conversion from tuple to ndarray."
        )
    if type(arrays) is not list:
        return 0
    if not arrays:
        raise ValueError(f"List at {name} cannot be empty")
    depths = [_depth(entry, f"{name}[{place}]") for place, entry in enumerate(arrays)]
    for place, depth in enumerate(depths):
        if depth != depths[0]:
            raise ValueError(
                f"List depths are mismatched. First element was at depth {depths[0] + 1}, but "
                f"there is an element at depth {depth + 1} ({name}[{place}])"
            )
    return depths[0] + 1


def _leaves(arrays: Any) -> Any:
    if type(arrays) is list:
        for entry in arrays:
            yield from _leaves(entry)
    else:
        yield arrays


def _arranged(arrays: Any, axis: int, ndim: int, leaves: Any) -> tuple[tuple[int, ...], list[Part]]:
    """Shape of a nested list, and where in it each leaf goes; `axis` is that of this level."""
    if type(arrays) is not list:
        leaf = next(leaves)
        return leaf.shape, [((0,) * ndim, leaf)]
    shapes, parts, position = [], [], 0
    for entry in arrays:
        shape, found = _arranged(entry, axis + 1, ndim, leaves)
        for origin, leaf in found:
            parts.append((origin[:axis] + (origin[axis] + position,) + origin[axis + 1 :], leaf))
        position += shape[axis]
        shapes.append(shape)
    outer = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
    if len(outer) > 1:
        raise ValueError(f"Mismatched array shapes in block along axis {axis}.")
    return shapes[0][:axis] + (position,) + shapes[0][axis + 1 :], parts
