"""take_along_axis and put_along_axis: positions in each 1-d slice along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, common_mesh, implements, to_layout, wrap
from distarray.array.portable import refuse_read_only
from distarray.comm import DeviceMesh
from distarray.engines.indexing.advanced_keys import index_shape
from distarray.engines.indexing.bounds import in_bounds
from distarray.engines.indexing.gather import fetch
from distarray.engines.indexing.located import Located, block_in, locate
from distarray.engines.indexing.owners import Rows
from distarray.engines.indexing.scatter import assign, store
from distarray.engines.indexing.values import Values, as_values, plain
from distarray.layout import Cut, Layout
from distarray.ops.indexing.take import flat_rows, take
from distarray.typing import Array, ArrayLike

__all__ = ["put_along_axis", "take_along_axis"]


@implements(np.take_along_axis, computes=False)
def take_along_axis(arr: ArrayLike, indices: DistArray | Array, axis: int | None = -1) -> Any:
    """Take elements of each 1-d slice along an axis, by positions such as those of ``argsort``.

    Parameters
    ----------
    arr : DistArray or array_like
        The source.
    indices : DistArray or array of int
        As many dimensions as `arr`; the other dimensions broadcast.
    axis : int, optional
        None: the flattened array, with 1-d `indices`.

    Returns
    -------
    DistArray
        In the layout of `arr` if the axis is whole, else of `indices`.

    Cost
    ----
    If the axis is whole, the indices are sent to the ranks of the array, and the ranks agree on
    the bounds if the indices are sharded. Along a cut axis, an agreement, an all-to-all and an
    exchange of the elements that are on other ranks.
    """
    mesh = common_mesh(arr, indices)
    x = as_distarray(arr, mesh)
    _check(x, indices, axis)
    if axis is None:
        return take(x, indices)
    axis = normalize_axis_index(axis, x.ndim)
    if isinstance(indices, DistArray) and x.layout.is_replicated:
        x = _spread(x, indices, axis)
    layouts = _side_by_side(x, indices.shape, axis)
    if layouts is None:
        rows, found = _across(x, indices, axis, for_writing=False)
        return fetch(rows, found, 0, rows_first=True)
    key = _local_key(x, indices, axis, layouts[0])
    return wrap(mesh.asarray(x.block)[key], layouts[1], mesh)


@implements(np.put_along_axis, writes=0, at=True)
def put_along_axis(
    arr: DistArray, indices: DistArray | Array, values: ArrayLike, axis: int | None
) -> None:
    """Write elements of each 1-d slice along an axis by position.

    Parameters
    ----------
    arr : DistArray
        Changed in place; its layout stays.
    indices : DistArray or array of int
        As many dimensions as `arr`; the other dimensions broadcast.
    values : array_like or DistArray
        Broadcast to the shape of `indices`.
    axis : int or None
        None: the flattened array, with 1-d `indices`.

    Cost
    ----
    If the axis is whole, indices and values are sent to the ranks of the array. Along a cut axis,
    the cost of ``arr[index] = values``.
    """
    mesh = common_mesh(arr, indices, values)
    x, indices = as_distarray(arr, mesh), plain(indices)
    _check(x, indices, axis)
    refuse_read_only(x)
    values = as_values(values, x.dtype)
    if axis is None:
        written = Values(values, indices.shape, 0, 1)
        store(*flat_rows(x, indices, "raise", for_writing=True), written)
        return
    axis = normalize_axis_index(axis, x.ndim)
    layouts = _side_by_side(x, indices.shape, axis)
    if layouts is None:
        shape = index_shape(_open_grid(mesh, x.shape, indices, axis))
        written = Values(values, shape, 0, len(shape))
        store(*_across(x, indices, axis, for_writing=True), written)
        return
    written = Values(values, layouts[1].shape, 0, x.ndim)
    key = _local_key(x, indices, axis, layouts[0])
    block = written.rows(layouts[1], mesh)
    if x.layout.holds(mesh.coords):
        assign(x.block, key, block)


def _check(x: DistArray, indices: DistArray | Array, axis: int | None) -> None:
    if axis is None:
        if indices.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
    else:
        normalize_axis_index(axis, x.ndim)
    if indices.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if axis is not None and x.ndim != indices.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")


# -- along a whole axis: each rank by itself -----------------------------------------------------


def _spread(x: DistArray, indices: DistArray, axis: int) -> DistArray:
    """Cut a replicated array as the indices are in the other dimensions; nothing is sent."""
    cuts = [
        cut if dim != axis and cut.extent == extent else Cut.whole(extent)
        for dim, (cut, extent) in enumerate(zip(indices.layout.cuts, x.shape, strict=True))
    ]
    return to_layout(x, Layout.from_cuts(cuts, x.mesh.shape))


def _side_by_side(x: DistArray, shape: Sequence[int], axis: int) -> tuple[Layout, Layout] | None:
    """Return layouts of indices and result on the array's ranks; None if other ranks are needed."""
    layout = x.layout
    if layout.cuts[axis].parts > 1:
        return None
    wanted, result = [], []
    for dim, (cut, extent) in enumerate(zip(layout.cuts, shape, strict=True)):
        if dim == axis or (cut.extent == 1 and cut.parts == 1):
            cuts = Cut.whole(extent), Cut.whole(extent)
        elif extent in (1, cut.extent):
            cuts = (cut if extent == cut.extent else Cut.whole(1)), cut
        else:
            return None
        wanted.append(cuts[0])
        result.append(cuts[1])
    indices = Layout.from_cuts(wanted, layout.mesh_shape)
    return indices, layout.with_cuts(result)


def _local_key(
    x: DistArray, indices: DistArray | Array, axis: int, layout: Layout
) -> tuple[Array, ...]:
    """Return index arrays into this rank's block."""
    mesh = x.mesh
    block = block_in(indices, layout, mesh)
    if layout.size:
        (block,) = in_bounds([block], [layout], [x.shape[axis]], [axis], mesh, "raise")
    return tuple(_open_grid(mesh, x.block.shape, block, axis))


# -- along a cut axis ----------------------------------------------------------------------------


def _across(
    x: DistArray, indices: DistArray | Array, axis: int, for_writing: bool
) -> tuple[Rows, Located]:
    """Locate the rows that the indices name, with the index of each in every other dimension."""
    arrays = _open_grid(x.mesh, x.shape, indices, axis)
    rows = Rows(x, range(x.ndim))
    return rows, locate(rows, arrays, range(x.ndim), for_writing=for_writing)


def _open_grid(
    mesh: DeviceMesh, shape: Sequence[int], indices: DistArray | Array, axis: int
) -> Sequence[Array]:
    arrays: list[Any] = []
    for dim, extent in enumerate(shape):
        if dim == axis:
            arrays.append(indices)
            continue
        lengths = [1] * len(shape)
        lengths[dim] = extent
        arrays.append(mesh.xp.arange(extent).reshape(lengths))
    return arrays
