"""Files without any library: what all others are measured by."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory
from typing import Any

import numpy

__all__ = ["Plain", "scratch", "scratch_made"]

_MEMORY = Path("/dev/shm")
#: Bytes of files that memory must be able to hold.
_ROOM = 8 << 30
_BUILD = Path(__file__).resolve().parent.parent / "build"


@contextmanager
def scratch_made() -> Iterator[None]:
    """Make the directory for files that the jobs started meanwhile share, and remove it.

    In memory where there is room: a disk is so much slower than a program that all look alike.
    """
    roomy = _MEMORY.is_dir() and disk_usage(_MEMORY).total > _ROOM
    place = _MEMORY if roomy else _BUILD
    place.mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="benchmarks-", dir=place) as directory:
        os.environ["BENCHMARKS_SCRATCH"] = directory
        yield


def scratch() -> str:
    """The directory for files, the same in all jobs and ranks."""
    return os.environ["BENCHMARKS_SCRATCH"]


class Plain:
    """A file that each process writes and reads its own stretch of, with one system call.

    Parameters
    ----------
    path : str
    a : numpy.ndarray or distarray.DistArray
        Cut along its first dimension, or whole.
    """

    def __init__(self, path: str, a: Any) -> None:
        whole = isinstance(a, numpy.ndarray)
        self._path = path
        self._block = a if whole else a.to_local()
        row = a.nbytes // a.shape[0]
        self._start = 0 if whole else row * a.layout.section(a.mesh.coords)[0][0]
        self._barrier = (lambda: None) if whole else a.mesh.group.barrier
        self._first = self._start == 0

    def write(self) -> None:
        """Write the block."""
        if self._first:
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC))
        self._barrier()
        descriptor = os.open(self._path, os.O_WRONLY)
        self._all(os.pwrite, descriptor, self._block)
        os.close(descriptor)
        self._barrier()

    def read(self) -> Any:
        """Read the block into new memory."""
        block = numpy.empty_like(self._block)
        descriptor = os.open(self._path, os.O_RDONLY)
        self._all(lambda fd, view, at: os.preadv(fd, [view], at), descriptor, block)
        os.close(descriptor)
        self._barrier()
        return block

    def _all(self, call: Any, descriptor: int, block: Any) -> None:
        view, offset = memoryview(block).cast("B"), self._start
        while view:
            count = call(descriptor, view, offset)
            view, offset = view[count:], offset + count
