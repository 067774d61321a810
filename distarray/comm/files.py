"""Files that the ranks of a group read and write together, each rank its own byte ranges.

MPI processes write through MPI-IO, whose collective calls know the file system (stripes, locks,
aggregators). Reading uses ``pread``; on thread ranks, in single processes and where MPI cannot open
the file, writing uses ``pwrite``. Either way it is one ordinary file. The other ranks open it after
rank 0 has, and an I/O error of one rank is raised on all.
"""

import errno
import os
import stat
from abc import ABC, abstractmethod
from io import UnsupportedOperation
from math import prod
from types import TracebackType
from typing import Literal, Self

import numpy as np

from distarray.comm.agree import agree
from distarray.comm.group import Group
from distarray.config import config
from distarray.layout.placement import Fold
from distarray.typing import Array, DTypeLike, Shape

__all__ = ["PAGE", "STRETCH", "DescriptorFile", "SharedFile", "landing", "open_file"]

Mode = Literal["r", "w"]

#: Most bytes written or read in one call: more would not fit the counts of every MPI.
STRETCH = 1 << 30
#: Bytes of a page, in memory and in the page cache.
PAGE = 1 << 12
#: Alignment of blocks in bytes; suits all dtypes and the processor's vectors.
_ALIGNED = 1 << 6
#: From this many bytes on, memory may have one extra page.
_WORTH = 1 << 19
_FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY}


class SharedFile(ABC):
    """One file, open on all ranks of a group; made by :func:`open_file`.

    If this rank fails, it keeps the error, and takes part in later calls without doing anything;
    :meth:`close` (or the end of the ``with`` block) raises the error on all ranks. So no rank waits
    for one that has given up.

    Attributes
    ----------
    group : Group
        The ranks that have it open.
    path : str
        Its name.
    size : int
        Its length in bytes once :func:`open_file` has opened it.
    error : Exception or None
        This rank's error.
    """

    def __init__(self, group: Group, path: str, size: int) -> None:
        self.group = group
        self.path = path
        self.size = size
        self.error: Exception | None = None

    def write_all(self, offset: int, data: Array | bytes | None) -> None:
        """Write this rank's stretch; every rank of the group calls it equally often.

        Parameters
        ----------
        offset : int
            Place in the file. Stretches of different ranks do not overlap.
        data : array, bytes or None
            C-contiguous, at most `STRETCH` bytes; None or empty if this rank has none this time.
        """
        view = None if self.error is not None else _bytes_of(data)
        try:
            self._write_all(offset, view)
        except OSError as error:
            self.error = self.error or _named(error, self.path)

    def read_all(self, offset: int, out: Array | None) -> None:
        """Fill `out` with this rank's stretch; called as :meth:`write_all`."""
        view = None if self.error is not None else _bytes_of(out)
        try:
            self._read_all(offset, view)
        except OSError as error:
            self.error = self.error or _named(error, self.path)

    def agree(self, error: Exception | None = None) -> None:
        """Raise the error of the lowest rank that has one, on all ranks; collective."""
        agree(self.group, self.error or error)

    def close(self) -> None:
        """Close the file, and raise one rank's error on all ranks; collective."""
        try:
            self._close()
        except OSError as error:
            self.error = self.error or error
        agree(self.group, self.error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:  # all ranks raise it: they have agreed, or make the same mistake
            self._close()

    @abstractmethod
    def _write_all(self, offset: int, view: memoryview | None) -> None: ...

    def _read_all(self, offset: int, view: memoryview | None) -> None:
        raise UnsupportedOperation(f"{self.path} is open for writing")

    @abstractmethod
    def _close(self) -> None: ...


class DescriptorFile(SharedFile):
    """A shared file of which each rank has a descriptor of its own."""

    def __init__(self, group: Group, path: str, size: int, descriptor: int) -> None:
        super().__init__(group, path, size)
        self.descriptor = descriptor

    def _write_all(self, offset: int, view: memoryview | None) -> None:
        while view:
            count = os.pwrite(self.descriptor, view, offset)
            view, offset = view[count:], offset + count

    def _read_all(self, offset: int, view: memoryview | None) -> None:
        while view:
            count = os.preadv(self.descriptor, [view], offset)
            if not count:
                raise ended(self.path, offset)
            view, offset = view[count:], offset + count

    def _close(self) -> None:
        os.close(self.descriptor)


def landing(shape: Shape, dtype: DTypeLike, offset: int = 0) -> Array:
    """New memory for the bytes of a file from `offset` on, at the same place within a page.

    Reading copies pages. If the memory begins a few bytes further into its page than the bytes do
    into theirs (malloc: 16 bytes, for large memory), the processor takes each load to depend on the
    store before it, and the copy takes up to three times as long.
    """
    kind = np.dtype(dtype)
    size = prod(shape) * kind.itemsize
    if not size or size < _WORTH:
        return np.empty(shape, kind)
    whole = np.empty(size + PAGE, np.uint8)
    start = (offset // _ALIGNED * _ALIGNED - whole.ctypes.data) % PAGE
    block: Array = whole[start : start + size].view(kind)
    return block.reshape(shape)


def ended(path: str, offset: int) -> OSError:
    """The error of a file that has become shorter since it was opened."""
    return OSError(f"{path}: the file ends at byte {offset}, but was longer when it was opened")


def open_file(group: Group, path: str, mode: Mode = "r", size: int | None = None) -> SharedFile:
    """Open one file on all ranks of a group; collective.

    Parameters
    ----------
    group : Group
        The ranks that take part.
    path : str
        Equal on all ranks, on a file system that all of them see.
    mode : {"r", "w"}
        Read or overwrite: an existing file is emptied in place, as by Python's ``open``, once all
        ranks have made the call.
    size : int, optional
        The length to give the file, with "w".

    Raises
    ------
    OSError
        On all ranks, if one cannot open it, or finds another file than rank 0.

    Cost
    ----
    A broadcast and an allreduce of an integer. For writing also a barrier before them, and two
    collectives if MPI-IO opens the file.
    """
    if mode != "r":
        group.barrier()
    descriptor, length, error = -1, 0, None
    if group.rank == 0:
        descriptor, length, error = _opened(path, mode, size, first=True)
    length, failed = group.broadcast_object((length, error), 0, "opening a file")
    if failed is not None:
        raise failed if error is None else error
    if group.rank:
        descriptor, error = _followed(group, path, mode, length)
    try:
        agree(group, error)
    except BaseException:
        if descriptor >= 0:
            os.close(descriptor)
        raise
    file = DescriptorFile(group, path, length, descriptor)
    # Reading needs no locks and no aggregators; ``pread`` takes as long as MPI's calls.
    by_mpi = mode != "r" and group.size > 1 and config.mpi_io and hasattr(group, "comm")
    return _by_mpi(file) if by_mpi else file


def _followed(group: Group, path: str, mode: Mode, length: int) -> tuple[int, Exception | None]:
    """Open on another rank the file that rank 0 has opened; return descriptor and error."""
    descriptor, found, error = _opened(path, mode, None, first=False)
    if error is None and found != length:
        error = _other_file(path, group.rank, f"has {found} bytes", length)
    elif isinstance(error, FileNotFoundError):
        error = _other_file(path, group.rank, "does not exist", length)
    return descriptor, error


def _opened(
    path: str, mode: Mode, size: int | None, *, first: bool
) -> tuple[int, int, Exception | None]:
    """A descriptor, the length of the file, and the error if there is one."""
    flags = _FLAGS[mode] | os.O_CLOEXEC
    if mode == "w" and first:
        flags |= os.O_CREAT | os.O_TRUNC
    descriptor = -1
    try:
        descriptor = os.open(path, flags, 0o666)
        if size is not None:
            os.ftruncate(descriptor, size)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return descriptor, found.st_size, None
    except (OSError, OverflowError) as error:
        if descriptor >= 0:
            os.close(descriptor)
        return -1, 0, _named(error, path)


def _named(error: Exception, path: str) -> Exception:
    """The error, with the path if it has none."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return OSError(error.errno, os.strerror(error.errno), path)
    return error


def _other_file(path: str, rank: int, found: str, length: int) -> OSError:
    return OSError(
        f"{path}: on rank {rank} ({os.uname().nodename}) the file {found}, but rank 0 has one of "
        f"{length} bytes; give a path on a file system that all ranks share"
    )


def _by_mpi(plain: DescriptorFile) -> SharedFile:
    """The file, opened by MPI for writing; `plain` itself if MPI cannot."""
    from distarray.comm.mpi_files import MPIFile

    file = MPIFile.opened(plain)
    opened = np.array(file is not None)
    if plain.group.allreduce(opened, Fold.ALL, "opening a file"):
        assert file is not None
        os.close(plain.descriptor)
        return file
    if file is not None:
        file.abandon()
    return plain


def _bytes_of(data: Array | bytes | None) -> memoryview | None:
    """The bytes of a C-contiguous array; None if it is empty."""
    if data is None:
        return None
    if isinstance(data, bytes):
        return memoryview(data) if data else None
    return data.reshape(-1).view(np.uint8).data if data.nbytes else None
