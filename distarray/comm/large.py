"""Memory that the ranks of one node share, and the allreduce of much data in it.

Between processes that share memory, messages of megabytes spend their time in copies: into MPI's
own buffers, out of them, and into where they belong. Here every rank lays a segment of its block
where all of them see it, folds one piece of it straight into its own block, and takes the other
pieces from where the others have left them; the next segment is laid down meanwhile. Segments are
so small that what is shared stays in the caches: the memory itself is read and written once. Since
a piece is folded by one rank alone, in rank order, all ranks get the same bits.
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

__all__ = ["FROM", "Shared", "shared_by"]

#: Its functions wait for other ranks (see :mod:`distarray.comm.stacks`).
WAITS_FOR_RANKS = True


#: Blocks of this many bytes gain; below, waiting for one another counts more than copies.
FROM = 1 << 17
#: Bytes of a segment; less where many ranks have as much each.
SEGMENT = 1 << 22
#: And never less than this.
LEAST = 1 << 16
#: Bytes of which the places of pieces are multiples: of all item sizes, and of a cache line.
LINE = 64
#: Bytes of shared memory that all ranks of a node together take for one of their groups.
TOGETHER = 1 << 25
#: Times that a rank that waits for another looks again at once, before it sleeps in between.
_PATIENCE = 1000
_PAUSE = 1e-4
#: A number of elements and a turn in one integer, which is written and read at once.
_COUNTS, _TURNS = 1 << 40, 1 << 20


class Shared:
    """Memory that all ranks of a communicator read and write; made by :func:`shared_by`.

    A rank's part has two slots of a segment, used by turns. What the others are to fold lies where
    it lies in the segment, and so does this rank's result, whose place nobody else needs.

    Attributes
    ----------
    slots : list of ndarray
        The bytes of each rank's part, a row a slot. Who lays something else there than a fold
        meets the others before (:meth:`begin`), and once more when all have read it.
    """

    def __init__(self, comm: MPI.Intracomm, window: MPI.Win, segment: int) -> None:
        self._comm, self._window, self._segment = comm, window, segment
        window.Lock_all(MPI.MODE_NOCHECK)
        buffers: list[Any] = [window.Shared_query(rank)[0] for rank in range(comm.size)]
        parts = [np.frombuffer(buffer, np.uint8) for buffer in buffers]
        self.slots = [part[: 2 * segment].reshape(2, segment) for part in parts]
        # A mark a cache line, lest who writes one hinders those who look at another.
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
            What folds two of them.

        Raises
        ------
        DivergenceError
            On all ranks, if the blocks differ in length or dtype: nothing else would notice, and
            the result would be made of what was there before.
        """
        source, target = block.reshape(-1), total.reshape(-1)
        rank, size = self._comm.rank, self._comm.size
        piece = self._segment // size // LINE * LINE  # bytes, the same for every item size
        width, used = piece // block.itemsize, piece * size
        # By rank, turn and piece: nobody's piece is another's place. What some still take from the
        # fold before, of whatever length and dtype, is not where others lay what is next.
        slots = [part[:, :used].view(block.dtype).reshape(2, size, width) for part in self.slots]
        others = [other for other in range(size) if other != rank]
        taken: list[tuple[Array, Array]] = []
        for number, start in enumerate(range(0, source.size, width * size)):
            turn, length = number % 2, min(width * size, source.size - start)
            cuts = [start + length * r // size for r in range(size + 1)]
            spans = [slice(low, high) for low, high in pairwise(cuts)]
            for other in others:
                _laid(slots[rank][turn, other], source[spans[other]])
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

        A rank whose block is so small that it goes another way calls MPI's allreduce, too: the
        two do not wait for each other, but end in MPI's error about a truncated message.
        """
        brought = block.size, block.dtype.num
        most = np.array([*brought, *[-number for number in brought]])
        self._window.Sync()
        self._comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
        self._window.Sync()
        largest, _, least, _ = np.abs(most).tolist()
        if (most[:2] != -most[2:]).any():
            raise DivergenceError(
                "the ranks fold blocks of different lengths or data types; of elements they have "
                f"from {least} to {largest}"
            )

    def compare(self, count: int, itemsize: int = 0) -> None:
        """Say how much this rank brings to a conversation, and look at what others have said.

        MPI is not asked, and nobody waits: of ranks that bring different numbers of elements those
        that come later raise, before MPI can end the process. Ranks that have left for another
        turn have met this one.

        Parameters
        ----------
        count : int
            Its number of elements.
        itemsize : int
            Where all ranks bring as much as :data:`FROM` bytes or more, they compare it together,
            and all raise: then nobody does so here. 0 if they do not.

        Raises
        ------
        DivergenceError
            If a rank that has come before brings another number of elements.
        """
        self._turn = (self._turn + 1) % _TURNS
        rank, mine = self._comm.rank, self._turn * _COUNTS + count
        self._said[rank][0] = mine
        self._window.Sync()
        for other, said in enumerate(self._said):
            turn, theirs = divmod(said[0], _COUNTS)
            if turn == self._turn and theirs != count and min(theirs, count) * itemsize < FROM:
                raise DivergenceError(
                    "the ranks bring different numbers of elements to one conversation: rank "
                    f"{rank} {count}, rank {other} {theirs}. With config.check "
                    "(DISTARRAY_CHECK=1) they compare the shapes before, and name the call"
                )

    def meet(self) -> None:
        """Wait for all ranks; what each has written before, all others see afterwards."""
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
        """Say how far this rank is: who sees it sees all that was written before."""
        self._window.Sync()
        self._marks[self._comm.rank][number] = count

    def wait_for(self, rank: int, number: int, count: int) -> None:
        """Wait until a rank is so far."""
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
        """Give the memory up; collective."""
        self.slots.clear()
        self._marks.clear()
        self._said.clear()
        self._window.Unlock_all()
        self._window.Free()


def shared_by(comm: MPI.Intracomm) -> Shared | None:
    """Memory shared by the ranks of a communicator, which are on one node; collective.

    None, on all of them, where MPI cannot provide it.
    """
    pages = TOGETHER // (4 * PAGESIZE * comm.size) * 2  # whole ones in each half, too
    segment = max(LEAST, min(SEGMENT, pages * PAGESIZE))
    window = MPI.WIN_NULL
    with suppress(MPI.Exception):  # told by the fold below
        window = MPI.Win.Allocate_shared(2 * segment + PAGESIZE, 1, comm=comm)
    got = comm.allreduce(window != MPI.WIN_NULL, MPI.LAND)
    return Shared(comm, window, segment) if got else None


def _laid(place: Array, piece: Array) -> None:
    place[: len(piece)] = piece


def _take(pairs: list[tuple[Array, Array]]) -> None:
    """What the other ranks have folded of a segment."""
    for piece, place in pairs:
        piece[...] = place[: len(piece)]


def _fold(parts: list[Array], into: Array, ufunc: np.ufunc) -> None:
    """Fold in rank order."""
    total = parts[0]
    for part in parts[1:]:
        total = ufunc(total, part, out=into)
