"""The files that NumPy's functions read: one path for all ranks, or a file of each rank's own."""

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
#: What NumPy reads text from: also the lines themselves.
InputFile: TypeAlias = FileLike | Iterable[str] | Iterable[bytes]


class Origin(NamedTuple):
    """Where arrays are read from.

    Attributes
    ----------
    path : str, bytes or None
        None if this rank was given something else, such as an open file.
    one : bool
        Whether all ranks were given one path.
    stream : bool
        Whether the path leads to a pipe, socket or device, from which one rank alone can read.
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
    """Where to read from, once all ranks make the same call; collective, and a barrier.

    So a file that one rank has written before is complete when the others open it.

    Parameters
    ----------
    call : str
        The function, for messages.
    file : path-like or object
        What this rank was given.
    mesh : DeviceMesh
        Its ranks read.
    said : mapping
        Other arguments by name, equal on all ranks.
    error : Exception, optional
        What this rank has found wrong already; raised on all ranks.
    """
    path = os.fspath(file) if isinstance(file, (str, bytes, os.PathLike)) else None
    stream = path is not None and is_stream(path)
    kind = "no path" if path is None else "a pipe or device" if stream else "a path"
    kinds = Argument("the ranks give different kinds of files", kind)
    own = os.fsdecode(os.path.abspath(path)) if path is not None else ""
    found = same_call(mesh.group, call, [kinds, *options_said(said)], error=error, own=own)
    return Origin(path, found.one and path is not None, stream)


def read_whole(origin: Origin, call: str, read: Callable[[], T], mesh: DeviceMesh) -> T:
    """A value that every rank reads, or rank 0 for all from a pipe or device; collective."""
    if origin.one and origin.stream:
        return found_on_rank_zero(read, mesh)
    return read_by_each(call, read, mesh)


def read_by_each(
    call: str, read: Callable[[], T], mesh: DeviceMesh, words: Callable[[Array], str] = value_words
) -> T:
    """A value that every rank reads by itself; raises on all if one fails or reads another.

    Collective.

    Parameters
    ----------
    call : str
        The function, for messages.
    read : callable
        Reads on this rank.
    mesh : DeviceMesh
        Its ranks read.
    words : callable
        Describes an array that has been read; its texts must be equal on all ranks.
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
