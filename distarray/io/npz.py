"""Format ``.npz`` of :func:`distarray.io.open`, :func:`read` and :func:`write`."""

from collections.abc import Mapping
from contextlib import ExitStack, closing
from zipfile import ZipFile

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.io.contents import Contents
from distarray.io.contiguous_reading import read_box
from distarray.io.held_files import HeldFile
from distarray.io.npy import PICKLED, Stored
from distarray.io.npy_header import Header, read_header
from distarray.io.npz_archive import look_at
from distarray.io.numpy_save import parts_of
from distarray.io.numpy_savez import write_archive
from distarray.io.output_files import Target
from distarray.io.sections import Source
from distarray.layout import Box
from distarray.typing import Array

__all__ = ["open_file", "write_file"]


class _Compressed:
    """Compressed array in an archive, which is decompressed as a whole."""

    def __init__(self, file: HeldFile, name: str, header: Header) -> None:
        self._held, self._name, self._header = file, name, header
        self.shape = header.shape
        self.dtype = header.dtype
        self.chunks = header.shape

    def read(self, section: Box, out: Array) -> None:
        """Read a box: decompress the array, some mebibytes at a time, and keep the box."""
        header = self._header
        if header.fortran:
            section, out = section[::-1], out.transpose()
        with ZipFile(self._held.at(0, b"")) as archive, archive.open(self._name) as member:
            read_header(member)
            read_box(member, header.stored_shape, section, out)
            member.read(1)  # reading past the end verifies the checksum


def open_file(path: str, mesh: DeviceMesh) -> Contents:
    """Return the arrays of an archive.

    Parameters
    ----------
    path : str
        The file.
    mesh : DeviceMesh
        Not used: each rank opens the file by itself.
    """
    arrays: dict[str, Source] = {}
    refused: dict[str, str] = {}
    with ExitStack() as stack:
        held = stack.enter_context(closing(HeldFile(path)))
        archive = stack.enter_context(ZipFile(held.at(0, b"")))
        for member in archive.namelist():
            found = look_at(archive, member) if member.endswith(".npy") else None
            if found is None or found.header is None:
                continue
            name = member.removesuffix(".npy")
            if found.header.dtype.hasobject:
                refused[name] = PICKLED
                continue
            arrays[name] = (
                Stored(held, found.header)
                if found.stored
                else _Compressed(held, member, found.header)
            )
        return Contents(arrays, close=stack.pop_all().close, refused=refused)


def write_file(
    path: str, arrays: Mapping[str, DistArray], mesh: DeviceMesh, *, compressed: bool = False
) -> None:
    """Write arrays to an archive; collective.

    Parameters
    ----------
    path : str
        The file.
    arrays : mapping of str to DistArray
        The arrays by name; the name "" becomes ``arr_0``, as in :func:`numpy.savez`.
    mesh : DeviceMesh
        The mesh whose ranks write.
    compressed : bool
        If True, compress the arrays; rank 0 alone writes.
    """
    members = {f"{key or 'arr_0'}.npy": parts_of(x.plain()) for key, x in arrays.items()}
    write_archive(Target(path), members, compressed, mesh)
