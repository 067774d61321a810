"""Closing of NetCDF files without a crash of the process if the disk has an error.

If HDF5 cannot write while it closes a file, the NetCDF library reads freed memory. Therefore the
file is written completely before it is closed, and a file that cannot be written is never closed.
The library's writes during the closing are diverted to memory.
"""

import fcntl
import os
from contextlib import suppress
from typing import Any

__all__ = ["close_written"]

#: Number of bytes at the beginning of the file that the library rewrites.
_FIRST = 1 << 12
#: Files that could not be written. The libraries identify them by inode; so the inodes stay in use.
_abandoned: list[Any] = []


def close_written(file: Any, path: str) -> None:
    """Write a new file and close it.

    Parameters
    ----------
    file : netCDF4.Dataset
    path : str
        The file's name.

    Raises
    ------
    RuntimeError, OSError
        If the file cannot be written; it is then abandoned.
    """
    try:
        file.sync()
        memory = _diverted(path)
    except BaseException:
        _abandon(file, path)
        raise
    file.close()
    if memory >= 0:
        try:
            _write_rest(memory, path)
        finally:
            os.close(memory)


def _abandon(file: Any, path: str) -> None:
    """Abandon a file that could not be written: truncate it, and leave it open in the library."""
    file._isopen = 0  # otherwise netCDF4 closes the file when Python frees the object
    _abandoned.append(file)
    with suppress(OSError):
        _abandoned.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        os.close(_diverted(path))
    with suppress(OSError):
        os.truncate(path, 0)


def _diverted(path: str) -> int:
    """Divert the library's further writes to a file to memory; return the memory's descriptor.

    The result is -1 if the system does not list the open descriptors.
    """
    try:
        open_ones = [int(name) for name in os.listdir("/proc/self/fd")]
        memory = os.memfd_create("closing")
    except (OSError, AttributeError):
        return -1
    file = os.stat(path)
    with open(path, "rb") as stream:
        os.pwrite(memory, stream.read(_FIRST), 0)
    for descriptor in open_ones:
        with suppress(OSError):  # the descriptor of the listing itself is closed
            writes = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
            if writes and descriptor not in _abandoned and _is(descriptor, file):
                os.dup2(memory, descriptor, inheritable=False)
    return memory


def _is(descriptor: int, file: os.stat_result) -> bool:
    return os.path.samestat(os.fstat(descriptor), file)


def _write_rest(memory: int, path: str) -> None:
    """Copy the library's writes during the closing to the file: the first page, if it differs."""
    with open(path, "r+b") as file:
        first = os.pread(memory, _FIRST, 0)
        if first != file.read(len(first)):
            file.seek(0)
            file.write(first)
    with suppress(OSError):  # the memory has no further data
        at = os.lseek(memory, _FIRST, os.SEEK_DATA)
        raise RuntimeError(f"the library has written at byte {at} of a file that was complete")
