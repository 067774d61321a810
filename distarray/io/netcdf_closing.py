"""Closing NetCDF files so that an error of the disk does not end the process.

When HDF5 cannot write while it closes a file, the library of NetCDF reads what is freed already. So
all is written before, and a file that cannot be is never closed. What the library still does to
a file then goes to memory.
"""

import fcntl
import os
from contextlib import suppress
from typing import Any

__all__ = ["close_written"]

#: Bytes at the beginning, which the library writes anew.
_FIRST = 1 << 12
#: Files that could not be written. The libraries know them by their inodes, which stay in use.
_abandoned: list[Any] = []


def close_written(file: Any, path: str) -> None:
    """Write a new file and close it.

    Parameters
    ----------
    file : netCDF4.Dataset
    path : str
        Its name.

    Raises
    ------
    RuntimeError, OSError
        If it cannot be written; it is abandoned.
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
    """Give a file up that could not be written: empty it, and let the library keep it."""
    file._isopen = 0  # or it would be closed when Python frees it
    _abandoned.append(file)
    with suppress(OSError):
        _abandoned.append(os.open(path, os.O_RDWR | os.O_CLOEXEC))
        os.close(_diverted(path))
    with suppress(OSError):
        os.truncate(path, 0)


def _diverted(path: str) -> int:
    """Let what the library writes to a file from now on go to memory; returns its descriptor.

    -1 where the system does not tell which descriptors the library has.
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
        with suppress(OSError):  # the one by which they were listed
            writes = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR
            if writes and descriptor not in _abandoned and _is(descriptor, file):
                os.dup2(memory, descriptor, inheritable=False)
    return memory


def _is(descriptor: int, file: os.stat_result) -> bool:
    return os.path.samestat(os.fstat(descriptor), file)


def _write_rest(memory: int, path: str) -> None:
    """Write to a file what the library has written while it closed it: its first page, if any."""
    with open(path, "r+b") as file:
        first = os.pread(memory, _FIRST, 0)
        if first != file.read(len(first)):
            file.seek(0)
            file.write(first)
    with suppress(OSError):  # there is nothing more
        at = os.lseek(memory, _FIRST, os.SEEK_DATA)
        raise RuntimeError(f"the library has written at byte {at} of a file that was complete")
