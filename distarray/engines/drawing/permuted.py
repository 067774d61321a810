"""Permutations of distributed arrays: of positions, and of each slice in an order of its own."""

import numpy as np

from distarray.array import DistArray, movement, to_layout, wrap
from distarray.comm import DeviceMesh
from distarray.engines.drawing.drawn_tiles import TILE, tiles
from distarray.engines.drawing.shuffling import WHOLE, Shuffle, shuffled
from distarray.engines.drawing.streams import Call
from distarray.layout import Box, Cut, Layout, Shard
from distarray.typing import Array

__all__ = ["positions", "slices_permuted"]


def positions(
    shuffle: Shuffle, layout: Layout, mesh: DeviceMesh, length: int | None = None
) -> DistArray:
    """The first positions of a permutation, in a layout of that length."""
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
    """Each slice along an axis in an order of its own; in the layout of `x`."""
    length, others = x.shape[axis], x.size // max(1, x.shape[axis])
    cut = x.layout.cuts[axis]
    if x.ndim == 1:
        return shuffled(x, axis, Shuffle(call, length))
    if cut.parts > 1 and length > WHOLE and others < cut.parts:
        return _one_by_one(x, axis, call)
    work = x.layout if cut.parts == 1 else _axis_whole(x.layout, axis)
    mesh = x.mesh
    source = mesh.to_host(movement.moved(x.block, x.layout, work, mesh))
    block = np.empty_like(source)
    shape = tuple([extent for dim, extent in enumerate(x.shape) if dim != axis])
    box = tuple([part for dim, part in enumerate(work.section(mesh.coords)) if dim != axis])
    if block.size:
        permute = _permute_long if length > WHOLE else _permute_short
        permute(np.moveaxis(source, axis, -1), np.moveaxis(block, axis, -1), shape, box, call)
    block = block if mesh.device_type == "cpu" else mesh.asarray(block)
    return wrap(movement.moved(block, work, x.layout, mesh), x.layout, mesh)


def _axis_whole(layout: Layout, axis: int) -> Layout:
    """A layout in which the axis is whole and its mesh dimensions cut the longest other one."""
    others = [dim for dim in range(layout.ndim) if dim != axis]
    free = [dim for dim in others if not layout.cuts[dim].mesh_dims] or others
    longest = max(free, key=lambda dim: layout.shape[dim])
    placements = [Shard(longest) if p == Shard(axis) else p for p in layout.placements]
    return Layout.chunked(layout.shape, layout.mesh_shape, placements)


def _permute_short(
    source: Array, result: Array, shape: tuple[int, ...], box: Box, call: Call
) -> None:
    """Permute tiles of slices by NumPy; other ranks' slices of a tile are permuted and dropped."""
    length = source.shape[-1]
    for tile in tiles(shape, box, max(1, TILE // max(1, length))):
        generator = call.tile(tile.number)
        if tile.whole:  # NumPy permutes a copy, whose strides are no larger than the source's
            result[tile.target] = generator.permuted(source[tile.target], axis=-1)
            continue
        values = np.empty((*tile.extents, length), source.dtype)
        values[tile.wanted] = source[tile.target]
        generator.permuted(values, axis=-1, out=values)
        result[tile.target] = values[tile.wanted]


def _permute_long(
    source: Array, result: Array, shape: tuple[int, ...], box: Box, call: Call
) -> None:
    """Permute slice by slice."""
    for tile in tiles(shape, box, 1):
        lane = source[tile.target]
        order = Shuffle(call, source.shape[-1], tile.number).whole()
        result[tile.target] = lane.reshape(-1)[order].reshape(lane.shape)


def _one_by_one(x: DistArray, axis: int, call: Call) -> DistArray:
    """Permute slices, of which there are fewer than ranks, each by all ranks."""
    result: DistArray = np.copy(x)  # type: ignore[assignment]
    shape = tuple([extent for dim, extent in enumerate(x.shape) if dim != axis])
    for number, place in enumerate(np.ndindex(*shape)):
        key = (*place[:axis], slice(None), *place[axis:])
        lane = x[key]
        result[key] = shuffled(lane.plain(), 0, Shuffle(call, x.shape[axis], number))
    return result
