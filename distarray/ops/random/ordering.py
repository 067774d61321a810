"""Permutations and choices, as numpy.random.Generator has them."""

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, movement, to_layout, wrap
from distarray.array.blocks import refuse_read_only
from distarray.comm import DeviceMesh
from distarray.layout import Box, Cut, Layout, Shard
from distarray.ops.placing import Placements, plain
from distarray.ops.random.sampling import Source, layout_for
from distarray.ops.random.shuffling import WHOLE, Shuffle, shuffled
from distarray.ops.random.streams import Call
from distarray.ops.random.tiles import TILE, tiles
from distarray.ops.reshape import in_line, refitted

__all__ = ["Ordering"]

Array = Any


class Ordering(Source):
    """Permutations of positions, rows and single slices."""

    def permutation(
        self,
        x: Any,
        axis: int = 0,
        *,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> DistArray:
        """A random permutation of the integers below `x`, or of an array along an axis.

        Parameters
        ----------
        x : int or array_like
            The length, or the array, which stays as it is.
        axis : int
            Whose slices are permuted.
        mesh, placements
            Where the result goes; by default where `x` is.

        Returns
        -------
        DistArray

        Cost
        ----
        None along an axis that every rank has whole. Else each element is sent once, to where it
        comes to lie; see :mod:`distarray.ops.random.shuffling`.
        """
        mesh = self._mesh_for(mesh, x)
        x = plain(x)
        if isinstance(x, (int, np.integer)):
            shape = (max(int(x), 0),)
            layout = layout_for(shape, np.int64, mesh, placements)
            call = self._begin("permutation", mesh)
            return positions(Shuffle(call, shape[0]), layout, mesh)
        x = x if isinstance(x, DistArray) else np.asarray(x)
        axis = normalize_axis_index(axis, x.ndim)
        array = as_distarray(x, mesh)._plain()
        if not isinstance(x, DistArray) or placements is not None:
            layout = layout_for(array.shape, array.dtype, mesh, placements)
            array = to_layout(array, layout)
        return shuffled(array, axis, Shuffle(self._begin("permutation", mesh), array.shape[axis]))

    def shuffle(self, x: Any, axis: int = 0) -> None:
        """Permute an array in place along an axis.

        Parameters
        ----------
        x : DistArray, ndarray or mutable sequence
            What is no DistArray has the same order on all ranks, if it had it before.
        axis : int
            Whose slices are permuted.

        Cost
        ----
        As :meth:`permutation`; a copy of the array.
        """
        if not isinstance(x, (DistArray, np.ndarray)):
            self._begin("shuffle", self._mesh_for(None)).tile(0).shuffle(x, axis)
            return
        if not x.ndim:
            raise TypeError("len() of unsized object")
        axis = normalize_axis_index(axis, x.ndim)
        if isinstance(x, DistArray) and x._layout.partials:
            x._settle()
        block = x._block if isinstance(x, DistArray) else x
        refuse_read_only(block, "array is read-only")
        shuffle = Shuffle(self._begin("shuffle", self._mesh_for(None, x)), x.shape[axis])
        if isinstance(x, DistArray):
            x._assign(shuffled(x._plain(), axis, shuffle))
        else:
            x[...] = np.take(x, shuffle.whole(), axis)

    def permuted(
        self,
        x: Any,
        *,
        axis: int | None = None,
        out: Any = None,
        mesh: DeviceMesh | None = None,
        placements: Placements | None = None,
    ) -> Any:
        """Each slice along an axis permuted by itself.

        Parameters
        ----------
        x : array_like
            The array, which stays as it is, unless it is `out`.
        axis : int, optional
            Along which the elements of each slice are permuted; None: all elements.
        out : DistArray or ndarray, optional
            Receives the result.
        mesh, placements
            Where the result goes; by default where `x` is.

        Returns
        -------
        DistArray

        Cost
        ----
        None if the axis is whole on every rank. A cut one is made whole for the while, another
        dimension being cut instead, and back: two exchanges; long slices that are fewer than the
        ranks are permuted one by one as :meth:`permutation` does.
        """
        mesh = self._mesh_for(mesh, x, out)
        array = as_distarray(x, mesh)._plain()
        _check_out(array, out)
        if axis is not None:
            axis = normalize_axis_index(axis, array.ndim)
        elif not array.ndim:
            raise TypeError("len() of unsized object")
        if not isinstance(x, DistArray) or placements is not None:
            array = to_layout(array, layout_for(array.shape, array.dtype, mesh, placements))
        call = self._begin("permuted", mesh)
        if axis is None:
            flat: DistArray = array if array.ndim == 1 else in_line(array)
            flat = shuffled(flat._plain(), 0, Shuffle(call, array.size))
            result = to_layout(refitted(flat, array.shape)._plain(), array._layout)
        else:
            result = slices_permuted(array, axis, call)
        if out is None:
            return result
        out[...] = result if isinstance(out, DistArray) else result.full()
        return out


def _check_out(x: DistArray, out: Any) -> None:
    if out is None:
        return
    if not isinstance(out, (DistArray, np.ndarray)):
        raise TypeError("out must be a numpy array")
    refuse_read_only(out._block if isinstance(out, DistArray) else out, "out is read-only")
    if out.shape != x.shape:
        raise ValueError("out must have the same shape as x")
    np.copyto(np.empty(0, out.dtype), np.empty(0, x.dtype), casting="safe")  # may NumPy do it?


def positions(
    shuffle: Shuffle, layout: Layout, mesh: DeviceMesh, length: int | None = None
) -> DistArray:
    """The first of the positions that a permutation gives, in a layout of this length."""
    length = shuffle.length if length is None else length
    if shuffle.is_short or layout.cuts[0].parts == 1:
        key = tuple([slice(start, stop) for start, stop in layout.section(mesh.coords)])
        order = shuffle.whole(length) if mesh.coords is not None else np.empty(0, np.int64)
        return wrap(mesh.asarray(np.ascontiguousarray(order[key])), layout, mesh)
    cut = layout.cuts[0]
    source = Layout.from_cuts(
        [Cut.chunked(shuffle.length, cut.mesh_dims, cut.radix)], layout.mesh_shape
    )
    ((start, stop),) = source.section(mesh.coords)
    numbers = wrap(mesh.xp.arange(start, stop), source, mesh)
    return to_layout(shuffled(numbers, 0, shuffle, length), layout)


def slices_permuted(x: DistArray, axis: int, call: Call) -> DistArray:
    """Each slice along an axis in an order of its own; laid out as `x`."""
    length, others = x.shape[axis], x.size // max(1, x.shape[axis])
    cut = x._layout.cuts[axis]
    if x.ndim == 1:
        return shuffled(x, axis, Shuffle(call, length))
    if cut.parts > 1 and length > WHOLE and others < cut.parts:
        return _one_by_one(x, axis, call)
    work = x._layout if cut.parts == 1 else _axis_whole(x._layout, axis)
    mesh = x._mesh
    source = mesh.to_host(movement.moved(x._block, x._layout, work, mesh))
    block = np.empty_like(source)
    shape = tuple([extent for dim, extent in enumerate(x.shape) if dim != axis])
    box = tuple([part for dim, part in enumerate(work.section(mesh.coords)) if dim != axis])
    if block.size:
        permute = _permute_long if length > WHOLE else _permute_short
        permute(np.moveaxis(source, axis, -1), np.moveaxis(block, axis, -1), shape, box, call)
    block = block if mesh.device_type == "cpu" else mesh.asarray(block)
    return wrap(movement.moved(block, work, x._layout, mesh), x._layout, mesh)


def _axis_whole(layout: Layout, axis: int) -> Layout:
    """A layout in which the axis is whole; its mesh dimensions cut the longest other one."""
    others = [dim for dim in range(layout.ndim) if dim != axis]
    free = [dim for dim in others if not layout.cuts[dim].mesh_dims] or others
    longest = max(free, key=lambda dim: layout.shape[dim])
    placements = [Shard(longest) if p == Shard(axis) else p for p in layout.placements]
    return Layout.chunked(layout.shape, layout.mesh_shape, placements)


def _permute_short(
    source: Array, result: Array, shape: tuple[int, ...], box: Box, call: Call
) -> None:
    """Tiles of slices, each by NumPy; slices of a tile that are not here are permuted in vain."""
    length = source.shape[-1]
    for tile in tiles(shape, box, max(1, TILE // max(1, length))):
        generator = call.tile(tile.number)
        if tile.whole:  # the copy that NumPy permutes has the strides of the source, or smaller
            result[tile.target] = generator.permuted(source[tile.target], axis=-1)
            continue
        values = np.empty((*tile.extents, length), source.dtype)
        values[tile.wanted] = source[tile.target]
        generator.permuted(values, axis=-1, out=values)
        result[tile.target] = values[tile.wanted]


def _permute_long(
    source: Array, result: Array, shape: tuple[int, ...], box: Box, call: Call
) -> None:
    """Slice by slice."""
    for tile in tiles(shape, box, 1):
        lane = source[tile.target]
        order = Shuffle(call, source.shape[-1], tile.number).whole()
        result[tile.target] = lane.reshape(-1)[order].reshape(lane.shape)


def _one_by_one(x: DistArray, axis: int, call: Call) -> DistArray:
    """Slices that are too few to give each rank one: each by all ranks."""
    result: DistArray = np.copy(x)  # type: ignore[assignment]
    shape = tuple([extent for dim, extent in enumerate(x.shape) if dim != axis])
    for number, place in enumerate(np.ndindex(*shape)):
        key = (*place[:axis], slice(None), *place[axis:])
        lane = x[key]
        result[key] = shuffled(lane._plain(), 0, Shuffle(call, x.shape[axis], number))
    return result
