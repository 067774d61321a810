"""A new file for a library that must not be told of a full disk.

HDF5 that cannot write what it has in memory cannot close its file either, and crashes the process
later, when the objects of the file are freed. So it writes to a file object that takes everything;
what went wrong is kept for whoever writes the file, who raises it and removes the file.
"""

import os
from typing import Any

__all__ = ["SwallowingFile"]

#: Bytes of what was not written and may be read again: the library's own records, not arrays.
_RECORD = 1 << 20


class SwallowingFile:
    """A new file, for reading and writing, whose methods never fail.

    Parameters
    ----------
    path : str
        Must not exist.
    shown : str
        What it is called in messages.

    Attributes
    ----------
    error : OSError or None
        What went wrong first; from then on nothing is written.
    """

    def __init__(self, path: str, shown: str) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        self._shown, self._at = shown, 0
        self.error: OSError | None = None
        #: What would have been written after that, by its place.
        self._records: dict[int, bytes] = {}
        self._end = 0

    def __repr__(self) -> str:
        return self._shown

    def check(self) -> None:
        """Raise what went wrong."""
        if self.error is not None:
            raise OSError(self.error.errno, self.error.strerror, self._shown)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """The place."""
        return self._at

    def write(self, data: Any) -> int:
        """Take some bytes; write them as long as that works."""
        view = memoryview(data).cast("B")
        count = len(view)
        if self.error is None:
            self._try(self._write, view, self._at)
        if self.error is not None and count <= _RECORD:
            self._records[self._at] = bytes(view)
        self._at += count
        self._end = max(self._end, self._at)
        return count

    def _write(self, view: memoryview, at: int) -> None:
        while view:
            done = os.pwrite(self._handle, view, at)
            view, at = view[done:], at + done

    def readinto(self, buffer: Any) -> int:
        """Give back what was written; zeros where that is lost."""
        view = memoryview(buffer).cast("B")
        view[:] = bytes(len(view))
        self._try(os.preadv, self._handle, [view], self._at)
        record = self._records.get(self._at, b"")[: len(view)]
        view[: len(record)] = record
        self._at += len(view)
        return len(view)

    def read(self, size: int = -1) -> bytes:
        """As `readinto`; that there is such a method makes it a file."""
        data = bytearray(max(0, self._end - self._at) if size < 0 else size)
        self.readinto(data)
        return bytes(data)

    def truncate(self, size: int | None = None) -> int:
        """Give the file a length."""
        self._end = self._at if size is None else size
        if self.error is None:
            self._try(os.ftruncate, self._handle, self._end)
        return self._end

    def flush(self) -> None:
        """Nothing: nothing is held back."""

    def close(self) -> None:
        """Give the file back."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            self._try(os.close, handle)

    def _try(self, act: Any, *args: Any) -> None:
        try:
            act(*args)
        except OSError as error:
            self.error = self.error or error
