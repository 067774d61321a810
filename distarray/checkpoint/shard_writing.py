"""Writing of shards: one rank's share of a checkpoint, from blocks to files of chunks."""

import os
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np

from distarray.array import DistArray
from distarray.array.movement import Piece, pieces, starts
from distarray.checkpoint.chunk_checksums import Written
from distarray.checkpoint.chunk_files import as_bytes, write_shard
from distarray.checkpoint.chunk_reader import Progress
from distarray.checkpoint.tree import Leaf
from distarray.checkpoint.zarr_metadata import Stored
from distarray.comm import DeviceMesh
from distarray.comm.files import PAGE, landing
from distarray.io.box_pieces import cut_to
from distarray.io.chunk_grids import Index, plan_shards
from distarray.io.flushing import Flusher
from distarray.layout import Box, Layout
from distarray.typing import Array

__all__ = ["Item", "Shard", "plan_items", "shard_of", "staged", "write_shards"]

#: Size of a memory allocation for copies of shards, in bytes.
_SLAB = 1 << 26


class Item(NamedTuple):
    """Array that is being saved.

    Attributes
    ----------
    stored : Stored
        The array in the checkpoint.
    block : array
        The block of this rank.
    layout, writing : Layout
        The array's layout in memory, and the layout in which the ranks write it.
    mesh : DeviceMesh
    """

    stored: Stored
    block: Array
    layout: Layout
    writing: Layout
    mesh: DeviceMesh


class Shard(NamedTuple):
    """Section of an array that this rank writes to a file.

    Attributes
    ----------
    stored : Stored
    place : tuple of int
        Index of the shard along each dimension.
    pieces : list of (slices, array)
        The elements; the slices are positions in the shard.
    """

    stored: Stored
    place: Index
    pieces: list[Piece]


def plan_items(leaves: Sequence[Leaf], mesh: DeviceMesh) -> list[Item]:
    """Plan the division of each array into files; carry out pending folds.

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
    """Return the shard of an array that this rank writes; None if it writes none.

    The ranks exchange elements if blocks and shards differ.
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
    """Copy shards, so that the program may change the arrays while the copies are written.

    Many copies share one large memory allocation: the system uses huge pages for it, which are
    allocated in a fraction of the time. The memory is freed with the last of these copies.
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
    """Return the size of a shard's elements in bytes."""
    box = shard.stored.grid.shard_box(shard.place)
    return prod([stop - start for start, stop in box]) * shard.stored.dtype.itemsize


def _copied(shard: Shard, memory: Array) -> Shard:
    """Copy a shard into the given memory."""
    box = shard.stored.grid.shard_box(shard.place)
    lengths = [stop - start for start, stop in box]
    whole = memory.view(shard.stored.dtype).reshape(lengths)
    for slices, part in shard.pieces:
        whole[slices] = part
    return Shard(shard.stored, shard.place, [(tuple([slice(0, n) for n in lengths]), whole)])


def write_shards(
    root: Path, shards: Iterable[Shard], flusher: Flusher, written: Written, progress: Progress
) -> None:
    """Write shards to files in a checkpoint's directory; call `progress` with their sizes.

    The written chunks are added to `written`.
    """
    for stored, place, parts in shards:
        directory = f"{root}/{stored.name}"
        os.makedirs(directory, exist_ok=True)  # the rank that makes it may be slower
        path = f"{directory}/{stored.file_name(place)}"
        chunks = _chunks(Shard(stored, place, parts))
        count, sums = write_shard(path, stored, chunks, flusher)
        inside = [chunk for chunk in stored.grid.chunks_of(place) if chunk is not None]
        for chunk, value in zip(inside, sums, strict=True):
            written.append((stored.name, stored.grid.number(chunk), value))
        progress(count)


def _chunks(shard: Shard) -> Iterator[Array | None]:
    """Yield the chunks of a shard: a view if a piece contains the chunk contiguously."""
    stored, scratch = shard.stored, None
    origin = [start for start, _ in stored.grid.shard_box(shard.place)]
    for chunk in stored.grid.chunks_of(shard.place):
        if chunk is None:
            yield None
            continue
        box = _shifted(stored.grid.chunk_box(chunk), origin)
        found = list(cut_to(shard.pieces, box))
        view = found[0][1]
        if len(found) == 1 and view.shape == stored.grid.chunk and view.flags.c_contiguous:
            yield view
            continue
        if scratch is None:
            scratch = np.empty(stored.grid.chunk, stored.dtype)
        _fill(scratch, found, box)
        yield scratch


def _shifted(box: Box, origin: Sequence[int]) -> Box:
    return tuple([(a - start, b - start) for (a, b), start in zip(box, origin)])


def _fill(scratch: Array, found: Sequence[Piece], box: Box) -> None:
    """Copy the pieces of a box into the corner of a chunk; set zeros beyond the array's edge."""
    if scratch.shape != tuple([b - a for a, b in box]):
        as_bytes(scratch)[...] = 0
    for slices, part in found:
        scratch[slices] = part
