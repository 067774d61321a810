"""Sinks: files that behave as ordinary files, and discard all data written to them."""

import io
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

from distarray.runner.paths import File

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["Sink", "open_sink", "scratch_descriptor"]


class Sink(io.RawIOBase):
    """Raw file open for writing that has a position and a length, and keeps no data.

    Parameters
    ----------
    name : str, bytes, path or int
        File as passed to ``open``.
    mode : str
        Mode of a raw file: ``wb``, ``ab``, ``xb``.
    size : int
        Length of the file at its opening: not 0 when appending.
    """

    def __init__(self, name: File, mode: str, size: int = 0) -> None:
        super().__init__()
        self.name = name
        self.mode = mode
        self._size = size
        self._position = size
        self._descriptor: int | None = None

    def writable(self) -> bool:
        """Return True; raise if the file is closed."""
        return not self._gone()

    def seekable(self) -> bool:
        """Return True; raise if the file is closed."""
        return not self._gone()

    def write(self, data: "ReadableBuffer") -> int:
        """Advance the position by the length of the data."""
        self._gone()
        count = memoryview(data).nbytes
        if "a" in self.mode:
            self._position = self._size
        self._position += count
        self._size = max(self._size, self._position)
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an absolute or relative position."""
        self._gone()
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise OSError(22, os.strerror(22))
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        self._gone()
        return self._position

    def truncate(self, size: int | None = None) -> int:
        """Set the length."""
        self._gone()
        self._size = self._position if size is None else size
        return self._size

    def fileno(self) -> int:
        """Return a descriptor of the null device, for code that writes without Python's files."""
        self._gone()
        if self._descriptor is None:
            self._descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        return self._descriptor

    def close(self) -> None:
        """Close the descriptor, if `fileno` has opened one."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
        super().close()

    def _gone(self) -> bool:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return False


def open_sink(
    file: File,
    mode: str,
    size: int = 0,
    buffering: int = -1,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """Return the object that ``open`` returns for a mode without ``+``, on a `Sink`."""
    raw = Sink(file, mode.replace("t", "").replace("b", "") + "b", size)
    if "b" in mode and buffering == 0:
        return raw
    buffered = io.BufferedWriter(raw, buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE)
    if "b" in mode:
        return buffered
    text = io.TextIOWrapper(buffered, encoding, errors, newline, line_buffering=buffering == 1)
    text.mode = mode  # type: ignore[misc]  # as open() sets it
    return text


def scratch_descriptor(flags: int, copy_of: str | None = None) -> int:
    """Return a descriptor of a nameless file, opened with `flags`; a copy of `copy_of` if given."""
    made, path = tempfile.mkstemp(prefix="distarray-")
    os.close(made)
    try:
        if copy_of is not None and os.path.isfile(copy_of):
            shutil.copyfile(copy_of, path)
        return os.open(path, flags & ~(os.O_CREAT | os.O_EXCL | os.O_TRUNC | os.O_NOFOLLOW))
    finally:
        os.unlink(path)
