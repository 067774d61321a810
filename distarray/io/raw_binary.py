"""Files of bare elements: ``x.tofile`` and ``numpy.fromfile``."""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from distarray.array import DistArray, common_mesh, distribute
from distarray.comm import DeviceMesh
from distarray.io.contiguous import pieces
from distarray.io.contiguous_reading import Placements, filled
from distarray.io.input_files import origin_of, read_by_each
from distarray.io.numpy_save import Header, found_on_rank_0
from distarray.io.output_files import put, store, target_for, write_through

__all__ = ["fromfile", "tofile"]

_fromfile: Any = np.fromfile


def tofile(x: DistArray, fid: Any, sep: str = "", format: str = "%s") -> None:
    """Write the elements in C order, as bytes or as text; see :meth:`numpy.ndarray.tofile`.

    Parameters
    ----------
    x : DistArray
        Without Python objects.
    fid : path-like or file object
        As for :func:`numpy.save` of distributed arrays.
    sep : str
        Text between elements; "" writes their bytes.
    format : str
        Of an element, in text.

    Cost
    ----
    As :func:`numpy.save`. As text rank 0 writes what it gathers, 16 MiB at a time.
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

    def write(file: Any, everywhere: bool) -> Exception | None:
        return _as_text(file, x, everywhere, sep, format)

    write_through(target, write, mesh)


def _as_text(file: Any, x: DistArray, everywhere: bool, sep: str, form: str) -> Exception | None:
    """Write the elements as text to this rank's file, if it has one; what went wrong."""
    error: Exception | None = None
    between = ""
    for piece in pieces(x, everywhere):
        if file is None or piece is None or error is not None or not piece.size:
            continue
        try:
            for values in _some(piece):
                words = [(form % (value,)) if form else str(value) for value in values]
                put(file, (between + sep.join(words)).encode("ascii"))
                between = sep
        except Exception as caught:
            error = caught
    return error


def _some(piece: Any) -> Iterator[list[Any]]:
    """The elements as Python's numbers, some thousands at a time."""
    flat = piece.reshape(-1)
    for start in range(0, flat.size, 1 << 14):
        yield flat[start : start + (1 << 14)].tolist()


def fromfile(
    file: Any,
    dtype: Any = None,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    *,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements = None,
) -> DistArray:
    """The bytes or numbers of a file as a 1-d array; see :func:`numpy.fromfile`.

    Cost
    ----
    As :func:`numpy.load`. Text, and what comes from a file object, is read whole by every rank.
    """
    mesh = common_mesh(like) if mesh is None else mesh
    kind = np.dtype(float if dtype is None else dtype)
    said = {"dtype": kind, "count": count, "sep": sep, "offset": offset, "placements": placements}
    origin = origin_of("numpy.fromfile", file, mesh, said)
    bare = not sep and kind.itemsize and not kind.hasobject
    if not bare or not origin.one:
        values = read_by_each(
            "numpy.fromfile", lambda: _fromfile(file, kind, count, sep, offset), mesh
        )
        return distribute(values, mesh, placements, src=None)
    path = os.fspath(file)
    header = found_on_rank_0(lambda: _elements(path, kind, count, offset), mesh)
    return filled(path, header, mesh, placements)


def _elements(path: str, dtype: np.dtype[Any], count: int, offset: int) -> Header:
    """How many elements a file holds from some byte on: as many as are asked for, if it does."""
    _fromfile(path, dtype, 0, "", offset)  # NumPy's own errors
    with open(path, "rb") as file:
        there = max(0, os.fstat(file.fileno()).st_size - offset) // dtype.itemsize
    number = there if count < 0 else min(count, there)
    return Header((number,), False, dtype, offset)
