"""Rows for other ranks: where they are laid, and the conversation that brings them.

On one node rows are laid in memory that the ranks share, and read there by those that they are for:
nothing is copied on the way. Otherwise they go as messages.
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

#: From this many bytes a rank on, waiting for all ranks costs less than copies.
_FROM = 1 << 17
#: Arrays begin at multiples of this many bytes: a cache line.
_LINE = 64


class Outbox:
    """Memory for rows of some arrays that go to several ranks; made by :meth:`Group.outbox`.

    A context that all ranks of the group enter and leave. What was sent may be read until its end.

    Parameters
    ----------
    group : Group
        The ranks.
    board : Board, optional
        The memory that they share; without it rows go as messages.
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
        """Room for rows like those of an array, in C order; those of all arrays are sent."""
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
            All of them, in the order in which they were made. Their rows are ordered by rank.
        counts : sequence of int
            How many rows of each array go to each rank.
        note : Note
            The purpose, for the ledger.

        Returns
        -------
        list of list of array
            For each rank the rows that it sent here, of every array. To be read, not written.
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
        """The rows for this rank that a rank has laid in its part of the memory."""
        part, me = self._part(rank), self._group.rank
        starts, free = _starts(part, self._group.size)
        first, stop, rows = starts[[me, me + 1, -1]].tolist()
        found = []
        for array in arrays:
            whole, free = _room(part, free, (rows, *array.shape[1:]), array.dtype)
            found.append(whole[first:stop])
        return found


def room_for(group: "Group", rows: int, arrays: Sequence[Array]) -> Board | None:
    """Memory that the ranks share, if up to so many rows of each array are best laid there."""
    most = rows * sum(map(_bytes_a_row, arrays))
    if most < _FROM or any(on_device(array) or array.dtype.hasobject for array in arrays):
        return None
    board = group.board()
    fits = board is not None and most + _LINE * (group.size + 8) <= board.slots[0].size
    return board if fits else None


def _bytes_a_row(array: Array) -> int:
    return prod(array.shape[1:]) * array.itemsize


def _starts(part: Array, ranks: int) -> tuple[Array, int]:
    """Where the rows for each rank begin, and their end: the first array in a part of the memory.

    And the first byte that is free.
    """
    return _room(part, 0, (ranks + 1,), np.dtype(np.int64))


def _room(part: Array, at: int, shape: Shape, dtype: DType) -> tuple[Array, int]:
    """An array in a part of the memory from a byte on, and the first byte that is free."""
    stop = at + prod(shape) * dtype.itemsize
    return part[at:stop].view(dtype).reshape(shape), -(-stop // _LINE) * _LINE
