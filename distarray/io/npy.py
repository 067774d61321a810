"""Format ``.npy`` of :func:`distarray.io.open`, :func:`read` and :func:`write`."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.comm.progress import advance
from distarray.io.contents import Contents
from distarray.io.contiguous import runs
from distarray.io.contiguous_reading import read_stretch
from distarray.io.held_files import HeldFile
from distarray.io.npy_header import Header, read_header
from distarray.io.numpy_save import parts_of
from distarray.io.output_files import Target, store
from distarray.layout import Box
from distarray.typing import Array

__all__ = ["PICKLED", "Stored", "open_file", "write_file"]

#: Minimum size of a stretch for a read call, in bytes; for shorter stretches the file is mapped.
_RUN = 1 << 14
_PIECE = 1 << 26
PICKLED = (
    "holds pickled Python objects; if you trust it, load it with "
    "distarray.numpy.load(path, allow_pickle=True)"
)


class Stored:
    """Array in contiguous storage.

    Parameters
    ----------
    file : HeldFile
    header : Header
    """

    chunks = None

    def __init__(self, file: HeldFile, header: Header) -> None:
        self._held, self._header = file, header
        self._lead = file.lead(header.start)
        self.shape = header.shape
        self.dtype = header.dtype

    def read(self, section: Box, out: Array) -> None:
        """Read a box into `out`."""
        header = self._header
        if header.fortran:
            section, out = section[::-1], out.transpose()
        shape, itemsize = header.stored_shape, self.dtype.itemsize
        last = max([d for d, part in enumerate(section) if part != (0, shape[d])], default=0)
        stretch = prod([stop - start for start, stop in section[last:]])
        file = self._held.at(header.start, self._lead)
        if itemsize * stretch < _RUN and out.size * itemsize > _RUN:
            mapped = np.memmap(file, self.dtype, "r", header.start, shape)
            out[...] = mapped[tuple([slice(start, stop) for start, stop in section])]
            advance(out.nbytes)
            return
        for offset, slices in runs(section, shape, itemsize, _PIECE):
            key: Any = (*slices, ...)
            part = out[key]
            whole = part if part.flags.c_contiguous else np.empty(part.shape, part.dtype)
            file.seek(header.start + offset)
            read_stretch(file, whole)
            if whole is not part:
                part[...] = whole


def open_file(path: str, mesh: DeviceMesh) -> Contents:
    """Return the array of a file.

    Parameters
    ----------
    path : str
        The file.
    mesh : DeviceMesh
        Not used: each rank opens the file by itself.
    """
    with ExitStack() as stack:
        held = stack.enter_context(closing(HeldFile(path)))
        header = read_header(held.at(0, b""))
        refuse_objects(path, header)
        header.check_size(held.size)
        return Contents({"": Stored(held, header)}, close=stack.pop_all().close)


def refuse_objects(path: str, header: Header) -> None:
    """Raise if the elements are pickled Python objects."""
    if header.dtype.hasobject:
        raise ValueError(f"{path} {PICKLED}")


def write_file(path: str, arrays: Mapping[str, DistArray], mesh: DeviceMesh) -> None:
    """Write a single array, which has no name; collective.

    Parameters
    ----------
    path : str
        The file.
    arrays : mapping of str to DistArray
        The array, under the name "".
    mesh : DeviceMesh
        The mesh whose ranks write.
    """
    if set(arrays) != {""}:
        raise ValueError(
            f"{path}: an .npy file holds one array without a name, not {list(arrays)}; write an "
            ".npz file, or the array itself"
        )
    store(Target(path), parts_of(arrays[""].plain()), mesh)
