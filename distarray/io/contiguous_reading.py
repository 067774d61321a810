"""Reading of contiguous storage: by all ranks together, or from a file object of each rank."""

from __future__ import annotations

from typing import IO
from zlib import crc32

import numpy as np
from numpy.lib import format as npy_format

from distarray.array import DistArray, placed_layout, wrap
from distarray.array.creation import reversed_dims
from distarray.array.movement import moved
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.comm.files import STRETCH, landing, open_file
from distarray.comm.progress import advance
from distarray.io.contiguous import ALONE, Sum, read_body, runs, sum_of
from distarray.io.fingerprints import has_exact_bytes
from distarray.io.input_files import read_by_each
from distarray.io.npy_header import Header
from distarray.layout import Box, Layout
from distarray.typing import Array, Placements, Shape

__all__ = ["read_box", "read_by_all", "read_own_file", "read_stretch"]

#: Bytes per read call where a rank reads a whole file.
_PIECE = 1 << 24


def read_by_all(
    path: str,
    header: Header,
    mesh: DeviceMesh,
    placements: Placements | None,
    sums: list[Sum] | None = None,
) -> DistArray:
    """Read an array in contiguous storage, each byte once; collective over the mesh.

    Parameters
    ----------
    path : str
        Equal on all ranks.
    header : Header
        Equal on all ranks. The file is long enough.
    mesh, placements
        As for :func:`distarray.distribute`.
    sums : list, optional
        A checksum of each stretch that this rank reads is appended.
    """
    layout = _stored_layout(header, mesh, placements)
    if header.nbytes <= ALONE or not layout.ndim:
        x = _read_on_rank_zero(path, header, layout, mesh, sums)
    else:
        # Memory may be short on one rank alone.
        x = agreed(mesh.group, lambda: _empty(layout, header, mesh))
        if mesh.coords is not None:
            with open_file(mesh.group, path) as file:
                read_body(file, header.start, x, sums)
    return reversed_dims(x) if header.fortran else x


def _empty(layout: Layout, header: Header, mesh: DeviceMesh) -> DistArray:
    """Allocate an array whose memory has the same alignment as its bytes in the file."""
    shape = layout.local_shape(mesh.coords)
    if mesh.device_type != "cpu" or mesh.coords is None:
        return wrap(mesh.xp.empty(shape, header.dtype), layout, mesh)
    first = runs(layout.section(mesh.coords), layout.shape, header.dtype.itemsize, STRETCH)
    offset, _ = next(first, (0, ()))
    return wrap(landing(shape, header.dtype, header.start + offset), layout, mesh)


def _stored_layout(header: Header, mesh: DeviceMesh, placements: Placements | None) -> Layout:
    """Return the layout of the array whose C order is the order in the file."""
    layout = placed_layout(header.shape, header.dtype, mesh, placements)
    return layout.transpose(tuple(reversed(range(layout.ndim)))) if header.fortran else layout


def _read_on_rank_zero(
    path: str, header: Header, layout: Layout, mesh: DeviceMesh, sums: list[Sum] | None
) -> DistArray:
    """Read a small array on rank 0, which sends it to the other ranks."""

    def read() -> Array | None:
        if mesh.rank != 0:
            return None
        values: Array = np.ndarray(header.stored_shape, header.dtype)
        with open(path, "rb") as file:
            file.seek(header.start)
            read_stretch(file, values)
        if sums is not None:
            sums.append(sum_of(header.start, values))
        block: Array = mesh.asarray(values)
        return block

    own = agreed(mesh.group, read)
    lone = Layout.lone(layout.shape, mesh.shape, mesh.coords_of(0))
    if not layout.is_replicated or mesh.coords is None:
        shape = lone.local_shape(mesh.coords)
        block = mesh.xp.empty(shape, header.dtype) if own is None else own
        return wrap(moved(block, lone, layout, mesh).copy(), layout, mesh)
    block = mesh.xp.empty(layout.shape, header.dtype) if own is None else own
    return wrap(mesh.group.broadcast(block, 0), layout, mesh)


def read_own_file(
    file: IO[bytes],
    header: Header,
    mesh: DeviceMesh,
    placements: Placements | None,
    call: str = "",
) -> DistArray:
    """Read a whole array on every rank from the rank's own file; each rank keeps its block.

    Parameters
    ----------
    file : file object
        This rank's file object, positioned at the first element.
    header : Header
        Equal on all ranks.
    mesh, placements
        As for :func:`distarray.distribute`.
    call : str
        The function's name for error texts; if given, the ranks' files must have equal content.
    """
    layout = _stored_layout(header, mesh, placements)
    check = _Checksum() if call and has_exact_bytes(header.dtype) else None

    def read() -> Array:
        block: Array = np.empty(layout.local_shape(mesh.coords), header.dtype)
        read_box(file, layout.shape, layout.section(mesh.coords), block, check)
        return block

    def words(block: Array) -> str:
        return f"{header.dtype} {header.shape}{check or ''}"

    host = read_by_each(call, read, mesh, words) if call else agreed(mesh.group, read)
    x = wrap(mesh.asarray(host), layout, mesh)
    return reversed_dims(x) if header.fortran else x


class _Checksum:
    """Checksum of successive pieces."""

    def __init__(self) -> None:
        self._value = 0

    def add(self, piece: Array) -> None:
        """Add the next piece, a C-contiguous array."""
        if piece.nbytes:
            self._value = crc32(piece.reshape(-1).view(np.uint8).data, self._value)

    def __str__(self) -> str:
        return f", CRC-32 {self._value:08x}"


def read_box(
    file: IO[bytes], shape: Shape, box: Box, out: Array, check: _Checksum | None = None
) -> None:
    """Read a whole array in C order, some mebibytes at a time, and keep a box of it.

    Parameters
    ----------
    file : file object
        A file object, positioned at the first element.
    shape : tuple of int
        Shape of the array.
    box : tuple of (int, int)
        Global indices of the elements to keep.
    out : ndarray
        Filled with these elements.
    check : _Checksum, optional
        Checksum to which all elements of the array are added.
    """
    everything = tuple([(0, extent) for extent in shape])
    for _, slices in runs(everything, shape, out.dtype.itemsize, _PIECE):
        piece: Array = np.ndarray([part.stop - part.start for part in slices], out.dtype)
        read_stretch(file, piece)
        if check is not None:
            check.add(piece)
        into, of = [], []
        for part, (low, high) in zip(slices, box, strict=True):
            first = min(max(part.start, low), high)
            last = max(first, min(part.stop, high))
            into.append(slice(first - low, last - low))
            of.append(slice(first - part.start, last - part.start))
        if all(part.start < part.stop for part in into):
            out[tuple(into)] = piece[tuple(of)]


def read_stretch(file: IO[bytes], out: Array) -> None:
    """Fill a C-contiguous array with the next bytes of a file object.

    Raises
    ------
    ValueError
        If the file ends too early.
    """
    if not out.nbytes:
        return
    flat = out.reshape(-1).view(np.uint8)
    if npy_format.isfileobj(file):
        found = np.fromfile(file, np.uint8, flat.size)
        flat[: found.size] = found
        count = found.size
    else:
        count = 0
        while count < flat.size:
            data = file.read(min(flat.size - count, _PIECE))
            if not data:
                break
            flat[count : count + len(data)] = np.frombuffer(data, np.uint8)
            count += len(data)
    if count < flat.size:
        raise ValueError(
            f"EOF: reading array data, expected {flat.size} bytes got {count} "
            "(file seems not fully written?)"
        )
    advance(flat.size)
