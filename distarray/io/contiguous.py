"""Contiguous storage: the elements of an array in C order, from some byte of a file on.

Every rank reads or writes contiguous ranges of bytes, called stretches. If the stretches of the
blocks have a mebibyte or more (rows of a matrix that is cut along the first dimension, for
example), they are transferred directly between block and file. Otherwise (columns) the array is
transferred in rounds: in each round the ranks exchange elements so that each rank has a stretch of
some mebibytes. This is collective buffering by the library's own exchange. No rank holds more than
its block and one stretch.
"""

from collections.abc import Iterator
from itertools import product
from math import prod
from zlib import crc32

import numpy as np

from distarray.array import DistArray
from distarray.array.movement import assign, gathered, moved, part_of
from distarray.comm import DeviceMesh
from distarray.comm.files import STRETCH, SharedFile, landing
from distarray.comm.progress import advance, stage
from distarray.layout import Box, Layout, Replicate, Shard
from distarray.typing import Array, Shape

__all__ = [
    "ALONE",
    "Slices",
    "Sum",
    "pieces",
    "read_body",
    "runs",
    "sum_of",
    "whole",
    "write_body",
]

#: Checksum of a stretch: first byte in the file, number of bytes, and their CRC-32.
Sum = tuple[int, int, int]
Slices = tuple[slice, ...]

#: Maximum size of a file that one rank alone reads or writes, in bytes.
ALONE = 1 << 20
#: Size of a rank's stretch in a round, in bytes.
_ROUND = 1 << 24
#: Minimum size of a stretch for a read or write call of its own, in bytes.
_RUN = 1 << 20


def write_body(file: SharedFile, start: int, x: DistArray, sums: list[Sum] | None = None) -> None:
    """Write an array's elements in C order; collective over its mesh.

    Parameters
    ----------
    file : SharedFile
        A file that is open on the group of the mesh.
    start : int
        Offset of the first element in the file, in bytes.
    x : DistArray
        An array without pending folds.
    sums : list, optional
        A checksum of each stretch that this rank writes is appended.

    Cost
    ----
    No message if the blocks consist of long stretches. Otherwise each element is sent to the rank
    that writes it, in rounds of 16 MiB per rank.
    """
    with stage("writing", x.nbytes // x.mesh.size(), "B"):
        _write_body(file, start, x, sums)


def _write_body(file: SharedFile, start: int, x: DistArray, sums: list[Sum] | None) -> None:
    if _is_straight(x.layout, x.itemsize):
        box, key = _own_share(x.layout, x.mesh)
        block = part_of(x.block, key)
        for offset, slices in runs(box, x.shape, x.itemsize, _limit(block)):
            _write(file, start + offset, _host(x.mesh, part_of(block, slices)), sums)
        return
    for offset, view, dim in _rounds(x, x.mesh.size()):
        target = _by_rank(view.layout, dim)
        part = _host(x.mesh, moved(view.block, view.layout, target, x.mesh))
        offset += _place(target, dim, x)
        _write(file, start + offset, part, sums)


def read_body(file: SharedFile, start: int, x: DistArray, sums: list[Sum] | None = None) -> None:
    """Fill an array with elements stored in C order, reading each byte once; collective.

    Parameters and cost are those of :func:`write_body`. Replicas receive the elements that other
    ranks read.
    """
    with stage("reading", x.nbytes // x.mesh.size(), "B"):
        _read_body(file, start, x, sums)


def _read_body(file: SharedFile, start: int, x: DistArray, sums: list[Sum] | None) -> None:
    if _is_straight(x.layout, x.itemsize) and not _replicating(x.layout):
        box = x.layout.section(x.mesh.coords)
        for offset, slices in runs(box, x.shape, x.itemsize, _limit(x.block)):
            _fill(file, start + offset, part_of(x.block, slices), x.mesh, sums)
        return
    for offset, view, dim in _rounds(x, x.mesh.size()):
        layout = _by_rank(view.layout, dim)
        place = start + offset + _place(layout, dim, x)
        part = x.mesh.asarray(landing(layout.local_shape(x.mesh.coords), x.dtype, place))
        _fill(file, place, part, x.mesh, sums)
        assign(view.block, view.layout, part, layout, x.mesh)


def pieces(x: DistArray, everywhere: bool) -> Iterator[Array | None]:
    """Yield the elements in C order, some mebibytes at a time, on rank 0 or on all; collective.

    Yields
    ------
    ndarray or None
        A C-contiguous array on the host; None on ranks that do not receive the elements.
    """
    mesh = x.mesh
    if not x.ndim:
        yield whole(x, everywhere)
        return
    for _, view, _ in _rounds(x, 1):
        layout = Layout.replicated(view.shape, mesh.shape)
        if not everywhere:
            layout = Layout.lone(view.shape, mesh.shape, mesh.coords_of(0))
        part = moved(view.block, view.layout, layout, mesh)
        yield _host(mesh, part) if everywhere or mesh.rank == 0 else None


def whole(x: DistArray, everywhere: bool) -> Array | None:
    """Gather all elements on the host of rank 0 (None elsewhere) or of every rank; collective."""
    found = gathered(x.block, x.layout, x.mesh, None if everywhere else 0)
    return None if found is None else _host(x.mesh, found)


def runs(box: Box, shape: Shape, itemsize: int, limit: int) -> Iterator[tuple[int, Slices]]:
    """Divide a box of an array in C order into pieces, each a single stretch of the array.

    Parameters
    ----------
    box : tuple of (int, int)
        Global indices.
    shape : tuple of int
        Shape of the array.
    itemsize, limit : int
        Bytes per element; maximum bytes per piece. A piece has at least one element.

    Yields
    ------
    (int, tuple of slice)
        Byte offset in the array, and the piece as slices of the box's block.

    Examples
    --------
    >>> [offset for offset, _ in runs(((0, 2), (1, 3)), (2, 4), 8, 1 << 20)]
    [8, 40]
    >>> [offset for offset, _ in runs(((1, 3), (0, 4)), (4, 4), 8, 1 << 20)]
    [32]
    """
    if any(low >= high for low, high in box):
        return
    if not shape:
        yield 0, ()
        return
    ndim = len(shape)
    inner = [itemsize * prod(shape[dim + 1 :]) for dim in range(ndim)]
    partial = [dim for dim in range(ndim) if box[dim] != (0, shape[dim])]
    dim = next((d for d in range(max(partial, default=0), ndim) if inner[d] <= limit), ndim - 1)
    step = max(1, limit // inner[dim]) if inner[dim] else shape[dim]
    low, high = box[dim]
    tail = tuple([slice(0, extent) for extent in shape[dim + 1 :]])
    for lead in product(*[range(a, b) for a, b in box[:dim]]):
        base = sum([index * inner[d] for d, index in enumerate(lead)])
        head = tuple(
            [slice(index - box[d][0], index - box[d][0] + 1) for d, index in enumerate(lead)]
        )
        for at in range(low, high, step):
            rows = slice(at - low, min(at + step, high) - low)
            yield base + at * inner[dim], (*head, rows, *tail)


def _is_straight(layout: Layout, itemsize: int) -> bool:
    """Return True if the stretches of the blocks are long enough for direct reads and writes."""
    dims = layout.sharded_dims
    if not dims or prod(layout.shape[: dims[-1]]) <= 1:
        return True
    last = dims[-1]
    rows = -(-layout.shape[last] // layout.cuts[last].parts)
    return itemsize * rows * prod(layout.shape[last + 1 :]) >= _RUN


def _replicating(layout: Layout) -> tuple[int, ...]:
    """Return the mesh dimensions along which all ranks hold the same block."""
    placed = zip(layout.placements, layout.mesh_shape, strict=True)
    return tuple([m for m, (p, size) in enumerate(placed) if isinstance(p, Replicate) and size > 1])


def _limit(block: Array) -> int:
    """Return the maximum bytes per call; smaller if the bytes are copied to a buffer first."""
    return STRETCH if _is_direct(block) else min(STRETCH, 4 * _ROUND)


def _is_direct(block: Array) -> bool:
    """Return True if a file can be read into a block: it is on the host and C-contiguous."""
    # For type checkers CuPy's arrays have NumPy's type.
    on_host: bool = isinstance(block, np.ndarray)
    return on_host and block.flags.c_contiguous


def _own_share(layout: Layout, mesh: DeviceMesh) -> tuple[Box, Slices]:
    """Return the section of its block that this rank writes: global indices, slices of the block.

    Ranks that hold the same block each write a section of it.
    """
    coords = mesh.coords
    assert coords is not None
    box = list(layout.section(coords))
    number, ways = 0, 1
    for mesh_dim in _replicating(layout):
        number = number * layout.mesh_shape[mesh_dim] + coords[mesh_dim]
        ways *= layout.mesh_shape[mesh_dim]
    lengths = [high - low for low, high in box]
    dim = next((d for d, length in enumerate(lengths) if length >= ways), -1)
    if dim < 0:
        dim = int(np.argmax(lengths))
    low, length = box[dim][0], lengths[dim]
    first, last = length * number // ways, length * (number + 1) // ways
    key = [slice(0, n) for n in lengths]
    key[dim], box[dim] = slice(first, last), (low + first, low + last)
    return tuple(box), tuple(key)


def _rounds(x: DistArray, ranks: int) -> Iterator[tuple[int, DistArray, int]]:
    """Divide the array into boxes, each a single stretch, of some mebibytes per rank.

    Yield the byte offset, a view of the array, and the dimension along which the ranks divide it.
    """
    shape, ndim = x.shape, x.ndim
    if not x.size:
        return
    inner = [x.itemsize * prod(shape[dim + 1 :]) for dim in range(ndim)]
    dim = next((d for d in range(ndim) if inner[d] <= _ROUND), ndim - 1)
    rows = ranks * max(1, _ROUND // max(1, inner[dim]))
    tail = tuple([(0, 1, extent) for extent in shape[dim + 1 :]])
    for lead in product(*[range(extent) for extent in shape[:dim]]):
        base = sum([index * inner[d] for d, index in enumerate(lead)])
        head = tuple([(index, 1, 1) for index in lead])
        for at in range(0, shape[dim], rows):
            count = min(rows, shape[dim] - at)
            yield base + at * inner[dim], x.sliced((*head, (at, 1, count), *tail)), dim


def _by_rank(layout: Layout, dim: int) -> Layout:
    """Return the layout that divides a box among all ranks, in rank order."""
    return Layout.chunked(layout.shape, layout.mesh_shape, [Shard(dim)] * len(layout.mesh_shape))


def _place(layout: Layout, dim: int, x: DistArray) -> int:
    """Return the byte offset of this rank's section in a round's box."""
    first = layout.section(x.mesh.coords)[dim][0]
    return first * x.itemsize * prod(x.shape[dim + 1 :])


def sum_of(offset: int, data: Array) -> Sum:
    """Return the checksum of a C-contiguous array that is stored at byte `offset` of a file."""
    return offset, data.nbytes, crc32(data.reshape(-1).view(np.uint8).data) if data.nbytes else 0


def _host(mesh: DeviceMesh, part: Array) -> Array:
    return np.ascontiguousarray(mesh.to_host(part))


def _write(file: SharedFile, offset: int, part: Array, sums: list[Sum] | None) -> None:
    if sums is not None and part.nbytes:
        sums.append(sum_of(offset, part))
    file.write_at(offset, part)
    advance(part.nbytes)


def _fill(
    file: SharedFile, offset: int, target: Array, mesh: DeviceMesh, sums: list[Sum] | None
) -> None:
    """Read a stretch into a section of a block, which may be strided or on a device."""
    if not target.nbytes:
        return
    direct = _is_direct(target)
    host = target if direct else np.empty(target.shape, target.dtype)
    file.read_at(offset, host)
    advance(host.nbytes)
    if sums is not None:
        sums.append(sum_of(offset, host))
    if not direct:
        target[...] = mesh.asarray(host)
