"""Shared files that are written by MPI-IO."""

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any

from mpi4py import MPI

from distarray.comm import calls
from distarray.comm.files import DescriptorFile, SharedFile

if TYPE_CHECKING:
    from distarray.comm.group import Group

__all__ = ["MPIFile"]

#: Its functions wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True

#: The system's error numbers for MPI's error classes.
_ERRNO = {
    MPI.ERR_ACCESS: errno.EACCES,
    MPI.ERR_NO_SPACE: errno.ENOSPC,
    MPI.ERR_NO_SUCH_FILE: errno.ENOENT,
    MPI.ERR_QUOTA: errno.EDQUOT,
    MPI.ERR_READ_ONLY: errno.EROFS,
}
#: The system's errors that may be in the text of an MPI error about writing.
_TOLD = (*_ERRNO.values(), errno.EFBIG, errno.EPERM, errno.ESTALE, errno.ENXIO)


class MPIFile(SharedFile):
    """A file that MPI has opened for writing on the communicator of a group."""

    def __init__(self, group: "Group", path: str, size: int, handle: MPI.File) -> None:
        super().__init__(group, path, size)
        self._handle = handle

    @classmethod
    def opened(cls, plain: DescriptorFile) -> "MPIFile | None":
        """Open by MPI a file that all ranks have opened already; None if MPI cannot."""
        group: Any = plain.group
        calls.note(group, "opened", None)
        try:
            handle = MPI.File.Open(group.comm, plain.path, MPI.MODE_WRONLY)
        except MPI.Exception:
            return None
        return cls(plain.group, plain.path, plain.size, handle)

    def abandon(self) -> None:
        """Close the file, which another rank could not open."""
        with contextlib.suppress(MPI.Exception):
            self._handle.Close()

    def _write_all(self, offset: int, view: memoryview | None) -> None:
        calls.note(self.group, "_write_all", None)
        try:
            self._handle.Write_at_all(offset, [view or b"", MPI.BYTE])
        except MPI.Exception as error:
            raise _os_error(error, self.path) from None

    def _close(self) -> None:
        calls.note(self.group, "_close", None)
        try:
            self._handle.Close()
        except MPI.Exception as error:
            raise _os_error(error, self.path) from None


def _os_error(error: MPI.Exception, path: str) -> OSError:
    """An error of MPI-IO as an OSError."""
    number, said = _ERRNO.get(error.Get_error_class()), error.Get_error_string()
    if number is None:  # MPICH gives the system's error only in the text
        number = next((n for n in _TOLD if os.strerror(n) in said), None)
    if number is not None:
        return OSError(number, os.strerror(number), path)
    return OSError(errno.EIO, f"{os.strerror(errno.EIO)} ({said})", path)
