"""Files that NumPy's functions write: one path for all ranks, or one file object per rank.

Every rank passes a path, or a file that it has opened. One path is one file, which all ranks write
together, and which gets its name when its content is on disk. With open files, rank 0 writes into
its file, and so does every rank whose object is a different file (an ``io.BytesIO``, a temporary
file). Each file then has the content that it would have in a program of one process. Open files are
written directly, without a temporary name.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BufferedRandom, BufferedWriter, FileIO, TextIOWrapper
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.comm.agree import agree, agreed
from distarray.comm.files import SharedFile, bring_to_disk, open_file
from distarray.comm.progress import advance, stage
from distarray.comm.same_call import Argument, same_call
from distarray.io.atomic_file import (
    Place,
    begin,
    discard,
    finish,
    taking_its_name,
    with_final_name,
)
from distarray.io.contiguous import ALONE, pieces, whole, write_body
from distarray.io.file_errors import tried
from distarray.io.file_paths import FileLike
from distarray.io.fingerprints import options_said, value_words
from distarray.io.rank_zero import on_rank_zero
from distarray.typing import Array, ArrayLike

__all__ = [
    "Part",
    "Target",
    "Wrapping",
    "Writing",
    "put",
    "size_of",
    "store",
    "target_for",
    "write_file",
]

#: Part of a file: bytes, or an array whose elements are written in C order.
Part: TypeAlias = bytes | DistArray
#: Function ``write(file, everywhere)``: collective. It writes unless `file` is None, and returns
#: this rank's exception or None. `everywhere` is True if ranks other than 0 write as well.
Writing: TypeAlias = Callable[[IO[Any] | None, bool], Exception | None]
#: Function that wraps a binary file in the file that is written to, for example to compress.
Wrapping: TypeAlias = Callable[[BufferedWriter], IO[Any]]

_BINARY = (FileIO, BufferedWriter, BufferedRandom)
_REAL = (*_BINARY, TextIOWrapper)


class Target(NamedTuple):
    """Target that arrays are written to.

    Attributes
    ----------
    file : str or file object
        The path or file object on this rank.
    one : bool
        True if all ranks were given the same path.
    order : list of str
        Names of the arrays, in the same order on all ranks.
    """

    file: FileLike
    one: bool = True
    order: list[str] = []  # noqa: RUF012


def target_for(
    call: str,
    file: FileLike,
    arrays: Mapping[str, ArrayLike],
    mesh: DeviceMesh,
    said: Mapping[str, Any],
    *,
    ending: str = "",
    error: Exception | None = None,
) -> Target:
    """Check that all ranks write the same arrays; return the target. Collective, and a barrier.

    Parameters
    ----------
    call : str
        The function's name for error texts.
    file : path-like or file object
        The argument `file` on this rank.
    arrays : mapping of str to array_like
        The arrays that are written.
    mesh : DeviceMesh
        The mesh whose ranks write.
    said : mapping
        Other arguments by name, equal on all ranks.
    ending : str
        Ending that is added to a path without it.
    error : Exception, optional
        An error that this rank has already found; it is raised on all ranks.
    """
    is_open, target = hasattr(file, "write"), file
    words: dict[str, str] = {}
    own = ""
    try:
        words = {name: value_words(value) for name, value in arrays.items()}
        if not is_open:
            path: Any = os.fspath(file)  # type: ignore[arg-type]
            target = path if not ending or path.endswith(ending) else path + ending
            own = os.fsdecode(os.path.abspath(target))
    except Exception as caught:
        error = error or caught
    kind = Argument(
        "the ranks give different kinds of files", "an open file" if is_open else "a path"
    )
    found = same_call(mesh.group, call, [kind, *options_said(said)], words, error, own=own)
    return Target(target, found.one and not is_open, found.order)


def size_of(part: Part | Array) -> int:
    """Return the size of a part in bytes."""
    return len(part) if isinstance(part, bytes) else part.nbytes


def store(target: Target, parts: Sequence[Part], mesh: DeviceMesh) -> None:
    """Write bytes and arrays one after another to a path or an open file; collective.

    Parameters
    ----------
    target : Target
        The target; a file object is written to from its position on.
    parts : sequence of bytes or DistArray
        Equal on all ranks; arrays on `mesh`, without pending folds.
    mesh : DeviceMesh
        The mesh whose ranks write.

    Raises
    ------
    OSError, ...
        On all ranks, if writing fails on one rank; a file at the path is then unchanged.
    """

    def write(file: IO[Any] | None, everywhere: bool) -> Exception | None:
        with stage("writing", total, "B"):
            return _copied(file, parts, everywhere)

    def together(file: SharedFile) -> None:
        offset = 0
        for part in parts:
            if isinstance(part, DistArray) and part.ndim:
                write_body(file, offset, part)
            else:
                data = part if isinstance(part, bytes) else whole(part, False)
                file.write_at(offset, data if mesh.rank == 0 else None)
            offset += size_of(part)

    if mesh.coords is None:
        return
    total = sum([size_of(part) for part in parts])
    if total <= ALONE:
        write_file(target, mesh, write)
    else:
        write_file(target, mesh, write, together, total)


def write_file(
    target: Target,
    mesh: DeviceMesh,
    write: Writing,
    together: Callable[[SharedFile], None] | None = None,
    size: int = 0,
    wrap: Wrapping | None = None,
) -> None:
    """Write one shared file, one file per rank, or the ranks' open files; collective.

    The caller has synchronized the ranks: no rank still reads an old file at the path.

    Parameters
    ----------
    target : Target
    mesh : DeviceMesh
        The mesh whose ranks write.
    write : callable
        Function that writes a file from beginning to end, on rank 0 or on every rank.
    together : callable, optional
        Function that writes a file that all ranks have opened, which is faster; collective.
    size : int
        Size of the file that `together` writes, in bytes, if known.
    wrap : callable, optional
        Function that wraps a new binary file in the file that is written to.
    """
    file: Any = target.file
    if hasattr(file, "write"):
        _stream(file, write, mesh)
        return
    path, group = os.fsdecode(file), mesh.group
    if together is None or not target.one or group.size == 1:
        _write_in_order(lambda: begin(path), write, mesh, wrap, everywhere=not target.one)
        return
    place = on_rank_zero(group, lambda: begin(path, size))
    if not place.aside:
        _write_in_order(lambda: place, write, mesh, wrap, everywhere=False)
        return
    with taking_its_name(place, group), open_file(group, place.aside, "w", size) as shared:
        together(shared)


class _New:
    """New file that this rank writes alone."""

    def __init__(self, place: Place, wrap: Wrapping | None) -> None:
        self.place = place
        flags = os.O_WRONLY | os.O_CLOEXEC
        if not place.aside:
            flags |= os.O_CREAT | os.O_TRUNC
        self._descriptor = os.open(place.aside or place.path, flags, 0o666)
        self._binary = open(self._descriptor, "wb", closefd=False)  # noqa: SIM115
        self.file: IO[Any] = self._binary if wrap is None else wrap(self._binary)

    def close(self) -> None:
        """Write buffered bytes, bring the file to disk and close it."""
        try:
            self.file.close()
            self._binary.close()
            if self.place.aside:
                bring_to_disk(self._descriptor)
        finally:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def discard(self) -> None:
        """Remove the file, unless it already has its final name."""
        if self._descriptor >= 0:
            tried(self.close)
        discard(self.place)


def _write_in_order(
    begin_here: Callable[[], Place],
    write: Writing,
    mesh: DeviceMesh,
    wrap: Wrapping | None,
    *,
    everywhere: bool,
) -> None:
    """Write a path from beginning to end, on rank 0 or on every rank; collective."""
    group, made = mesh.group, []

    def create() -> None:
        made.append(_New(begin_here(), wrap))

    try:
        agreed(group, lambda: create() if everywhere or group.rank == 0 else None)
        error = write(made[0].file if made else None, everywhere)
        for new in made:
            error = error or tried(new.close)
        if everywhere:  # a rank replaces its file only if all ranks can
            agree(group, error)
        for new in made:
            error = error or tried(finish, new.place)
            error = error and _named(error, new.place)
        agree(group, error)
    except BaseException:
        for new in made:
            new.discard()
        raise


def _named(error: Exception, place: Place) -> Exception:
    """Return the error with the file name that the caller knows."""
    return with_final_name(error, place.aside or place.path, place.path)


def _stream(file: IO[Any], write: Writing, mesh: DeviceMesh) -> None:
    """Write to the files that the ranks have opened; collective.

    A rank that has opened the same file as rank 0 does not write; its file position is set to that
    of rank 0.
    """
    group = mesh.group
    known = group.allgather_object(_identity(file))
    follows = [
        rank > 0 and own is not None and own in ("", known[0]) for rank, own in enumerate(known)
    ]
    writes = not follows[group.rank]
    error = write(file if writes else None, not all(follows[1:]))
    if writes and error is None:
        error = tried(file.flush) if hasattr(file, "flush") else None
    agree(group, error)
    place = group.broadcast_object(_told(file) if group.rank == 0 else None, 0)
    if not writes and place is not None:
        file.seek(place)


def _identity(file: IO[Any]) -> tuple[object, ...] | str | None:
    """Return the identity of a file on disk; "" for the null device, None for other objects."""
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


def _told(file: IO[Any]) -> int | None:
    try:
        place: int = file.tell()
    except (AttributeError, OSError, ValueError):
        return None
    return place


def _copied(file: IO[Any] | None, parts: Iterable[Part], everywhere: bool) -> Exception | None:
    """Write parts to this rank's file, if it has one; return the exception or None."""
    error: Exception | None = None
    for part in parts:
        for piece in [part] if isinstance(part, bytes) else pieces(part, everywhere):
            if file is not None and piece is not None and error is None:
                error = tried(put, file, piece)
                advance(size_of(piece))
    return error


def put(file: IO[Any], data: bytes | Array) -> None:
    """Write bytes or a C-contiguous array to a file object.

    ``ndarray.tofile`` is not used: it does not detect a full disk when it closes its stream.
    """
    if isinstance(file, TextIOWrapper):  # NumPy bypasses it and writes to its descriptor
        file.flush()
        put(file.buffer, data)
        file.buffer.flush()
        return
    if not isinstance(file, _BINARY):
        file.write(data if isinstance(data, bytes) else data.tobytes())
        return
    if not isinstance(data, bytes):
        data = data.reshape(-1).view(np.uint8) if data.nbytes else b""
    view = memoryview(data if isinstance(data, bytes) else data.data)
    while view:
        view = view[file.write(view) :]
