"""Files that the ranks of a group read and write together, each rank its own byte ranges.

Every rank has its own descriptor, and uses ``pread`` and ``pwrite``. A failure of one rank is
raised on all ranks. Data counts as written once it is on disk: some systems report only then that
there was no room for it, and MPI-IO may not report it at all.
"""

import errno
import os
import stat
from io import UnsupportedOperation
from math import prod
from types import TracebackType
from typing import Literal, Self

import numpy as np

from distarray.comm.agree import agree
from distarray.comm.group import Group
from distarray.config import config
from distarray.typing import Array, DTypeLike, Shape

__all__ = ["PAGE", "STRETCH", "SharedFile", "bring_to_disk", "landing", "open_file"]

Mode = Literal["r", "w"]

#: Largest number of bytes written or read in one call: Linux takes two GiB at most.
STRETCH = 1 << 30
#: Bytes of a page, in memory and in the page cache.
PAGE = 1 << 12
#: Alignment of blocks in bytes; suits all dtypes and the processor's vectors.
_ALIGNED = 1 << 6
#: Number of bytes from which memory may have one extra page.
_WORTH = 1 << 19
_FLAGS = {"r": os.O_RDONLY, "w": os.O_WRONLY}


class SharedFile:
    """One file, open on all ranks of a group; made by :func:`open_file`.

    If a call fails on this rank, the file keeps the error, and later calls do nothing.
    :meth:`close` (or the end of the ``with`` block) raises the error on all ranks. So no rank waits
    for a rank that has given up.

    Attributes
    ----------
    group : Group
        The ranks that have the file open.
    path : str
        Name of the file.
    size : int
        Length of the file in bytes when it was opened.
    descriptor : int
        This rank's descriptor.
    error : Exception or None
        This rank's error.
    """

    def __init__(self, group: Group, path: str, mode: Mode, size: int, descriptor: int) -> None:
        self.group = group
        self.path = path
        self.size = size
        self.descriptor = descriptor
        self.error: Exception | None = None
        self._mode = mode

    def write_at(self, offset: int, data: Array | bytes | None) -> None:
        """Write this rank's range of bytes.

        Parameters
        ----------
        offset : int
            Offset in the file. Ranges of different ranks do not overlap.
        data : array, bytes or None
            C-contiguous data; None or empty if there is nothing to write.
        """
        try:
            view = None if self.error is not None else _bytes_of(data)
            while view:
                count = os.pwrite(self.descriptor, view[:STRETCH], offset)
                view, offset = view[count:], offset + count
        except OSError as error:
            self.error = _named(error, self.path)

    def read_at(self, offset: int, out: Array | None) -> None:
        """Fill `out` with the bytes of the file from `offset` on."""
        if self._mode != "r":
            raise UnsupportedOperation(f"{self.path} is open for writing")
        try:
            view = None if self.error is not None else _bytes_of(out)
            while view:
                count = os.preadv(self.descriptor, [view[:STRETCH]], offset)
                if not count:
                    raise ended(self.path, offset)
                view, offset = view[count:], offset + count
        except OSError as error:
            self.error = _named(error, self.path)

    def agree(self, error: Exception | None = None) -> None:
        """Raise the error of the lowest rank that has one, on all ranks; collective."""
        agree(self.group, self.error or error)

    def close(self) -> None:
        """Bring written data to disk, close, and raise one rank's error on all; collective."""
        for act in (bring_to_disk, os.close) if self._mode == "w" else (os.close,):
            try:
                if self.error is None or act is os.close:
                    act(self.descriptor)
            except OSError as error:
                self.error = self.error or _named(error, self.path)
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
            os.close(self.descriptor)


def bring_to_disk(descriptor: int) -> None:
    """Wait until the data written to a file is on disk, unless ``config.durable`` is off.

    Raises
    ------
    OSError
        If the data cannot be written, now or in an earlier attempt of the system.
    """
    if not config.durable:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # the file is not on a disk
            raise


def landing(shape: Shape, dtype: DTypeLike, offset: int = 0) -> Array:
    """Return new memory for the bytes of a file from `offset` on, at the same offset within a page.

    Reading copies pages. If the memory begins a few bytes further into its page than the bytes into
    their page (malloc: 16 bytes, for large memory), the processor takes each load to depend on the
    previous store, and the copy takes up to three times as long.
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
    """Return the error of a file that has become shorter since it was opened."""
    return OSError(f"{path}: the file ends at byte {offset}, but was longer when it was opened")


def open_file(group: Group, path: str, mode: Mode = "r", size: int = 0) -> SharedFile:
    """Open one file on all ranks of a group; collective.

    Parameters
    ----------
    group : Group
        The ranks that take part.
    path : str
        Path, equal on all ranks, on a file system that all of them see.
    mode : {"r", "w"}
        Read, or write into a file that rank 0 has just made.
    size : int
        The length of a file that is written to.

    Raises
    ------
    OSError
        On all ranks, if one rank cannot open the file, or finds another file than rank 0.

    Cost
    ----
    An allreduce of an integer; for reading, a broadcast before it.
    """
    descriptor, length, error = -1, size, None
    if group.rank == 0:
        descriptor, length, error = _opened(path, mode)
    if mode == "r":
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
    return SharedFile(group, path, mode, length, descriptor)


def _followed(group: Group, path: str, mode: Mode, length: int) -> tuple[int, Exception | None]:
    """Open on this rank the file that rank 0 has found or made; return descriptor and error."""
    descriptor, found, error = _opened(path, mode)
    if error is None and found != length:
        error = _other_file(path, group.rank, f"has {found} bytes", length)
    elif isinstance(error, FileNotFoundError):
        error = _other_file(path, group.rank, "does not exist", length)
    return descriptor, error


def _opened(path: str, mode: Mode) -> tuple[int, int, Exception | None]:
    """Return a descriptor, the length of the file, and the error if there is one."""
    descriptor = -1
    try:
        descriptor = os.open(path, _FLAGS[mode] | os.O_CLOEXEC)
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return descriptor, found.st_size, None
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        return -1, 0, _named(error, path)


def _named(error: Exception, path: str) -> Exception:
    """Return the error, with the path if it has none."""
    if isinstance(error, OSError) and error.errno is not None and error.filename is None:
        return OSError(error.errno, os.strerror(error.errno), path)
    return error


def _other_file(path: str, rank: int, found: str, length: int) -> OSError:
    return OSError(
        f"{path}: on rank {rank} ({os.uname().nodename}) the file {found}, but rank 0 has one of "
        f"{length} bytes; give a path on a file system that all ranks share"
    )


def _bytes_of(data: Array | bytes | None) -> memoryview | None:
    """Return the bytes of a C-contiguous array; None if it is empty."""
    if data is None:
        return None
    if isinstance(data, bytes):
        return memoryview(data) if data else None
    return data.reshape(-1).view(np.uint8).data if data.nbytes else None
