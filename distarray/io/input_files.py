"""Files that NumPy's functions read: one path for all ranks, or one file per rank."""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from distarray.comm import DeviceMesh
from distarray.comm.same_call import Argument, same_call
from distarray.io.file_paths import FileLike
from distarray.io.fingerprints import options_said, value_words
from distarray.io.ordinary_files import is_stream
from distarray.io.rank_zero import found_on_rank_zero
from distarray.typing import Array

__all__ = ["InputFile", "Origin", "origin_of", "read_by_each", "read_whole"]

T = TypeVar("T")
#: Input of NumPy's text functions: a file, or an iterable of lines.
InputFile: TypeAlias = FileLike | Iterable[str] | Iterable[bytes]


class Origin(NamedTuple):
    """Origin of arrays that are read.

    Attributes
    ----------
    path : str, bytes or None
        The path; None if this rank was given an open file or lines.
    one : bool
        True if all ranks were given the same path.
    stream : bool
        True if the path refers to a pipe, socket or device, which only one rank can read.
    """

    path: str | bytes | None
    one: bool
    stream: bool = False


def origin_of(
    call: str,
    file: InputFile,
    mesh: DeviceMesh,
    said: Mapping[str, Any],
    error: Exception | None = None,
) -> Origin:
    """Check that all ranks make the same call; return the origin. Collective, and a barrier.

    Because of the barrier, a file that one rank has written before the call is complete when the
    other ranks open it.

    Parameters
    ----------
    call : str
        The function's name for error texts.
    file : path-like or object
        The argument `file` on this rank.
    mesh : DeviceMesh
        The mesh whose ranks read.
    said : mapping
        Other arguments by name, equal on all ranks.
    error : Exception, optional
        An error that this rank has already found; it is raised on all ranks.
    """
    path = os.fspath(file) if isinstance(file, (str, bytes, os.PathLike)) else None
    stream = path is not None and is_stream(path)
    kind = "no path" if path is None else "a pipe or device" if stream else "a path"
    kinds = Argument("the ranks give different kinds of files", kind)
    own = os.fsdecode(os.path.abspath(path)) if path is not None else ""
    found = same_call(mesh.group, call, [kinds, *options_said(said)], error=error, own=own)
    return Origin(path, found.one and path is not None, stream)


def read_whole(origin: Origin, call: str, read: Callable[[], T], mesh: DeviceMesh) -> T:
    """Read a value on every rank; from a pipe or device on rank 0, for all ranks; collective."""
    if origin.one and origin.stream:
        return found_on_rank_zero(read, mesh)
    return read_by_each(call, read, mesh)


def read_by_each(
    call: str, read: Callable[[], T], mesh: DeviceMesh, words: Callable[[Array], str] = value_words
) -> T:
    """Read a value on every rank; raise on all if one rank fails or the values differ; collective.

    Parameters
    ----------
    call : str
        The function's name for error texts.
    read : callable
        Function that reads the value on this rank.
    mesh : DeviceMesh
        The mesh whose ranks read.
    words : callable
        Function that returns the fingerprint of an array; fingerprints must be equal on all ranks.
    """
    error: Exception | None = None
    found: Any = None
    try:
        found = read()
    except Exception as caught:
        error = caught
    what = words(np.asarray(found)) if isinstance(found, (np.ndarray, np.generic)) else ""
    cure = "give one path on all ranks, or files with the same content"
    said = Argument("the ranks read different values", what, cure)
    same_call(mesh.group, call, [said], error=error)
    values: T = found
    return values
