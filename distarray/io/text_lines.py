"""The lines of a text file, divided among ranks by its bytes."""

import os
import stat
from collections.abc import Callable, Mapping
from io import BufferedReader, RawIOBase, TextIOWrapper
from typing import Any

import numpy as np

from distarray.array import DistArray, distribute, placed_layout, to_layout, wrap
from distarray.comm import DeviceMesh
from distarray.io.contiguous_reading import Placements
from distarray.io.encodings import PACKED, is_piecewise
from distarray.io.input_files import Origin
from distarray.io.numpy_save import found_on_rank_0
from distarray.layout import Cut, Layout

__all__ = ["parsed", "share_of", "spread"]

#: Bytes from which on it pays to divide a text.
_WORTH = 1 << 20
_BUFFER = 1 << 20


class _Stretch(RawIOBase):
    """The bytes of a file from one place to another, as a file."""

    def __init__(self, file: Any, start: int, stop: int) -> None:
        super().__init__()
        self._file, self._left = file, stop - start
        file.seek(start)

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes."""
        view = memoryview(buffer).cast("B")[: self._left]
        count: int = self._file.readinto(view)
        self._left -= count
        return count


def share_of(file: Any, size: int, number: int, ways: int) -> tuple[int, int]:
    """The bytes of one of several shares of a file: whole lines, those that begin in its part."""
    return _line_from(file, size * number // ways, size), _line_from(
        file, size * (number + 1) // ways, size
    )


def _line_from(file: Any, place: int, size: int) -> int:
    """Where the first line begins that does not begin before a place."""
    if place <= 0 or place >= size:
        return min(max(place, 0), size)
    file.seek(place - 1)
    part = b"a line goes on"
    while part and not part.endswith(b"\n"):
        part = file.readline(_BUFFER)
    return min(int(file.tell()), size)


def parsed(
    origin: Origin,
    reader: Callable[..., Any],
    words: Mapping[str, Any],
    skip: int,
    skip_name: str,
    mesh: DeviceMesh,
) -> DistArray | None:
    """The rows of a text file, each where it was parsed; collective.

    Parameters
    ----------
    origin : Origin
        One path for all ranks if anything is to come of it.
    reader : callable
        NumPy's function; gets an open text, `words` and, by `skip_name`, how many lines to leave
        out at the beginning.
    words : mapping
        Its other keywords.
    skip : int
        Lines to leave out.
    skip_name : str
        What the reader calls that.
    mesh : DeviceMesh
        Whose ranks take part.

    Returns
    -------
    DistArray or None
        Rows in one or two dimensions. None, on all ranks, if the file has to be read as a whole:
        it is small or no plain text, or something was wrong on some rank.
    """
    size = _divisible(origin, words.get("encoding"), mesh)
    if not size:
        return None
    values = None
    try:
        values = _own_rows(origin.path, size, reader, words, (skip_name, skip), mesh)
        said: Any = None if values is None else (values.shape, values.dtype)
    except Exception:  # NumPy will say so again, of the whole file
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


def _divisible(origin: Origin, encoding: str | None, mesh: DeviceMesh) -> int:
    """The size of a text that is worth dividing, and can be; 0 of others. The same on all ranks."""
    path = origin.path
    if mesh.coords is None or mesh.size() == 1 or not origin.one or not isinstance(path, str):
        return 0
    known = "://" not in path and not path.endswith(PACKED)
    if not known or not is_piecewise(None if encoding == "bytes" else encoding):
        return 0

    def look() -> int:
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return 0  # NumPy will say so
        return found.st_size if stat.S_ISREG(found.st_mode) and found.st_size >= _WORTH else 0

    return found_on_rank_0(look, mesh)


def _own_rows(
    path: str,
    size: int,
    reader: Callable[..., Any],
    words: Mapping[str, Any],
    skip: tuple[str, int],
    mesh: DeviceMesh,
) -> Any:
    """What this rank parses; None if there is nothing in its share."""
    encoding = words.get("encoding")
    coding = None if encoding == "bytes" else encoding
    with open(path, "rb", buffering=_BUFFER) as file:
        start, stop = share_of(file, size, mesh.rank, mesh.size())
        if mesh.rank == 0:
            file.seek(0)
            for _ in range(skip[1]):
                file.readline()
            if file.tell() > stop:
                raise ValueError("lines to leave out reach into another rank's share")
            start = file.tell()
        if not _has_rows(file, start, stop, words.get("comments"), coding):
            return None
        text = TextIOWrapper(BufferedReader(_Stretch(file, start, stop), _BUFFER), coding)
        return reader(text, **words)


def _has_rows(file: Any, start: int, stop: int, comments: Any, coding: str | None) -> bool:
    """Whether a share has a line that is neither empty nor a comment."""
    marks = [comments] if isinstance(comments, (str, bytes)) else list(comments or ())
    texts = [mark.decode("latin1") if isinstance(mark, bytes) else mark for mark in marks]
    with TextIOWrapper(BufferedReader(_Stretch(file, start, stop), 1 << 13), coding) as text:
        for line in text:
            for mark in texts:
                line = line.partition(mark)[0]
            if line.strip():
                return True
    return False


def spread(values: Any, mesh: DeviceMesh, placements: Placements) -> Any:
    """What was read, laid out as asked for: an array, or the columns of a structured one."""
    if isinstance(values, list):
        return [spread(column, mesh, placements) for column in values]
    if not isinstance(values, DistArray):
        return distribute(values, mesh, placements, src=None)
    x = values.plain()
    return to_layout(x, placed_layout(x.shape, x.dtype, mesh, placements))
