"""Arrays from files that NumPy reads: every rank reads the file and keeps its own part."""

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

import numpy as np

from distarray.array import DistArray, distribute
from distarray.comm import DeviceMesh
from distarray.ops.placing import Placements, creates, place

__all__ = ["Archive", "fromfile", "fromregex", "genfromtxt", "load", "loadtxt"]

# NumPy's stubs know these by overloads that arguments handed on do not match.
_loadtxt: Any = np.loadtxt
_genfromtxt: Any = np.genfromtxt


def _distributed(
    values: Any, like: Any, mesh: DeviceMesh | None, placements: Placements | None
) -> DistArray:
    _, mesh = place((), values.dtype, mesh, None, None, like)
    return distribute(values, mesh, placements, src=None)


class Archive(Mapping[str, DistArray]):
    """The arrays of an ``.npz`` file by name, each read and distributed when it is asked for.

    Parameters
    ----------
    file : numpy.lib.npyio.NpzFile
        The open file.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self.files: list[str] = file.files

    def __getitem__(self, key: str) -> Any:
        value = self._file[key]
        return _distributed(value, None, None, None) if isinstance(value, np.ndarray) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def load(
    file: Any, mmap_mode: Any = None, allow_pickle: bool = False, *args: Any, **kw: Any
) -> Any:
    """An array from an ``.npy`` file, or the archive that ``.npz`` is; see :func:`numpy.load`.

    Cost
    ----
    No message. An ``.npy`` file given by its path is mapped into memory, so that each rank reads
    its own part of it.
    """
    by_path = isinstance(file, (str, PathLike)) and mmap_mode is None and not allow_pickle
    try:
        found = np.load(file, "r" if by_path else mmap_mode, allow_pickle, *args, **kw)
    except ValueError:  # not everything can be mapped: an array without elements cannot
        found = np.load(file, mmap_mode, allow_pickle, *args, **kw)
    if isinstance(found, np.lib.npyio.NpzFile):
        return Archive(found)
    return _distributed(found, None, None, None) if isinstance(found, np.ndarray) else found


@creates(np.loadtxt)
def loadtxt(
    fname: Any,
    dtype: Any = float,
    comments: Any = "#",
    delimiter: str | None = None,
    converters: Any = None,
    skiprows: int = 0,
    usecols: Any = None,
    unpack: bool = False,
    ndmin: int = 0,
    encoding: Any = None,
    max_rows: int | None = None,
    *,
    quotechar: str | None = None,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> Any:
    """The numbers of a text file; see :func:`numpy.loadtxt`.

    Cost
    ----
    No message; every rank reads the whole file.
    """
    values = _loadtxt(
        fname, dtype, comments, delimiter, converters, skiprows, usecols, unpack, ndmin, encoding,
        max_rows, quotechar=quotechar,
    )  # fmt: skip
    return _unpacked(values, like, mesh, placements)


def _unpacked(
    values: Any, like: Any, mesh: DeviceMesh | None, placements: Placements | None
) -> Any:
    if isinstance(values, list):  # the columns of a structured array
        return [_distributed(column, like, mesh, placements) for column in values]
    return _distributed(values, like, mesh, placements)


@creates(np.genfromtxt)
def genfromtxt(
    fname: Any,
    dtype: Any = float,
    comments: Any = "#",
    delimiter: Any = None,
    skip_header: int = 0,
    skip_footer: int = 0,
    converters: Any = None,
    missing_values: Any = None,
    filling_values: Any = None,
    usecols: Any = None,
    names: Any = None,
    excludelist: Any = None,
    deletechars: str = " !#$%&'()*+,-./:;<=>?@[\\]^{|}~",
    replace_space: str = "_",
    autostrip: bool = False,
    case_sensitive: Any = True,
    defaultfmt: str = "f%i",
    unpack: bool | None = None,
    usemask: bool = False,
    loose: bool = True,
    invalid_raise: bool = True,
    max_rows: int | None = None,
    encoding: Any = None,
    *,
    ndmin: int = 0,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> Any:
    """The values of a text file, with some missing; see :func:`numpy.genfromtxt`.

    A masked array (`usemask`) comes back as NumPy's, the same on every rank.

    Cost
    ----
    No message; every rank reads the whole file.
    """
    values = _genfromtxt(
        fname, dtype, comments, delimiter, skip_header, skip_footer, converters, missing_values,
        filling_values, usecols, names, excludelist, deletechars, replace_space, autostrip,
        case_sensitive, defaultfmt, unpack, usemask, loose, invalid_raise, max_rows, encoding,
        ndmin=ndmin,
    )  # fmt: skip
    return values if usemask else _unpacked(values, like, mesh, placements)


@creates(np.fromfile)
def fromfile(
    file: Any,
    dtype: Any = None,
    count: int = -1,
    sep: str = "",
    offset: int = 0,
    *,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """The bytes or numbers of a file as a 1-d array; see :func:`numpy.fromfile`.

    Cost
    ----
    No message; every rank reads the whole file.
    """
    dtype = float if dtype is None else dtype
    return _distributed(np.fromfile(file, dtype, count, sep, offset), like, mesh, placements)


def fromregex(file: Any, regexp: Any, dtype: Any, encoding: Any = None) -> DistArray:
    """Records that a regular expression finds in a file; see :func:`numpy.fromregex`.

    Cost
    ----
    No message; every rank reads the whole file.
    """
    return _distributed(np.fromregex(file, regexp, dtype, encoding), None, None, None)
