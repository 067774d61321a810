"""Memory that the ranks of one node share, and the allreduce of large blocks in it.

Between processes on one node, messages of megabytes spend their time in copies: into MPI's buffers,
out of them, and to their destination. Here every rank copies a segment of its block to shared
memory, and folds one piece of all ranks' segments directly into its own block. It copies the pieces
that the other ranks have folded while it handles the next segment. Segments are small enough for
shared memory to stay in the caches: main memory is read and written once. Each piece is folded by
one rank, in rank order, so all ranks get the same bits.
"""

import errno
import os
import time
from itertools import pairwise
from mmap import PAGESIZE
from threading import Lock
from typing import Any

import numpy as np
from mpi4py import MPI

from distarray.comm import calls, hooks
from distarray.comm.describing import ranks_in_words
from distarray.comm.nameless_file import mapped, open_together
from distarray.config import config
from distarray.errors import DivergenceError
from distarray.typing import Array

__all__ = ["FROM", "SharedMemory", "shared_by"]

#: True: functions of this module wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True

#: Number of bytes from which blocks fold faster here; below it, waiting costs more than copying.
FROM = 1 << 17
#: Largest number of bytes of a segment; with many ranks it is smaller, see `TOGETHER`.
SEGMENT = 1 << 22
#: Smallest number of bytes of a segment.
LEAST = 1 << 16
#: Pieces begin at multiples of this many bytes: a cache line, and a multiple of all item sizes.
LINE = 64
#: Bytes of shared memory that all ranks of a node together take for one group.
TOGETHER = 1 << 25
#: Number of polls after which a rank that waits for a mark begins to sleep between polls.
_PATIENCE = 1000
_PAUSE = 1e-4
#: A turn and a number of elements are packed into one integer, written and read atomically.
_COUNTS, _TURNS = 1 << 40, 1 << 20
#: Remedies, by the error that keeps a rank from sharing memory.
_CURES = {
    errno.ENOSPC: "a larger /dev/shm (docker run --shm-size=1g)",
    errno.ENOMEM: "more memory for the job (ulimit -v, docker run --memory)",
    errno.EFBIG: "larger files (ulimit -f)",
    errno.EMFILE: "more open files (ulimit -n)",
}
_ONE_CONTAINER = "all ranks of a node in one container (docker run --ipc=host --pid=host)"
_told = False


class SharedMemory:
    """Memory that all ranks of a communicator read and write; made by :func:`shared_by`.

    A rank's section has two slots, each as large as a segment, used alternately. A piece has the
    same offset in a slot as in the segment. The folded piece is stored at the offset of this rank's
    own piece, which no other rank needs as input.

    Attributes
    ----------
    slots : list of ndarray
        The bytes of each rank's section, one row per slot. For other uses than folds, synchronize
        before writing to it (:meth:`begin`), and again when all ranks have read it (:meth:`meet`).
    """

    def __init__(self, comm: MPI.Intracomm, memory: Array, segment: int) -> None:
        self._comm, self._segment = comm, segment
        parts = memory.reshape(comm.size, -1)
        self.slots = [part[: 2 * segment].reshape(2, segment) for part in parts]
        # One mark per cache line, so that writing one does not slow down reading another.
        marks = [part[2 * segment :].view(np.int64)[:: LINE // 8] for part in parts]
        self._marks = [mark[1:] for mark in marks]
        self._said: list[Any] = [mark.data for mark in marks]
        self._turn = 0
        self._lock = Lock()

    def allreduce(self, block: Array, total: Array, ufunc: np.ufunc) -> None:
        """Fold the ranks' blocks; collective.

        Parameters
        ----------
        block : ndarray
            C-contiguous; of equal shape and dtype on every rank.
        total : ndarray
            C-contiguous; receives the fold. It may be `block` itself.
        ufunc : numpy.ufunc
            The ufunc that folds two blocks.

        Raises
        ------
        DivergenceError
            On all ranks, if the blocks differ in length or dtype; no other check would find that.
        """
        source, target = block.reshape(-1), total.reshape(-1)
        rank, size = self._comm.rank, self._comm.size
        piece = self._segment // size // LINE * LINE  # bytes, the same for every item size
        width, used = piece // block.itemsize, piece * size
        # Indexed by rank, turn and piece. Whatever the lengths and dtypes of two successive folds,
        # no rank writes where another rank may still read results of the first fold.
        slots = [part[:, :used].view(block.dtype).reshape(2, size, width) for part in self.slots]
        others = [other for other in range(size) if other != rank]
        taken: list[tuple[Array, Array]] = []
        for number, start in enumerate(range(0, source.size, width * size)):
            turn, length = number % 2, min(width * size, source.size - start)
            cuts = [start + length * r // size for r in range(size + 1)]
            spans = [slice(low, high) for low, high in pairwise(cuts)]
            for other in others:
                _lay(slots[rank][turn, other], source[spans[other]])
            if number:
                self.meet()
            else:
                self._meet_alike(source)
            _take(taken)
            mine = source[spans[rank]]
            parts = [slot[turn, rank, : len(mine)] for slot in slots]
            result, parts[rank] = parts[rank], mine
            _fold(parts, result, ufunc)
            target[spans[rank]] = result
            taken = [(target[spans[other]], slots[other][turn, other]) for other in others]
        self.meet()
        _take(taken)

    def _meet_alike(self, block: Array) -> None:
        """Wait for all ranks, and raise on all of them if their blocks differ.

        A rank whose block is too small for shared memory calls MPI's allreduce instead. The
        allreduce here matches that call, so that MPI reports a truncated message and no rank hangs.
        """
        brought = block.size, block.dtype.num
        most = np.array([*brought, *[-number for number in brought]])
        self._comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
        largest, _, least, _ = np.abs(most).tolist()
        if (most[:2] != -most[2:]).any():
            raise DivergenceError(
                "the ranks fold blocks of different lengths or data types; they have from "
                f"{least} to {largest} elements"
            )

    def compare(self, count: int, itemsize: int = 0) -> None:
        """Write this rank's number of elements in a collective, and compare other ranks' numbers.

        No rank calls MPI or waits: if ranks pass different numbers of elements, the later ranks
        raise, before MPI can end the process. A rank in another turn has already passed this
        comparison.

        Parameters
        ----------
        count : int
            This rank's number of elements.
        itemsize : int
            Bytes of one element. If both blocks have :data:`FROM` bytes or more, they are not
            compared here: the fold itself compares them on all ranks. With 0, blocks of any size
            are compared.

        Raises
        ------
        DivergenceError
            If a rank that came earlier passes another number of elements.
        """
        self._turn = (self._turn + 1) % _TURNS
        rank, mine = self._comm.rank, self._turn * _COUNTS + count
        self._said[rank][0] = mine
        self._fence()
        for other, said in enumerate(self._said):
            turn, theirs = divmod(said[0], _COUNTS)
            if turn == self._turn and theirs != count and min(theirs, count) * itemsize < FROM:
                raise DivergenceError(
                    "the ranks pass different numbers of elements to one collective: rank "
                    f"{rank} {count}, rank {other} {theirs}. With config.check "
                    "(DISTARRAY_CHECK=1) they compare shapes first, and the error names the call"
                )

    def meet(self) -> None:
        """Wait for all ranks; afterwards each rank sees earlier writes of the others."""
        calls.waiting()
        self._comm.Barrier()  # its messages order the writes before and the reads after

    def begin(self) -> None:
        """Synchronize, and set the marks of all ranks to zero."""
        self.meet()
        self._marks[self._comm.rank][:] = 0
        self.meet()

    def mark(self, number: int, count: int) -> None:
        """Set a mark of this rank; a rank that sees it also sees everything written before it."""
        self._fence()
        self._marks[self._comm.rank][number] = count

    def wait_for(self, rank: int, number: int, count: int) -> None:
        """Wait until a mark of a rank has reached a count."""
        marks, looks = self._marks[rank], 0
        calls.waiting()
        while marks[number] < count:
            looks += 1
            if looks < _PATIENCE:
                os.sched_yield()
            else:
                time.sleep(_PAUSE)
        self._fence()

    def _fence(self) -> None:
        """Order all earlier memory accesses before all later ones, on every processor.

        No rank waits: earlier accesses do not move past a lock's release, and later accesses do not
        move before the next time that the lock is taken.
        """
        with self._lock:
            pass
        with self._lock:
            pass

    def free(self) -> None:
        """Release the memory."""
        self.slots.clear()
        self._marks.clear()
        self._said.clear()


def shared_by(comm: MPI.Intracomm) -> SharedMemory | None:
    """Return memory shared by the ranks of a communicator, all of one node; collective.

    Return None on all ranks if one of them cannot have it; that is printed once, with the remedy.
    """
    pages = TOGETHER // (4 * PAGESIZE * comm.size) * 2  # whole pages in each half, too
    segment = max(LEAST, min(SEGMENT, pages * PAGESIZE))
    if not comm.allreduce(config.shared_memory, MPI.LAND):
        return None
    memory, obstacle = _mapped(comm, 2 * segment + PAGESIZE)
    obstacles = comm.allgather(obstacle)
    if memory is not None and not any(obstacles):
        return SharedMemory(comm, memory, segment)
    _tell(comm, obstacles)
    return None


def _mapped(comm: MPI.Intracomm, part: int) -> tuple[Array | None, OSError | None]:
    """Return memory with `part` bytes per rank, of which each rank reserves its own, or the error.

    A process that writes to memory that is not reserved is killed. The memory that a rank reserves
    is next to its processor.
    """
    descriptor = open_together(comm)
    if descriptor < 0:
        return None, OSError(-descriptor, os.strerror(-descriptor))
    try:
        os.ftruncate(descriptor, comm.size * part)
        os.posix_fallocate(descriptor, comm.rank * part, part)
        return mapped(descriptor, comm.size * part), None
    except OSError as error:
        return None, error
    finally:
        os.close(descriptor)


def _tell(comm: MPI.Intracomm, obstacles: list[OSError | None]) -> None:
    """Report on one rank, once, that memory cannot be shared, and the remedy."""
    global _told
    if comm.rank or _told:
        return
    _told = True
    ranks = [rank for rank, obstacle in enumerate(obstacles) if obstacle is not None]
    error = next(obstacle for obstacle in obstacles if obstacle is not None)
    cure = _CURES.get(error.errno or 0, _ONE_CONTAINER)
    hooks.say(
        f"{ranks_in_words(ranks)} of {comm.size} on this node cannot share memory with the others: "
        f"{error.strerror}. Large blocks go as messages, which takes longer. The cure: {cure}. "
        "(DISTARRAY_SHARED_MEMORY=0 asks for messages.)"
    )


def _lay(place: Array, piece: Array) -> None:
    place[: len(piece)] = piece


def _take(pairs: list[tuple[Array, Array]]) -> None:
    """Copy the pieces of a segment that the other ranks have folded."""
    for piece, place in pairs:
        piece[...] = place[: len(piece)]


def _fold(parts: list[Array], into: Array, ufunc: np.ufunc) -> None:
    """Fold in rank order."""
    total = parts[0]
    for part in parts[1:]:
        total = ufunc(total, part, out=into)
