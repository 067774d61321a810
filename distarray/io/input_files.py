"""Where arrays are read from: one path for all ranks, or what each rank has opened for itself."""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from distarray.comm import DeviceMesh
from distarray.comm.alike import Said, same_call
from distarray.io.fingerprints import options_said, value_words

__all__ = ["Origin", "origin_of", "read_by_each"]

T = TypeVar("T")


class Origin(NamedTuple):
    """Where arrays are read from.

    Attributes
    ----------
    path : str or None
        None if this rank was given something else, such as an open file.
    one : bool
        Whether all ranks name one path.
    """

    path: Any
    one: bool


def origin_of(
    call: str,
    file: Any,
    mesh: DeviceMesh,
    said: Mapping[str, Any],
    error: Exception | None = None,
) -> Origin:
    """Where to read from, once all ranks make the same call; collective, and a barrier.

    Who writes the file before on one rank alone has done so when others open it.

    Parameters
    ----------
    call : str
        The function, for messages.
    file : path-like or object
        What this rank was given.
    mesh : DeviceMesh
        Whose ranks read.
    said : mapping
        Other arguments by name, equal on all ranks.
    error : Exception, optional
        What this rank has found wrong already; raised on all ranks.
    """
    is_path = isinstance(file, (str, bytes, os.PathLike))
    path = os.fspath(file) if is_path else None
    kind = Said("the ranks give different kinds of files", "a path" if is_path else "no path")
    own = os.fsdecode(os.path.abspath(path)) if path is not None else ""
    found = same_call(mesh.group, call, [kind, *options_said(said)], error=error, own=own)
    return Origin(path, found.one and is_path)


def read_by_each(
    call: str, read: Callable[[], T], mesh: DeviceMesh, words: Callable[[Any], str] = value_words
) -> T:
    """What every rank reads whole, by itself; raises on all if one fails or has other values.

    Collective.

    Parameters
    ----------
    call : str
        The function, for messages.
    read : callable
        Reads.
    mesh : DeviceMesh
        Whose ranks read.
    words : callable
        What all ranks must have alike of an array that has been read.
    """
    error: Exception | None = None
    found: Any = None
    try:
        found = read()
    except Exception as caught:
        error = caught
    what = words(found) if isinstance(found, (np.ndarray, np.generic)) else ""
    cure = "give one path on all ranks, or files with the same content"
    said = Said("the ranks read different values", what, cure)
    same_call(mesh.group, call, [said], error=error)
    values: T = found
    return values
