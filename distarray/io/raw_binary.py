"""Raw binary files: ``x.tofile`` and ``numpy.fromfile``; and pickles in files, ``x.dump``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any

import numpy as np

from distarray.array import DistArray, common_mesh, distribute
from distarray.array.like import obeys_like
from distarray.comm import DeviceMesh
from distarray.io.contiguous import pieces
from distarray.io.contiguous_reading import read_by_all
from distarray.io.file_paths import FileLike
from distarray.io.input_files import origin_of, read_whole
from distarray.io.npy_header import Header
from distarray.io.ordinary_files import check_seekable
from distarray.io.output_files import put, store, target_for, write_file
from distarray.io.rank_zero import found_on_rank_zero
from distarray.typing import Array, ArrayLike, DType, DTypeLike, Placements

__all__ = ["dump", "fromfile", "tofile"]

_fromfile: Any = np.fromfile


def tofile(x: DistArray, fid: FileLike, sep: str = "", format: str = "%s") -> None:
    """Write the elements in C order, as bytes or as text; see :meth:`numpy.ndarray.tofile`.

    Parameters
    ----------
    x : DistArray
        An array without Python objects.
    fid : path-like or file object
        As for :func:`numpy.save` of distributed arrays.
    sep : str
        Text between elements; "" writes the elements' bytes.
    format : str
        Format of an element in text.

    Cost
    ----
    As :func:`numpy.save`. For text rank 0 gathers and writes 16 MiB at a time.
    """
    mesh, error = x.mesh, None
    if x.dtype.hasobject:
        error = OSError("cannot write object arrays to a file in binary mode")
    target = target_for(
        "DistArray.tofile", fid, {"self": x}, mesh, {"sep": sep, "format": format}, error=error
    )
    if mesh.coords is None:
        return
    if not sep:
        store(target, [x], mesh)
        return

    def write(file: IO[Any] | None, everywhere: bool) -> Exception | None:
        return _as_text(file, x, everywhere, sep, format)

    write_file(target, mesh, write)


def dump(x: DistArray, file: FileLike) -> None:
    """Write the pickle of an array to a file; see :meth:`numpy.ndarray.dump`.

    Cost
    ----
    The cost of :func:`pickle.dumps`, which gathers the array, and of one write of the pickle.
    """
    if x.layout.partials:
        x.settle()
    parcel, mesh = x.dumps(), x.mesh
    target = target_for("DistArray.dump", file, {"self": x}, mesh, {})
    if mesh.coords is not None:
        store(target, [parcel], mesh)


def _as_text(
    file: IO[Any] | None, x: DistArray, everywhere: bool, sep: str, form: str
) -> Exception | None:
    """Write the elements as text to this rank's file, if any; return the exception or None."""
    error: Exception | None = None
    between = ""
    for piece in pieces(x, everywhere):
        if file is None or piece is None or error is not None or not piece.size:
            continue
        try:
            for values in _python_numbers(piece):
                words = [(form % (value,)) if form else str(value) for value in values]
                put(file, (between + sep.join(words)).encode("ascii"))
                between = sep
        except Exception as caught:
            error = caught
    return error


def _python_numbers(piece: Array) -> Iterator[list[Any]]:
    """Yield the elements as Python numbers, some thousands at a time."""
    flat = piece.reshape(-1)
    for start in range(0, flat.size, 1 << 14):
        yield flat[start : start + (1 << 14)].tolist()


@obeys_like(np.fromfile)
def fromfile(
    file: FileLike,
    dtype: DTypeLike | None = None,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    *,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Read the bytes or numbers of a file as a 1-D array; see :func:`numpy.fromfile`.

    Cost
    ----
    As :func:`numpy.load`. A text, or a file object, is read completely by every rank.
    """
    mesh = common_mesh(like) if mesh is None else mesh
    kind = np.dtype(float if dtype is None else dtype)
    said = {"dtype": kind, "count": count, "sep": sep, "offset": offset, "placements": placements}
    origin = origin_of("numpy.fromfile", file, mesh, said)
    bare = not sep and kind.itemsize and not kind.hasobject

    def read() -> Array:
        check_seekable(origin.path)
        found: Array = _fromfile(file, kind, count, sep, offset)
        return found

    if not bare or not origin.one or origin.stream:
        values = read_whole(origin, "numpy.fromfile", read, mesh)
        return distribute(values, mesh, placements, src=None)
    path: Any = origin.path
    header = found_on_rank_zero(lambda: _elements(path, kind, count, offset), mesh)
    return read_by_all(path, header, mesh, placements)


def _elements(path: str, dtype: DType, count: int, offset: int) -> Header:
    """Describe the elements of a file from `offset` on: at most `count` elements."""
    _fromfile(path, dtype, 0, "", offset)  # raises NumPy's own errors
    with open(path, "rb") as file:
        there = max(0, os.fstat(file.fileno()).st_size - offset) // dtype.itemsize
    number = there if count < 0 else min(count, there)
    return Header((number,), False, dtype, offset)
