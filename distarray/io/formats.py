"""Which file format a name or a file's first bytes stand for, and where its code is.

A format's module offers two functions:

``open_file(path, mesh, **options) -> Contents``
    The stored arrays of a file. Local to a rank, called on every rank alike.
``write_file(path, arrays, mesh, **options) -> None``
    Write a file of named arrays, all or nothing. Collective over the mesh. `arrays` maps names
    to DistArrays on the mesh; a format without names takes the one that is named "".
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from distarray.errors import DamagedFileError, DistArrayError
from distarray.io.sections import Source
from distarray.layout import Box

__all__ = [
    "FORMATS",
    "Contents",
    "Format",
    "Lazy",
    "Named",
    "check_labels",
    "check_options",
    "check_tree",
    "creating",
    "find_format",
    "format_of_name",
    "is_zarr",
    "local_path",
    "module_of",
    "naming",
]


@dataclass(frozen=True, slots=True)
class Format:
    """One file format.

    Attributes
    ----------
    name : str
        What ``format=`` takes.
    suffixes : tuple of str
        Endings of file names, lower case.
    module : str
        The module that reads and writes it; imported at the first use.
    magic : tuple of bytes
        What files of it begin with.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    magic: tuple[bytes, ...] = ()


#: The classic formats of NetCDF: with offsets of 32 bits, of 64, and with sizes of 64.
_CLASSIC = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
#: What marks a directory as a Zarr store.
_ZARR_MARKS = ("zarr.json", ".zgroup", ".zarray")
FORMATS: tuple[Format, ...] = (
    Format("hdf5", (".h5", ".hdf5", ".he5", ".hdf"), "distarray.io.hdf5", (b"\x89HDF\r\n\x1a\n",)),
    Format("netcdf", (".nc", ".nc4", ".cdf"), "distarray.io.netcdf", _CLASSIC),
    Format("zarr", (".zarr", ".zarr.zip"), "distarray.io.zarr"),
    Format("npy", (".npy",), "distarray.io.npy", (b"\x93NUMPY",)),
    Format("npz", (".npz",), "distarray.io.npz"),
    Format("safetensors", (".safetensors", ".safetensors.index.json"), "distarray.io.safetensors"),
)


@dataclass(slots=True)
class Contents:
    """What a file holds, as one rank sees it.

    Attributes
    ----------
    arrays : mapping of str to Source
        The stored arrays by name; by "" the only one of a file that has no names.
    attrs : mapping
        What the file says about itself.
    dims : mapping of str to tuple of str
        Names of the dimensions of those arrays that have such.
    array_attrs : mapping of str to mapping
        What the file says about an array.
    close : callable
        Gives up what is open.
    refused : mapping of str to str
        Names of arrays that the file has and that are not read, and why.
    missing : mapping of str to str
        Names that lead to nothing, and why.
    """

    arrays: Mapping[str, Source]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    array_attrs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    close: Callable[[], None] | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)


class Lazy(Mapping[str, Any]):
    """A mapping whose values are made when they are asked for."""

    __slots__ = ("_make", "_names")

    def __init__(self, names: Iterable[str], make: Callable[[str], Any]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def find_format(path: str, name: str | None = None) -> Format:
    """The format of a path, by what the caller says, else by its ending, else by its content.

    Raises
    ------
    ValueError
        If nothing tells the format; names those that there are.
    """
    known = format_of_name(path, name)
    if known is not None:
        return known
    if is_zarr(path):
        return find_format(path, "zarr")
    start = _first_bytes(path)
    for known in FORMATS:
        if start.startswith(known.magic or b"\0\0\0\0\0\0\0\0\0"):
            return known
    endings = ", ".join(s for f in FORMATS for s in f.suffixes)
    raise ValueError(
        f"{path}: neither its ending (known: {endings}) nor its first bytes tell the format; "
        f"say format=..., one of {_names(FORMATS)}"
    )


def format_of_name(path: str, name: str | None = None) -> Format | None:
    """The format that the caller names, or the ending of a path; None if neither says it.

    Raises
    ------
    ValueError
        If there is no format of that name.
    """
    if name is not None:
        for known in FORMATS:
            if known.name == name:
                return known
        raise ValueError(f"format={name!r}: the formats are {_names(FORMATS)}")
    lower = path.rstrip("/").lower()
    matches = [(s, f) for f in FORMATS for s in f.suffixes if lower.endswith(s)]
    return max(matches, key=lambda match: len(match[0]))[1] if matches else None


@contextmanager
def naming(path: str, what: str) -> Iterator[None]:
    """Make an error of a format's library one that names the file, and says what to do.

    Parameters
    ----------
    path : str
    what : str
        What is being read.
    """
    error: Exception
    try:
        yield
        return
    except (ImportError, MemoryError, DistArrayError):
        raise
    except Exception as caught:
        error = caught
    number = getattr(error, "errno", None) or 0  # the system's are positive, NetCDF's negative
    if number >= 0 and os.path.basename(path.rstrip("/")) in str(error):
        raise error
    if number > 0:
        raise type(error)(number, os.strerror(number), path) from error
    raise DamagedFileError(
        f"{path}: {what} cannot be read ({type(error).__name__}: {error}). It is damaged, not "
        "complete, or of another format than it seems; write it again, or read a copy"
    ) from error


@contextmanager
def creating(path: str, what: str, whose: str) -> Iterator[None]:
    """Make an error of a format's library about something new one that names it, and the file.

    Parameters
    ----------
    path : str
    what : str
        What is made.
    whose : str
        The function whose options are taken.
    """
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        if path in str(error):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        why = f"{path}: {what} cannot be written: {error}. Options are those of {whose}"
        raise kind(why) from error


class Named:
    """A stored array whose errors name the file.

    Parameters
    ----------
    source : Source
    path, what : str
        The file, and which array of it.
    """

    __slots__ = ("_path", "_source", "_what", "chunks", "dtype", "shape")

    def __init__(self, source: Source, path: str, what: str) -> None:
        self._source, self._path, self._what = source, path, what
        self.shape, self.dtype, self.chunks = source.shape, source.dtype, source.chunks

    def read(self, section: Box, out: np.ndarray[Any, Any]) -> None:
        """Read a box."""
        with naming(self._path, self._what):
            self._source.read(section, out)


def is_zarr(path: str) -> bool:
    """Whether a path is a directory that is marked as a Zarr store."""
    return any(os.path.isfile(os.path.join(path, mark)) for mark in _ZARR_MARKS)


def local_path(given: str | bytes | os.PathLike[Any]) -> str:
    """A path without ``file://``: any format reads and writes files of this machine."""
    path = os.fsdecode(given)
    for scheme in ("file://", "local://"):
        path = path.removeprefix(scheme)
    return path


def check_options(known: Format, function: str, options: Mapping[str, Any], call: str) -> None:
    """Raise if a format's function takes no such options.

    Those that it hands on to a library are the library's to check.
    """
    taken = signature(getattr(module_of(known), function)).parameters.values()
    names = [each.name for each in taken if each.kind is each.KEYWORD_ONLY]
    if any(each.kind is each.VAR_KEYWORD for each in taken):
        return
    for name in options:
        if name not in names:
            has = f"its options are {', '.join(names)}" if names else "it has none"
            raise TypeError(f"{call}: {known.name} files have no option {name!r}; {has}")


def check_tree(path: str, names: Iterable[str]) -> None:
    """Raise if a name is that of an array and of a group of arrays, or two mean the same.

    For formats in which slashes make groups.
    """
    parts = {name: tuple([part for part in name.split("/") if part]) for name in names}
    for name, own in parts.items():
        if "." in own:
            raise ValueError(f"{path}: {name!r} names a group or an array '.', which means itself")
    known: dict[tuple[str, ...], str] = {}
    for name, own in parts.items():
        if not own or known.setdefault(own, name) != name:
            other = f"the same as {known[own]!r}" if own else "no name"
            raise ValueError(f"{path}: {name!r} is {other}, for slashes make groups; rename it")
    for name, own in parts.items():
        for end in range(1, len(own)):
            if own[:end] in known:
                raise ValueError(
                    f"{path}: {name!r} is in a group {'/'.join(own[:end])!r}, and an array of that "
                    "name already exists, for slashes make groups; rename one of them"
                )


def check_labels(arrays: Mapping[str, Any], **said: Mapping[str, Any] | None) -> None:
    """Raise if something is said about an array that is not written, or of too many dimensions.

    Parameters
    ----------
    arrays : mapping of str to DistArray
        What is written.
    **said : mapping of str, by array
        ``dims`` gives each dimension a name.
    """
    for what, labels in said.items():
        for name in labels or ():
            if name not in arrays:
                raise ValueError(
                    f"{what}[{name!r}]: there is no such array; written are {[*arrays]}"
                )
    for name, words in (said.get("dims") or {}).items():
        if len(words) != arrays[name].ndim:
            raise ValueError(
                f"dims[{name!r}] = {tuple(words)} names {len(words)} dimension(s) of an array of "
                f"{arrays[name].ndim}"
            )


def _first_bytes(path: str) -> bytes:
    if "://" in path or not Path(path).is_file():
        return b""
    with Path(path).open("rb") as file:
        return file.read(16)


def _names(formats: Iterable[Format]) -> str:
    return ", ".join(repr(known.name) for known in formats)


def module_of(known: Format) -> ModuleType:
    """The module of a format."""
    return import_module(known.module)
