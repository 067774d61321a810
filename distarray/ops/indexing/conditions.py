"""compress, extract, place and putmask: read and write the elements that a condition selects."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import (
    DistArray,
    as_distarray,
    common_mesh,
    from_section,
    implements,
    to_layout,
    wrap,
)
from distarray.array.base import is_number
from distarray.array.one_rank import Alone
from distarray.array.portable import in_c_order, refuse_read_only
from distarray.array.probes import as_axis, check_cast
from distarray.comm import DeviceMesh
from distarray.engines.indexing import masks
from distarray.engines.indexing.packing import Packing
from distarray.engines.indexing.values import as_values, check_array, is_scalar, plain
from distarray.engines.reshaping import in_line, refitted
from distarray.layout import Layout
from distarray.ops.indexing.nonzeros import flatnonzero
from distarray.ops.indexing.take import finished, take
from distarray.ops.indexing.where import copyto
from distarray.typing import Array, ArrayLike, Out

__all__ = ["compress", "extract", "place", "putmask"]


def _as_mask(condition: ArrayLike, mesh: DeviceMesh) -> Any:
    mask = as_distarray(condition, mesh)
    return mask if mask.dtype == bool else mask.astype(bool)


@implements(np.compress, computes=False, alone=Alone(by_size=True))
def compress(condition: ArrayLike, a: ArrayLike, axis: int | None = None, out: Out = None) -> Any:
    """Select the slices along an axis for which a 1-d condition holds.

    Parameters
    ----------
    condition : array_like or DistArray of bool
        May be shorter than the axis.
    a : DistArray or array_like
        The array.
    axis : int, optional
        None: the flattened array.
    out : DistArray or ndarray, optional
        Receives the result.

    Returns
    -------
    DistArray
        Every slice stays on its rank.

    Cost
    ----
    The condition is redistributed to the cut of the axis; one allgather of a number. With
    ``axis=None`` and an array of several dimensions, the cost of :func:`numpy.take`.
    """
    mesh = common_mesh(condition, a, out)
    axis = axis if axis is None else as_axis(axis)
    x, mask = as_distarray(a, mesh), _as_mask(condition, mesh)
    if mask.ndim != 1:
        raise ValueError("condition must be a 1-d array")
    if axis is None and x.ndim != 1:
        return finished(take(x, flatnonzero(mask)), out)
    x = x if x.ndim else x.sliced((None,))
    axis = normalize_axis_index(0 if axis is None else axis, x.ndim)
    extent = x.shape[axis]
    if mask.size > extent:
        beyond = flatnonzero(mask[extent:])
        if beyond.size and 0 in x.shape[:axis]:  # NumPy then does not check the indices
            shape = (*x.shape[:axis], int(np.count_nonzero(mask)), *x.shape[axis + 1 :])
            nothing = mesh.xp.empty(shape, x.dtype)
            return finished(wrap(nothing, Layout.replicated(shape, mesh.shape), mesh), out)
        if beyond.size:
            first = extent + int(beyond[0])
            raise IndexError(f"index {first} is out of bounds for axis {axis} with size {extent}")
        mask = mask[:extent]
    elif mask.size < extent:
        x = x[(slice(None),) * axis + (slice(mask.size),)]
    found = masks.select(x, (axis,), mask, axis)
    return finished(found.like(in_c_order(found.block)), out)


@implements(np.extract, computes=False)
def extract(condition: ArrayLike, arr: ArrayLike) -> DistArray:
    """Select the elements for which a condition of the same shape holds, in C order.

    Parameters
    ----------
    condition : array_like or DistArray of bool
        If its shape differs, both are read in C order.
    arr : DistArray or array_like
        The array.

    Returns
    -------
    DistArray
        The same as ``arr[condition]``.

    Cost
    ----
    The cost of ``arr[condition]``; the cost of :func:`numpy.take` if the shapes differ.
    """
    mesh = common_mesh(condition, arr)
    x, mask = as_distarray(arr, mesh), _as_mask(condition, mesh)
    if mask.shape != x.shape or not x.ndim:
        result: DistArray = take(x, flatnonzero(mask))
        return result
    return masks.select(x, range(x.ndim), mask, 0)


@implements(np.place, writes=0, at=True)
def place(arr: DistArray, mask: ArrayLike, vals: ArrayLike) -> None:
    """Write values in turn into the elements that a mask selects; too few values are repeated.

    Parameters
    ----------
    arr : DistArray
        Changed in place; its layout stays.
    mask : array_like or DistArray of bool
        As many elements as `arr`.
    vals : array_like or DistArray
        The values.

    Cost
    ----
    None for one value and a mask in the array's layout; else the cost of ``arr[mask] = values``.
    """
    check_array(arr, "place")
    mesh = common_mesh(arr, mask, vals)
    x: DistArray = as_distarray(arr, mesh)
    refuse_read_only(x, "place: output array is read-only")
    chosen = _mask_like(x, mask, "place")
    values: Any = in_line(_safe_values(vals, x))
    if not x.ndim:
        x, chosen = x.sliced((None,)), chosen.sliced((None,))
    if values.size != 1:
        count = int(np.count_nonzero(chosen))
        if not count:
            return
        if not values.size:
            raise ValueError("Cannot insert from an empty array!")
        values = values[:count] if values.size >= count else _in_turn(values, chosen)
    masks.write(x, range(x.ndim), chosen, 0, values)


def _mask_like(x: DistArray, mask: ArrayLike, name: str) -> Any:
    """Return a mask of as many elements, in the shape and the layout of an array."""
    chosen: Any = _as_mask(plain(mask), x.mesh)
    if chosen.size != x.size:
        raise ValueError(f"{name}: mask and data must be the same size")
    if chosen.shape != x.shape:
        chosen = refitted(chosen, x.shape)
    return to_layout(chosen, Layout.from_cuts(x.layout.cuts, x.mesh.shape))


def _safe_values(values: ArrayLike, x: DistArray) -> Any:
    """Return values as an array; raise, unlike in assignment, if a cast could change them.

    Scalars are always cast, as in NumPy.
    """
    kind = getattr(values, "dtype", x.dtype)
    if not is_scalar(values):
        check_cast(kind, x.dtype, "safe")
    return as_values(values, x.dtype)


def _in_turn(values: Array, mask: DistArray) -> DistArray:
    """Return the value for each element that a mask selects, in the layout of these elements."""
    mesh = mask.mesh
    packing = Packing(mask.block, mask.layout.cuts, mesh)
    layout = Layout.from_cuts([packing.cut], mesh.shape)
    ((start, stop),) = layout.section(mesh.coords)
    number = wrap(mesh.asarray(np.arange(start, stop) % values.size), layout, mesh)
    result: DistArray = take(values, number)
    return result


@implements(np.putmask, writes=0, at=True, alone=Alone(unless=lambda a, *_, **__: is_number(a)))
def putmask(a: DistArray, /, mask: ArrayLike, values: ArrayLike) -> None:
    """Write the value at the same position where a mask holds; too few values are repeated.

    Parameters
    ----------
    a : DistArray
        Changed in place; its layout stays.
    mask : array_like or DistArray of bool
        As many elements as `a`.
    values : array_like or DistArray
        The values.

    Cost
    ----
    None if mask and values have the layout of the array, or there is one value.
    """
    check_array(a, "putmask")
    mesh = common_mesh(a, mask, values)
    x = as_distarray(a, mesh)
    refuse_read_only(x, "putmask: output array is read-only")
    chosen = _mask_like(x, mask, "putmask")
    source = _safe_values(values, x)
    if source.size:
        copyto(x, _repeated(source, x), "unsafe", chosen)


def _repeated(values: DistArray | Array, x: DistArray) -> Any:
    """Return values in the shape of `x`, repeated if they are few; a single value as a scalar."""
    if values.size == 1:
        return np.reshape(values, ())
    if values.size == x.size:
        if isinstance(values, DistArray):
            return refitted(values, x.shape)
        return np.reshape(values, x.shape)
    return values if values.shape == x.shape else _at_places(in_line(values), x)


def _at_places(values: Array, x: DistArray) -> DistArray:
    """Return the value for each element of `x` by its position in C order, repeating values."""
    layout = Layout.from_cuts(x.layout.cuts, x.layout.mesh_shape)

    def number(section: tuple[slice, ...]) -> Array:
        total = np.zeros((), np.intp)
        for dim, (part, extent) in enumerate(zip(section, x.shape, strict=True)):
            shape = [1] * x.ndim
            shape[dim] = part.stop - part.start
            total = total * extent + np.arange(part.start, part.stop).reshape(shape)
        return total % values.size

    result: DistArray = take(values, from_section(number, layout, x.mesh))
    return result
