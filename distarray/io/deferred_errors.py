"""New file that defers errors, for a library that crashes when it cannot write.

HDF5 cannot close a file when the disk is full, and crashes the process later, when it frees the
objects of the file. Therefore HDF5 writes to a file object that accepts all bytes and keeps the
first error. The caller raises this error and removes the file.
"""

import os
from collections.abc import Callable
from typing import ParamSpec, TypeAlias

import numpy as np

from distarray.typing import Array

__all__ = ["ErrorDeferringFile"]

P = ParamSpec("P")
Bytes: TypeAlias = bytes | bytearray | memoryview | Array

#: Maximum size of a write that is kept in memory after an error, since the library reads its own
#: records again; in bytes.
_RECORD = 1 << 20


class ErrorDeferringFile:
    """New file, for reading and writing, whose methods never fail.

    Parameters
    ----------
    path : str
        The file; truncated if it exists.
    shown : str
        The file's name in error texts.

    Attributes
    ----------
    error : OSError or None
        The first error; after the first error nothing is written.
    """

    def __init__(self, path: str, shown: str) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._shown, self._at = shown, 0
        self.error: OSError | None = None
        #: Records that could not be written, by their offset.
        self._records: dict[int, bytes] = {}
        self._end = 0

    def __repr__(self) -> str:
        return self._shown

    def check(self) -> None:
        """Raise the first error, if an error has occurred."""
        if self.error is not None:
            raise OSError(self.error.errno, self.error.strerror, self._shown)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the file position."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Return the file position."""
        return self._at

    def write(self, data: Bytes) -> int:
        """Accept bytes; write them unless an error has occurred."""
        view = _view(data)
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

    def readinto(self, buffer: bytearray | memoryview | Array) -> int:
        """Read bytes into a buffer; bytes that were neither written nor kept read as zeros."""
        view = _view(buffer)
        view[:] = bytes(len(view))
        self._try(os.preadv, self._handle, [view], self._at)
        record = self._records.get(self._at, b"")[: len(view)]
        view[: len(record)] = record
        self._at += len(view)
        return len(view)

    def read(self, size: int = -1) -> bytes:
        """Read bytes, as `readinto`; h5py requires this method of a file object."""
        data = bytearray(max(0, self._end - self._at) if size < 0 else size)
        self.readinto(data)
        return bytes(data)

    def truncate(self, size: int | None = None) -> int:
        """Set the length of the file."""
        self._end = self._at if size is None else size
        if self.error is None:
            self._try(os.ftruncate, self._handle, self._end)
        return self._end

    def flush(self) -> None:
        """Do nothing: the file has no buffer."""

    def close(self) -> None:
        """Close the file."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            self._try(os.close, handle)

    def _try(self, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            act(*args, **kwargs)
        except OSError as error:
            self.error = self.error or error


def _view(data: Bytes) -> memoryview:
    """Return the bytes of a buffer as a view."""
    return memoryview(data.data if isinstance(data, np.ndarray) else data).cast("B")
