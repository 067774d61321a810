"""Where a file goes that NumPy's functions write: one path for all ranks, or a rank's own object.

A program that every rank runs hands over a path, or a file that every rank has opened. One path is
one file, which all ranks write together. Of files that are open, rank 0 writes into its own, and so
does every rank whose object is not that same file (an ``io.BytesIO``, a temporary file): each ends
up with what it would have in a program of one process.
"""

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BufferedRandom, BufferedWriter, FileIO, TextIOWrapper
from typing import Any, NamedTuple

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.comm.agree import agree, agreed
from distarray.comm.alike import Said, same_call
from distarray.comm.files import open_file
from distarray.io.atomic_file import named
from distarray.io.contiguous import ALONE, pieces, whole, write_body
from distarray.io.fingerprints import options_said, value_words

__all__ = [
    "Part",
    "Target",
    "Writing",
    "put",
    "size_of",
    "store",
    "target_for",
    "write_through",
]

#: Bytes as they are, or an array whose elements follow in C order.
Part = bytes | DistArray
#: ``write(file, everywhere)``: communicates, writes unless `file` is None, and brings back what
#: went wrong; `everywhere` says whether other ranks than 0 write as well.
Writing = Callable[[Any, bool], Exception | None]

_BINARY = (FileIO, BufferedWriter, BufferedRandom)
_REAL = (*_BINARY, TextIOWrapper)


class Target(NamedTuple):
    """Where arrays are written to.

    Attributes
    ----------
    file : str or file object
        What this rank was given.
    one : bool
        Whether all ranks name one path.
    order : list of str
        Names of the arrays, in the same order on all ranks.
    """

    file: Any
    one: bool = True
    order: list[str] = []  # noqa: RUF012


def target_for(
    call: str,
    file: Any,
    arrays: Mapping[str, Any],
    mesh: DeviceMesh,
    said: Mapping[str, Any],
    *,
    ending: str = "",
    error: Exception | None = None,
) -> Target:
    """Where to write, once all ranks bring the same arrays; collective, and a barrier.

    Parameters
    ----------
    call : str
        The function, for messages.
    file : path-like or file object
        What this rank was given.
    arrays : mapping of str to array_like
        What is written.
    mesh : DeviceMesh
        Whose ranks write.
    said : mapping
        Other arguments by name, equal on all ranks.
    ending : str
        What is added to a path that does not have it.
    error : Exception, optional
        What this rank has found wrong already; raised on all ranks.
    """
    is_open, target = hasattr(file, "write"), file
    words: dict[str, str] = {}
    try:
        words = {name: value_words(value) for name, value in arrays.items()}
        if not is_open:
            path = os.fspath(file)
            target = path if not ending or path.endswith(ending) else path + ending
    except Exception as caught:
        error = error or caught
    kind = Said("the ranks give different kinds of files", "an open file" if is_open else "a path")
    own = "" if is_open or error else os.fsdecode(os.path.abspath(target))
    found = same_call(mesh.group, call, [kind, *options_said(said)], words, error, own=own)
    return Target(target, found.one and not is_open, found.order)


def size_of(part: Part) -> int:
    """Bytes of a part."""
    return part.nbytes if isinstance(part, DistArray) else len(part)


def store(target: Target, parts: Sequence[Part], mesh: DeviceMesh) -> None:
    """Write bytes and arrays one after another to a path or an open file; collective.

    Parameters
    ----------
    target : Target
        A path is emptied first; a file object is written to from where it stands.
    parts : sequence of bytes or DistArray
        Equal on all ranks; arrays on `mesh`, without pending folds.
    mesh : DeviceMesh
        Whose ranks take part.

    Raises
    ------
    OSError, ...
        On all ranks, if writing fails on one.
    """

    def write(file: Any, everywhere: bool) -> Exception | None:
        return _copied(file, parts, everywhere)

    if mesh.coords is None:
        return
    total = sum([size_of(part) for part in parts])
    if not target.one or total <= ALONE or mesh.size() == 1:
        write_through(target, write, mesh)
        return
    with open_file(mesh.group, target.file, "w", total) as file:
        offset = 0
        for part in parts:
            if isinstance(part, DistArray) and part.ndim:
                write_body(file, offset, part)
            else:
                data = part if isinstance(part, bytes) else whole(part, False)
                file.write_all(offset, data if mesh.rank == 0 else None)
            offset += size_of(part)


def write_through(
    target: Target, write: Writing, mesh: DeviceMesh, opener: Callable[[], Any] | None = None
) -> None:
    """Write from beginning to end: rank 0, or each rank what is its own; collective.

    All ranks are here: nobody still reads what was in the file, or empties it.
    """
    if hasattr(target.file, "write"):
        _stream(target.file, write, mesh)
    else:
        _through_path(target.file, write, mesh, everywhere=not target.one, opener=opener)


def _through_path(
    path: str,
    write: Writing,
    mesh: DeviceMesh,
    *,
    everywhere: bool = False,
    opener: Callable[[], Any] | None = None,
) -> None:
    """Write a file from its beginning to its end, on rank 0 or each rank its own; collective."""
    group = mesh.group
    opens = everywhere or group.rank == 0
    act = opener or (lambda: open(path, "wb"))  # noqa: SIM115
    file = agreed(group, lambda: act() if opens else None)
    error = write(file, everywhere)
    try:
        if file is not None:
            file.close()
    except OSError as caught:
        error = error or caught
    agree(group, None if error is None else named(error, path, path))


def _stream(file: Any, write: Writing, mesh: DeviceMesh) -> None:
    """Write to a file that each rank has opened; collective.

    Parameters
    ----------
    file : file object
        This rank's.
    write : callable
        See `Writing`.
    mesh : DeviceMesh
        Whose ranks take part.
    """
    group = mesh.group
    known = group.allgather_object(_identity(file))
    follows = [
        rank > 0 and own is not None and own in ("", known[0]) for rank, own in enumerate(known)
    ]
    writes = not follows[group.rank]
    error = write(file if writes else None, not all(follows[1:]))
    if writes and error is None:
        error = _tried(lambda: file.flush() if hasattr(file, "flush") else None)
    agree(group, error)
    place = group.broadcast_object(_told(file) if group.rank == 0 else None, 0)
    if not writes and place is not None:
        file.seek(place)


def _identity(file: Any) -> Any:
    """What tells files on disk apart; "" for one whose content goes nowhere, None for others."""
    if not isinstance(file, _REAL):
        return None
    try:
        found = os.fstat(file.fileno())
    except (OSError, ValueError):
        return None
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == os.stat(os.devnull).st_rdev:
        return ""
    if not stat.S_ISREG(found.st_mode):
        return None
    return file.name, found.st_ino, found.st_size, found.st_mtime_ns


def _told(file: Any) -> int | None:
    try:
        place: int = file.tell()
    except (AttributeError, OSError, ValueError):
        return None
    return place


def _copied(file: Any, parts: Iterable[Part], everywhere: bool) -> Exception | None:
    """Write parts to this rank's file, if it has one; brings back what went wrong."""
    error: Exception | None = None
    for part in parts:
        for piece in [part] if isinstance(part, bytes) else pieces(part, everywhere):
            if file is not None and piece is not None and error is None:
                error = _tried(lambda data=piece: put(file, data))  # type: ignore[misc]
    return error


def _tried(act: Callable[[], object]) -> Exception | None:
    """Do something, and give back what went wrong."""
    try:
        act()
    except Exception as caught:
        return caught
    return None


def put(file: Any, data: Any) -> None:
    """Write bytes or a C-contiguous array to a file object.

    Not by ``ndarray.tofile``, which does not notice a disk that is full when it closes its stream.
    """
    if not isinstance(file, _BINARY):
        file.write(data if isinstance(data, bytes) else data.tobytes())
        return
    if not isinstance(data, bytes):
        data = data.reshape(-1).view(np.uint8) if data.nbytes else b""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
