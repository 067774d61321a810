"""Rows for other ranks: the memory that stores them, and the exchange that sends them.

On one node rows are stored in memory that the ranks share, and the receiving ranks read them there
without a copy. Otherwise rows are sent as messages.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from distarray.comm import ledger
from distarray.comm.calls import note as remember
from distarray.comm.devices import on_device
from distarray.comm.ledger import Note
from distarray.comm.transport import Array, Board
from distarray.typing import DType, Shape

if TYPE_CHECKING:
    from distarray.comm.group import Group

__all__ = ["Outbox", "room_for"]

#: Number of bytes per rank from which waiting for all ranks costs less than copies.
_FROM = 1 << 17
#: Arrays begin at multiples of this many bytes: a cache line.
_LINE = 64


class Outbox:
    """Memory for rows of some arrays, for several ranks; made by :meth:`Group.outbox`.

    A context that all ranks of the group enter and leave. Received rows may be read until its end.

    Parameters
    ----------
    group : Group
        The group of the ranks.
    board : Board, optional
        The memory that the ranks share; without it rows are sent as messages.
    """

    def __init__(self, group: "Group", board: Board | None = None) -> None:
        self._group, self._board = group, board
        self._used = 0

    def __enter__(self) -> "Outbox":
        if self._board is not None:
            self._board.meet()
            self._starts, self._used = _starts(self._part(self._group.rank), self._group.size)
        return self

    def __exit__(self, *error: object) -> None:
        if self._board is not None:
            self._board.meet()

    def empty(self, like: Array, rows: int) -> Array:
        """Return memory for rows like those of an array, in C order; all arrays' rows are sent."""
        shape = (rows, *like.shape[1:])
        if self._board is None:
            return np.empty_like(like, order="C", shape=shape)
        found, self._used = _room(self._part(self._group.rank), self._used, shape, like.dtype)
        return found

    def send(
        self, arrays: Sequence[Array], counts: Sequence[int], note: Note = None
    ) -> list[list[Array]]:
        """Send the rows of the arrays from `empty` to all ranks; collective.

        Parameters
        ----------
        arrays : sequence of array
            All arrays, in the order in which `empty` made them. Their rows are ordered by rank.
        counts : sequence of int
            Number of rows of each array for each rank.
        note : Note
            The purpose, for the ledger.

        Returns
        -------
        list of list of array
            For each rank, the rows of every array that it sent to this rank; only to be read.
        """
        group = self._group
        if ledger.watching:
            away = sum(counts) - counts[group.rank]
            group.write("alltoall", away * sum(map(_bytes_a_row, arrays)), note)
        if group.watched:
            remember(group, "send", note)
        if self._board is None:
            return group.alltoall_together(arrays, counts)
        self._starts[:] = list(accumulate(counts, initial=0))
        self._board.meet()
        return [self._laid_by(rank, arrays) for rank in range(group.size)]

    def _part(self, rank: int) -> Array:
        assert self._board is not None
        return self._board.slots[rank].reshape(-1)

    def _laid_by(self, rank: int, arrays: Sequence[Array]) -> list[Array]:
        """Return the rows for this rank that a rank has stored in its shared memory."""
        part, me = self._part(rank), self._group.rank
        starts, free = _starts(part, self._group.size)
        first, stop, rows = starts[[me, me + 1, -1]].tolist()
        found = []
        for array in arrays:
            whole, free = _room(part, free, (rows, *array.shape[1:]), array.dtype)
            found.append(whole[first:stop])
        return found


def room_for(group: "Group", rows: int, arrays: Sequence[Array]) -> Board | None:
    """Return memory that the ranks share if rows of this size are best stored there; else None."""
    most = rows * sum(map(_bytes_a_row, arrays))
    if most < _FROM or any(on_device(array) or array.dtype.hasobject for array in arrays):
        return None
    board = group.board()
    fits = board is not None and most + _LINE * (group.size + 8) <= board.slots[0].size
    return board if fits else None


def _bytes_a_row(array: Array) -> int:
    return prod(array.shape[1:]) * array.itemsize


def _starts(part: Array, ranks: int) -> tuple[Array, int]:
    """Return the row offsets by receiving rank, and the first free byte of a rank's memory.

    The offsets, with the end of the last rows, are the first array in the memory.
    """
    return _room(part, 0, (ranks + 1,), np.dtype(np.int64))


def _room(part: Array, at: int, shape: Shape, dtype: DType) -> tuple[Array, int]:
    """Return an array in a rank's memory from a byte on, and the first free byte."""
    stop = at + prod(shape) * dtype.itemsize
    return part[at:stop].view(dtype).reshape(shape), -(-stop // _LINE) * _LINE
