"""One rank's part of writing a checkpoint: from blocks to the files of chunks."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distarray.array import DistArray
from distarray.array.movement import Piece, part_of, pieces, starts
from distarray.checkpoint.chunk_files import as_bytes, write_shard
from distarray.checkpoint.tree import Leaf
from distarray.checkpoint.zarr_metadata import Stored
from distarray.comm import DeviceMesh
from distarray.comm.files import PAGE, landing
from distarray.io.chunk_grids import Index, plan_shards
from distarray.io.flushing import Flusher
from distarray.layout import Box, Layout
from distarray.typing import Array

__all__ = ["Item", "Shard", "plan_items", "shard_of", "staged", "write_shards"]

Told = Callable[[int], object]

#: Bytes of memory that copies of shards share.
_SLAB = 1 << 26


class Item(NamedTuple):
    """An array that is being saved.

    Attributes
    ----------
    stored : Stored
        How it will lie in the checkpoint.
    block : array
        What this rank holds of it.
    layout, writing : Layout
        Where it is, and where it has to be to be written.
    mesh : DeviceMesh
    """

    stored: Stored
    block: Array
    layout: Layout
    writing: Layout
    mesh: DeviceMesh


class Shard(NamedTuple):
    """The part of an array that this rank writes to a file.

    Attributes
    ----------
    stored : Stored
    place : tuple of int
        Which shard of the array it is.
    pieces : list of (slices, array)
        Its elements, by their place in the shard.
    """

    stored: Stored
    place: Index
    pieces: list[Piece]


def plan_items(leaves: Sequence[Leaf], mesh: DeviceMesh) -> list[Item]:
    """Decide how each array lies in files; carries out pending folds.

    NumPy arrays, which are equal on all ranks, are written by the ranks of `mesh`.
    """
    items = []
    for turn, leaf in enumerate(leaves):
        value = leaf.value
        if isinstance(value, DistArray):
            if value.layout.partials:
                value = value.plain()
            block, layout, home = value.to_local(), value.layout, value.mesh
        else:
            block, home = np.asarray(value), mesh
            layout = Layout.replicated(block.shape, mesh.shape)
        grid, writing = plan_shards(layout, max(1, block.dtype.itemsize), turn)
        items.append(Item(Stored(leaf.name, block.dtype, grid), block, layout, writing, home))
    return items


def shard_of(item: Item) -> Shard | None:
    """What this rank writes of an array, received where it lacks it; None if nothing.

    Communicates where blocks are not shards.
    """
    coords = item.mesh.coords
    found = pieces(item.block, item.layout, item.writing, item.mesh)
    section = item.writing.section(coords)
    if not item.stored.nbytes or not item.writing.holds(coords):
        return None
    if any(start >= stop for start, stop in section):
        return None
    corner = starts(item.writing, item.mesh)
    index = tuple([start // length for start, length in zip(corner, item.stored.grid.shard)])
    return Shard(item.stored, index, [(slices, item.mesh.to_host(part)) for slices, part in found])


def staged(shards: Sequence[Shard]) -> list[Shard]:
    """The shards with memory of their own, so that the program may go on changing the arrays.

    Many have one stretch of memory together, whose pages the system then makes large, which takes
    a fraction of the time when they are new. It is given back when the last of them has gone.
    """
    made: list[Shard] = []
    sizes = [-(-_bytes_of(shard) // PAGE) * PAGE for shard in shards]
    left = sum(sizes)
    slab, at = np.empty(0, np.uint8), 0
    for shard, size in zip(shards, sizes):
        if at + size > slab.size:
            slab, at = landing((max(size, min(_SLAB, left)),), np.uint8), 0
        made.append(_copied(shard, slab[at : at + _bytes_of(shard)]))
        at, left = at + size, left - size
    return made


def _bytes_of(shard: Shard) -> int:
    """Bytes of the elements of a shard."""
    box = shard.stored.grid.shard_box(shard.place)
    return prod([stop - start for start, stop in box]) * shard.stored.dtype.itemsize


def _copied(shard: Shard, memory: Array) -> Shard:
    """The shard in some memory."""
    box = shard.stored.grid.shard_box(shard.place)
    lengths = [stop - start for start, stop in box]
    whole = memory.view(shard.stored.dtype).reshape(lengths)
    for slices, part in shard.pieces:
        whole[slices] = part
    return Shard(shard.stored, shard.place, [(tuple([slice(0, n) for n in lengths]), whole)])


def write_shards(root: Path, shards: Iterable[Shard], flusher: Flusher, tell: Told) -> None:
    """Write files below a checkpoint's directory; `tell` is told of bytes written."""
    for shard in shards:
        directory = f"{root}/{shard.stored.name}"
        os.makedirs(directory, exist_ok=True)  # who describes the array may not have come to it
        path = f"{directory}/{shard.stored.file_name(shard.place)}"
        tell(write_shard(path, shard.stored, _chunks(shard), flusher))


def _chunks(shard: Shard) -> Iterator[Array | None]:
    """The chunks of a shard: views where the pieces have them whole and in one stretch."""
    stored, scratch = shard.stored, None
    origin = [start for start, _ in stored.grid.shard_box(shard.place)]
    for chunk in stored.grid.chunks_of(shard.place):
        if chunk is None:
            yield None
            continue
        box = _shifted(stored.grid.chunk_box(chunk), origin)
        view = _found_whole(shard.pieces, box)
        if view is not None and view.shape == stored.grid.chunk and view.flags.c_contiguous:
            yield view
            continue
        if scratch is None:
            scratch = np.empty(stored.grid.chunk, stored.dtype)
        _fill(scratch, shard.pieces, box)
        yield scratch


def _shifted(box: Box, origin: Sequence[int]) -> Box:
    return tuple([(a - start, b - start) for (a, b), start in zip(box, origin)])


def _found_whole(found: Sequence[Piece], box: Box) -> Array | None:
    """A box of a shard as a view, if one piece has all of it."""
    for slices, part in found:
        if all(s.start <= a and b <= s.stop for s, (a, b) in zip(slices, box)):
            return part_of(
                part, tuple([slice(a - s.start, b - s.start) for s, (a, b) in zip(slices, box)])
            )
    return None


def _fill(scratch: Array, found: Sequence[Piece], box: Box) -> None:
    """Put a box together at the corner of a chunk; zeros beyond the array's edge."""
    if scratch.shape != tuple([b - a for a, b in box]):
        as_bytes(scratch)[...] = 0
    for slices, part in found:
        common = [(max(s.start, a), min(s.stop, b)) for s, (a, b) in zip(slices, box)]
        if all(a < b for a, b in common):
            into = tuple([slice(low - a, high - a) for (low, high), (a, _) in zip(common, box)])
            of = tuple(
                [slice(low - s.start, high - s.start) for (low, high), s in zip(common, slices)]
            )
            scratch[into] = part[of]
