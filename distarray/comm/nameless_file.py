"""Files without a name, which the ranks of a node share.

The first rank makes the file in memory, and the other ranks open it through ``/proc``: no file
system limits its size, and no file remains however the job ends. If the other ranks do not find it
there, for example in PID or user namespaces of their own, the file is made in a directory that they
share, and its name is removed before its first use.
"""

import ctypes
import errno
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from distarray.typing import Array

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["create_file", "mapped", "open_together"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

#: Linux's directory of files in memory.
_SHM = "/dev/shm"
_PREFIX = "distarray-node-"
#: Seconds after which a file that still has its name must be left over from a killed job.
_OLD = 60.0


def open_together(near: "MPI.Intracomm", on_disk: bool = False) -> int:
    """Open a new file on all ranks of a node; collective over them.

    Parameters
    ----------
    near : mpi4py.MPI.Intracomm
        The ranks of the node.
    on_disk : bool, default False
        True if a file on disk may be used where there is none in memory.

    Returns
    -------
    int
        A descriptor. If one of the ranks cannot open the file, minus the number of its error, on
        all ranks.
    """
    descriptor = _in_memory(near)
    return descriptor if descriptor >= 0 else _by_name(near, on_disk)


def _in_memory(near: "MPI.Intracomm") -> int:
    """Open a file in memory, which the first rank makes."""
    descriptor, place = -errno.ENOSYS, ("", "")
    if near.Get_rank() == 0 and hasattr(os, "memfd_create"):
        name = f"{_PREFIX}{os.urandom(16).hex()}"
        descriptor = _opened(lambda: os.memfd_create(name))
        place = f"/proc/{os.getpid()}/fd/{descriptor}", f"/memfd:{name} (deleted)"
    path, target = near.bcast(place)
    if near.Get_rank() and path:
        descriptor = _opened(lambda: _found(path, target))
    return _on_all(near, descriptor)


def _found(path: str, target: str) -> int:
    """Open the first rank's file in memory."""
    if os.readlink(path) != target:  # in another PID namespace it is another process's file
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _by_name(near: "MPI.Intracomm", on_disk: bool) -> int:
    """Open a file that other ranks find by its name, which is then removed."""
    descriptor, path = -errno.ENOENT, ""
    if near.Get_rank() == 0:
        try:
            descriptor, path = create_file(_directory(on_disk))
        except OSError as error:
            descriptor = -(error.errno or errno.ENOENT)
    path = near.bcast(path)
    if near.Get_rank() and path:
        descriptor = _opened(lambda: os.open(path, os.O_RDWR | os.O_CLOEXEC))
    descriptor = _on_all(near, descriptor)
    if near.Get_rank() == 0 and path:
        with suppress(OSError):
            os.unlink(path)
    return descriptor


def _opened(act: Callable[[], int]) -> int:
    """Return the descriptor that a function opens, or minus the number of its error."""
    try:
        return act()
    except OSError as error:
        return -(error.errno or errno.ENOENT)


def _on_all(near: "MPI.Intracomm", descriptor: int) -> int:
    """Return the descriptor if all ranks have one; otherwise close it, and return an error."""
    error: int = min(near.allgather(min(descriptor, 0)))
    if error == 0:
        return descriptor
    if descriptor >= 0:
        os.close(descriptor)
    return error


def _directory(on_disk: bool) -> str:
    usable = os.access(_SHM, os.W_OK | os.X_OK)
    return tempfile.gettempdir() if on_disk and not usable else _SHM


def create_file(directory: str) -> tuple[int, str]:
    """Make a file; return its descriptor, and its path, to be removed once all ranks opened it."""
    _clear(directory)
    return tempfile.mkstemp(prefix=_PREFIX, dir=directory)


def _clear(directory: str) -> None:
    """Remove files of jobs that were killed while their file still had a name."""
    for path in Path(directory).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            found = path.stat()
            if found.st_uid == os.getuid() and time.time() - found.st_mtime > _OLD:
                path.unlink()


class _Mapping:
    """Mapped memory of a file, for as long as arrays refer to it.

    Python's own class `mmap` keeps a descriptor open (until 3.13, where that can be turned off),
    and programs may have hundreds of communicators.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        access = mmap.PROT_READ | mmap.PROT_WRITE
        address = _libc.mmap(None, size, access, mmap.MAP_SHARED, descriptor, 0)
        if address in (None, ctypes.c_void_p(-1).value):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        self._place = address, size
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }

    def __del__(self, unmap: Callable[[int, int], object] = _libc.munmap) -> None:
        if hasattr(self, "_place"):
            unmap(*self._place)


def mapped(descriptor: int, size: int) -> Array:
    """Map the first bytes of an open file as an array; the file may be closed afterwards."""
    return np.asarray(_Mapping(descriptor, size))
