"""Memory that the ranks of one node share, and the allreduce of large blocks in it.

Between processes on one node, messages of megabytes spend their time in copies: into MPI's
buffers, out of them, and to their destination. Here every rank copies a segment of its block to
shared memory, folds one piece of all ranks' segments straight into its own block, and copies the
pieces that the others have folded while it handles the next segment. Segments are small enough for
shared memory to stay in the caches: main memory is read and written once. Each piece is folded by
one rank, in rank order, so all ranks get the same bits.
"""

import os
import time
from contextlib import suppress
from itertools import pairwise
from mmap import PAGESIZE
from typing import Any

import numpy as np
from mpi4py import MPI

from distarray.comm import calls
from distarray.errors import DivergenceError
from distarray.typing import Array

__all__ = ["FROM", "SharedMemory", "shared_by"]

#: Its functions wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True

#: From this many bytes on, blocks fold faster here; below, waiting costs more than copying.
FROM = 1 << 17
#: Bytes of a segment at most; with many ranks less, see `TOGETHER`.
SEGMENT = 1 << 22
#: Bytes of a segment at least.
LEAST = 1 << 16
#: Pieces begin at multiples of this many bytes: a cache line, and a multiple of all item sizes.
LINE = 64
#: Bytes of shared memory that all ranks of a node together take for one group.
TOGETHER = 1 << 25
#: How often a rank that waits for a mark polls it before it begins to sleep between polls.
_PATIENCE = 1000
_PAUSE = 1e-4
#: A turn and a number of elements are packed into one integer, written and read atomically.
_COUNTS, _TURNS = 1 << 40, 1 << 20


class SharedMemory:
    """Memory that all ranks of a communicator read and write; made by :func:`shared_by`.

    A rank's part has two slots, each of a segment, used alternately. A piece has the same place in
    a slot as in the segment. The place of this rank's own piece, which nobody else needs as input,
    takes the folded piece.

    Attributes
    ----------
    slots : list of ndarray
        The bytes of each rank's part, one row per slot. For other uses than folds, synchronise
        before writing to it (:meth:`begin`), and again when all have read it (:meth:`meet`).
    """

    def __init__(self, comm: MPI.Intracomm, window: MPI.Win, segment: int) -> None:
        self._comm, self._window, self._segment = comm, window, segment
        window.Lock_all(MPI.MODE_NOCHECK)
        buffers: list[Any] = [window.Shared_query(rank)[0] for rank in range(comm.size)]
        parts = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
        self.slots = [part[: 2 * segment].reshape(2, segment) for part in parts]
        # One mark per cache line, so that writing one does not slow down reading another.
        marks = [part[2 * segment :].view(np.int64)[:: LINE // 8] for part in parts]
        self._marks = [mark[1:] for mark in marks]
        self._said: list[Any] = [mark.data for mark in marks]
        self._turn = 0

    def allreduce(self, block: Array, total: Array, ufunc: np.ufunc) -> None:
        """Fold the ranks' blocks; collective.

        Parameters
        ----------
        block : ndarray
            C-contiguous; of equal shape and dtype on every rank.
        total : ndarray
            C-contiguous; receives the fold. It may be `block` itself.
        ufunc : numpy.ufunc
            The fold of two blocks.

        Raises
        ------
        DivergenceError
            On all ranks, if the blocks differ in length or dtype; nothing else would notice.
        """
        source, target = block.reshape(-1), total.reshape(-1)
        rank, size = self._comm.rank, self._comm.size
        piece = self._segment // size // LINE * LINE  # bytes, the same for every item size
        width, used = piece // block.itemsize, piece * size
        # By rank, turn and piece. Whatever the lengths and dtypes of two successive folds, no rank
        # writes where another may still read results of the first.
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
        allreduce here matches that call, so that MPI reports a truncated message and nobody hangs.
        """
        brought = block.size, block.dtype.num
        most = np.array([*brought, *[-number for number in brought]])
        self._window.Sync()
        self._comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
        self._window.Sync()
        largest, _, least, _ = np.abs(most).tolist()
        if (most[:2] != -most[2:]).any():
            raise DivergenceError(
                "the ranks fold blocks of different lengths or data types; they have from "
                f"{least} to {largest} elements"
            )

    def compare(self, count: int, itemsize: int = 0) -> None:
        """Write how many elements this rank passes to a conversation, and read the others' numbers.

        No rank calls MPI or waits: if ranks pass different numbers of elements, the later ones
        raise, before MPI can end the process. A rank in another turn has passed this one already.

        Parameters
        ----------
        count : int
            This rank's number of elements.
        itemsize : int
            Bytes of one. If both blocks have :data:`FROM` bytes or more, they are not compared
            here: the fold itself compares them on all ranks. 0 compares blocks of any size.

        Raises
        ------
        DivergenceError
            If a rank that came earlier passes another number of elements.
        """
        self._turn = (self._turn + 1) % _TURNS
        rank, mine = self._comm.rank, self._turn * _COUNTS + count
        self._said[rank][0] = mine
        self._window.Sync()
        for other, said in enumerate(self._said):
            turn, theirs = divmod(said[0], _COUNTS)
            if turn == self._turn and theirs != count and min(theirs, count) * itemsize < FROM:
                raise DivergenceError(
                    "the ranks pass different numbers of elements to one collective: rank "
                    f"{rank} {count}, rank {other} {theirs}. With config.check "
                    "(DISTARRAY_CHECK=1) they compare shapes first, and the error names the call"
                )

    def meet(self) -> None:
        """Wait for all ranks; afterwards each sees what the others wrote before."""
        calls.waiting()
        self._window.Sync()
        self._comm.Barrier()
        self._window.Sync()

    def begin(self) -> None:
        """Meet, and set the marks of all ranks to zero."""
        self.meet()
        self._marks[self._comm.rank][:] = 0
        self.meet()

    def mark(self, number: int, count: int) -> None:
        """Set a mark of this rank; a rank that sees it also sees everything written before it."""
        self._window.Sync()
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
        self._window.Sync()

    def free(self) -> None:
        """Release the memory; collective."""
        self.slots.clear()
        self._marks.clear()
        self._said.clear()
        self._window.Unlock_all()
        self._window.Free()


def shared_by(comm: MPI.Intracomm) -> SharedMemory | None:
    """Memory shared by the ranks of a communicator, all of one node; collective.

    None on all ranks if MPI cannot provide it.
    """
    pages = TOGETHER // (4 * PAGESIZE * comm.size) * 2  # whole pages in each half, too
    segment = max(LEAST, min(SEGMENT, pages * PAGESIZE))
    window = MPI.WIN_NULL
    with suppress(MPI.Exception):  # the allreduce tells the others
        window = MPI.Win.Allocate_shared(2 * segment + PAGESIZE, 1, comm=comm)
    got = comm.allreduce(window != MPI.WIN_NULL, MPI.LAND)
    return SharedMemory(comm, window, segment) if got else None


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
