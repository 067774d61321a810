"""Arrays whose elements lie in a file, read: by all ranks together, or by each for itself."""

from typing import Any
from zlib import crc32

import numpy as np
from numpy.lib import format as npy_format

from distarray.array import DistArray, placed_layout, wrap
from distarray.array.creation import reversed_dims
from distarray.array.movement import moved
from distarray.comm import DeviceMesh
from distarray.comm.agree import agreed
from distarray.comm.files import STRETCH, landing, open_file
from distarray.io.contiguous import ALONE, Sum, read_body, runs, sum_of
from distarray.io.fingerprints import has_exact_bytes
from distarray.io.input_files import read_by_each
from distarray.io.numpy_save import Header
from distarray.layout import Box, Layout, Placement

__all__ = ["Checksum", "Placements", "cut_from", "filled", "kept", "taken"]

Placements = list[Placement] | tuple[Placement, ...] | Placement | None
#: Bytes that a rank reads at a time of what it reads whole.
_PIECE = 1 << 24


def filled(
    path: str,
    header: Header,
    mesh: DeviceMesh,
    placements: Placements,
    sums: list[Sum] | None = None,
) -> DistArray:
    """An array whose elements lie in a file, each byte read once; collective over the mesh.

    Parameters
    ----------
    path : str
        Equal on all ranks.
    header : Header
        Where they lie; equal on all ranks. The file is long enough.
    mesh, placements
        Where they go.
    sums : list, optional
        Takes a checksum of each stretch that this rank reads.
    """
    layout = _stored_layout(header, mesh, placements)
    if header.nbytes <= ALONE or not layout.ndim:
        x = _handed_out(path, header, layout, mesh, sums)
    else:
        # Memory may be short on one rank alone.
        x = agreed(mesh.group, lambda: _empty(layout, header, mesh))
        if mesh.coords is not None:
            with open_file(mesh.group, path) as file:
                read_body(file, header.start, x, sums)
    return reversed_dims(x) if header.fortran else x


def _empty(layout: Layout, header: Header, mesh: DeviceMesh) -> DistArray:
    """An array with memory that suits its place in the file."""
    shape = layout.local_shape(mesh.coords)
    if mesh.device_type != "cpu" or mesh.coords is None:
        return wrap(mesh.xp.empty(shape, header.dtype), layout, mesh)
    first = runs(layout.section(mesh.coords), layout.shape, header.dtype.itemsize, STRETCH)
    offset, _ = next(first, (0, ()))
    return wrap(landing(shape, header.dtype, header.start + offset), layout, mesh)


def _stored_layout(header: Header, mesh: DeviceMesh, placements: Placements) -> Layout:
    """The layout of the array whose C order is that of the file."""
    layout = placed_layout(header.shape, header.dtype, mesh, placements)
    return layout.transpose(tuple(reversed(range(layout.ndim)))) if header.fortran else layout


def _handed_out(
    path: str, header: Header, layout: Layout, mesh: DeviceMesh, sums: list[Sum] | None
) -> DistArray:
    """A small array, which rank 0 reads and hands out."""

    def read() -> Any:
        if mesh.rank != 0:
            return None
        values = np.ndarray(header.stored_shape, header.dtype)
        with open(path, "rb") as file:
            file.seek(header.start)
            taken(file, values)
        if sums is not None:
            sums.append(sum_of(header.start, values))
        return mesh.asarray(values)

    own = agreed(mesh.group, read)
    lone = Layout.lone(layout.shape, mesh.shape, mesh.coords_of(0))
    if not layout.is_replicated or mesh.coords is None:
        shape = lone.local_shape(mesh.coords)
        block = mesh.xp.empty(shape, header.dtype) if own is None else own
        return wrap(moved(block, lone, layout, mesh).copy(), layout, mesh)
    block = mesh.xp.empty(layout.shape, header.dtype) if own is None else own
    return wrap(mesh.group.broadcast(block, 0), layout, mesh)


def kept(
    file: Any, header: Header, mesh: DeviceMesh, placements: Placements, call: str = ""
) -> DistArray:
    """An array of which every rank reads all, some mebibytes at a time, and keeps its part.

    Parameters
    ----------
    file : file object
        Stands at the elements; each rank has its own.
    header : Header
        Equal on all ranks.
    mesh, placements
        Where they go.
    call : str
        The function, for messages; where given, the ranks' files must have the same content.
    """
    layout = _stored_layout(header, mesh, placements)
    check = Checksum() if call and has_exact_bytes(header.dtype) else None

    def read() -> Any:
        block = np.empty(layout.local_shape(mesh.coords), header.dtype)
        cut_from(file, layout.shape, layout.section(mesh.coords), block, check)
        return block

    def words(block: Any) -> str:
        return f"{header.dtype} {header.shape}{check or ''}"

    host = read_by_each(call, read, mesh, words) if call else agreed(mesh.group, read)
    x = wrap(mesh.asarray(host), layout, mesh)
    return reversed_dims(x) if header.fortran else x


class Checksum:
    """A checksum of pieces that come one after another."""

    def __init__(self) -> None:
        self._value = 0

    def add(self, piece: np.ndarray[Any, Any]) -> None:
        """Take one more piece, a C-contiguous array."""
        if piece.nbytes:
            self._value = crc32(piece.reshape(-1).view(np.uint8).data, self._value)

    def __str__(self) -> str:
        return f", CRC-32 {self._value:08x}"


def cut_from(
    file: Any, shape: tuple[int, ...], box: Box, out: Any, check: Checksum | None = None
) -> None:
    """Read all of an array in C order, some mebibytes at a time, and keep a box of it.

    Parameters
    ----------
    file : file object
        Stands at the elements.
    shape : tuple of int
        Of the array.
    box : tuple of (int, int)
        The global indices that are kept.
    out : ndarray
        Takes them.
    check : Checksum, optional
        Of all elements.
    """
    everything = tuple([(0, extent) for extent in shape])
    for _, slices in runs(everything, shape, out.dtype.itemsize, _PIECE):
        piece = np.ndarray([part.stop - part.start for part in slices], out.dtype)
        taken(file, piece)
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


def taken(file: Any, out: np.ndarray[Any, Any]) -> None:
    """Fill a C-contiguous array from where a file object stands.

    Raises
    ------
    ValueError
        If it ends before that.
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
