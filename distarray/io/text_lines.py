"""Lines of a text file, whose bytes are divided among the ranks."""

from __future__ import annotations

import os
import stat
from codecs import lookup
from collections.abc import Callable, Mapping, Sequence
from io import BufferedReader, RawIOBase, TextIOWrapper
from locale import getpreferredencoding
from typing import IO, TYPE_CHECKING, Any, TypeAlias

import numpy as np

from distarray.array import DistArray, distribute, placed_layout, to_layout, wrap
from distarray.comm import DeviceMesh
from distarray.io.input_files import Origin
from distarray.io.rank_zero import found_on_rank_zero
from distarray.layout import Cut, Layout
from distarray.typing import Array, ArrayLike, Placements

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

__all__ = ["COMPRESSED", "Comments", "is_divisible", "parsed", "share_of", "spread"]

#: Marks that begin a comment.
Comments: TypeAlias = str | bytes | Sequence[str | bytes] | None

#: Endings of the names of files that NumPy decompresses.
COMPRESSED = (".gz", ".bz2", ".xz")
#: Encodings in which bytes of whole lines can be decoded alone, and a line ends with byte 10.
_BYTEWISE = frozenset({"ascii", "utf-8", "iso8859-1", "iso8859-15", "cp1252"})
#: Minimum size of a text that is divided, in bytes.
_WORTH = 1 << 20
_BUFFER = 1 << 20


def is_divisible(encoding: str | None) -> bool:
    """Return True if the bytes of a text in this encoding (None: the system's) show its lines."""
    try:
        return lookup(encoding or getpreferredencoding(False)).name in _BYTEWISE
    except LookupError:
        return False


class _Stretch(RawIOBase):
    """File object that reads a range of bytes of another file."""

    def __init__(self, file: IO[bytes], start: int, stop: int) -> None:
        super().__init__()
        self._file: Any = file  # has readinto
        self._left = stop - start
        file.seek(start)

    def readable(self) -> bool:
        """Return True: the object can be read."""
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        """Read bytes into a buffer; return their number."""
        view = memoryview(buffer).cast("B")[: self._left]
        count: int = self._file.readinto(view)
        self._left -= count
        return count


def share_of(file: IO[bytes], size: int, number: int, ways: int) -> tuple[int, int]:
    """Return the byte range of a share of a file: the lines that begin in its part of the bytes."""
    return _line_from(file, size * number // ways, size), _line_from(
        file, size * (number + 1) // ways, size
    )


def _line_from(file: IO[bytes], place: int, size: int) -> int:
    """Return the first byte of the first line that begins at byte `place` or later."""
    if place <= 0 or place >= size:
        return min(max(place, 0), size)
    file.seek(place - 1)
    part = b"no newline"
    while part and not part.endswith(b"\n"):
        part = file.readline(_BUFFER)
    return min(int(file.tell()), size)


def parsed(
    origin: Origin,
    reader: Callable[..., Array],
    keywords: Mapping[str, Any],
    skip: int,
    mesh: DeviceMesh,
) -> DistArray | None:
    """Parse the rows of a text file; each rank holds the rows that it parsed; collective.

    Parameters
    ----------
    origin : Origin
        The file; it is divided only if all ranks name the same path.
    reader : callable
        NumPy's function; it takes an open text file and `keywords`.
    keywords : mapping
    skip : int
        Number of lines to skip at the beginning.
    mesh : DeviceMesh
        The mesh whose ranks read.

    Returns
    -------
    DistArray or None
        Rows in one or two dimensions. None, on all ranks, if the file has to be read as a whole:
        it is small or not plain text, or an error occurred on some rank.
    """
    size = _divisible_size(origin, keywords.get("encoding"), mesh)
    if not size:
        return None
    values = None
    try:
        values = _own_rows(str(origin.path), size, reader, keywords, skip, mesh)
        said: Any = None if values is None else (values.shape, values.dtype)
    except Exception:  # NumPy raises it again when the whole file is read
        said = "failed"
    found = mesh.group.allgather_object(said, "rows of a text")
    kinds = {repr((each[0][1:], each[1])) for each in found if isinstance(each, tuple)}
    if "failed" in found or len(kinds) != 1:
        return None
    rows = [each[0][0] if each is not None else 0 for each in found]
    shape, dtype = next(each for each in found if each is not None)
    if values is None:
        values = np.empty((0, *shape[1:]), dtype)
    everyone = tuple(range(len(mesh.shape)))
    cuts = [Cut.ragged(rows, everyone, mesh.shape), *[Cut.whole(n) for n in shape[1:]]]
    return wrap(mesh.asarray(values), Layout.from_cuts(cuts, mesh.shape), mesh)


def _divisible_size(origin: Origin, encoding: str | None, mesh: DeviceMesh) -> int:
    """Return the size of a text that is to be divided, 0 if it is not; equal on all ranks."""
    path = origin.path
    if mesh.coords is None or mesh.size() == 1 or not origin.one or not isinstance(path, str):
        return 0
    plain = "://" not in path and not path.endswith(COMPRESSED)
    if not plain or not is_divisible(_codec(encoding)):
        return 0

    def look() -> int:
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return 0  # NumPy raises the error later
        return found.st_size if stat.S_ISREG(found.st_mode) and found.st_size >= _WORTH else 0

    return found_on_rank_zero(look, mesh)


def _codec(encoding: str | None) -> str | None:
    """Return the encoding of a text; None, the system's encoding, for NumPy's "bytes"."""
    return None if encoding == "bytes" else encoding


def _own_rows(
    path: str,
    size: int,
    reader: Callable[..., Array],
    keywords: Mapping[str, Any],
    skip: int,
    mesh: DeviceMesh,
) -> Array | None:
    """Parse the rows in this rank's share; return None if it has no rows."""
    coding = _codec(keywords.get("encoding"))
    with open(path, "rb", buffering=_BUFFER) as file:
        start, stop = share_of(file, size, mesh.rank, mesh.size())
        if mesh.rank == 0:
            file.seek(0)
            for _ in range(skip):
                file.readline()
            if file.tell() > stop:
                raise ValueError("lines to leave out reach into another rank's share")
            start = file.tell()
        if not _has_rows(file, start, stop, keywords.get("comments"), coding):
            return None
        text = TextIOWrapper(BufferedReader(_Stretch(file, start, stop), _BUFFER), coding)
        return reader(text, **keywords)


def _has_rows(
    file: IO[bytes], start: int, stop: int, comments: Comments, coding: str | None
) -> bool:
    """Return True if a share has a line that is neither empty nor a comment."""
    marks = [comments] if isinstance(comments, (str, bytes)) else list(comments or ())
    texts = [mark.decode("latin1") if isinstance(mark, bytes) else mark for mark in marks]
    with TextIOWrapper(BufferedReader(_Stretch(file, start, stop), 1 << 13), coding) as text:
        for line in text:
            for mark in texts:
                line = line.partition(mark)[0]
            if line.strip():
                return True
    return False


def spread(
    values: ArrayLike | list[Array], mesh: DeviceMesh, placements: Placements | None
) -> DistArray | list[DistArray]:
    """Distribute an array, or the columns of a structured array, with the given placements."""
    if isinstance(values, list):
        return [_spread(column, mesh, placements) for column in values]
    return _spread(values, mesh, placements)


def _spread(values: ArrayLike, mesh: DeviceMesh, placements: Placements | None) -> DistArray:
    if not isinstance(values, DistArray):
        return distribute(values, mesh, placements, src=None)
    x = values.plain()
    return to_layout(x, placed_layout(x.shape, x.dtype, mesh, placements))
