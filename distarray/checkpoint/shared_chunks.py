"""Chunks that several ranks want: read by one of them, in pieces, and passed to the others.

This happens in rounds; in each, every rank reads pieces of some MiB. The ranks of one node put them
into shared memory, and each copies what it wants from there straight into its block; marks in that
memory say how far each rank is, which may be a round or two ahead of the others. If the ranks are
not all on one node, they send what the others want in messages.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from distarray.checkpoint.chunk_reader import Chunk, ChunkReader, Ranks
from distarray.comm import Group, ledger
from distarray.comm.files import PAGE, landing
from distarray.comm.group import Board, Pair
from distarray.layout import Box, Coords, Fold, Layout
from distarray.plan.exchange import intersect
from distarray.typing import Array

__all__ = ["read_shared"]

#: Most bytes that a rank reads for others in one round: few, so that they are still in the
#: processor's cache when they are copied.
_ROUND = 1 << 21
#: Rounds for which a rank has room in shared memory, and rounds that it reads ahead.
_CELLS, _AHEAD = 4, 1
#: The marks of a rank: rounds that it has read, and rounds from which it has copied.
_READ, _TAKEN = 0, 1
_NOTE = "chunks of a checkpoint"


class _Piece(NamedTuple):
    """A box of a chunk that is one stretch of its bytes."""

    chunk: Chunk
    number: int
    box: Box
    shape: tuple[int, ...]
    nbytes: int


class _Read(NamedTuple):
    """A piece that this rank reads, its first byte in the round, and the ranks that want some."""

    piece: _Piece
    at: int
    takers: list[tuple[int, Coords]]


class _Wanted(NamedTuple):
    """A piece that another rank reads and of which this rank wants some."""

    peer: int
    piece: _Piece
    at: int


class _Transport(Protocol):
    """A way to pass pieces to the ranks that want them.

    Attributes
    ----------
    ahead : int
        Rounds that are read before the first one is passed on.
    """

    ahead: int

    def place(self, turn: int) -> Array:
        """Memory for a round's pieces."""

    def offer(self, turn: int, pieces: Sequence[_Read]) -> None:
        """Announce that a round's pieces have been read."""

    def pass_on(self, turn: int, wanted: Sequence[_Wanted]) -> None:
        """Give the others what they want of a round's pieces, and get what this rank wants."""

    def end(self) -> None:
        """Return when no rank needs this rank's pieces any more."""


def read_shared(reader: ChunkReader, shared: Mapping[tuple[int, int], Chunk]) -> None:
    """Read the chunks that several ranks want, each by one of them; collective.

    Parameters
    ----------
    reader : Reader
    shared : mapping
        The chunks that this rank wants, by their keys.

    Cost
    ----
    As :func:`distarray.checkpoint.reading.read_arrays`.
    """
    group = reader.mesh.group
    if group.size == 1:
        return
    if not group.allreduce(np.array(len(shared)), Fold.MAX, "chunks that several ranks want"):
        return
    item = max([stored.dtype.itemsize for stored, _, _ in reader.arrays], default=0)
    board, most = group.board(), max(_ROUND, item)
    if board is not None and item <= board.slots[0].size // _CELLS:
        most = min(most, board.slots[0].size // _CELLS)
        transport: _Transport = _SharedMemory(reader, group, board)
    else:
        transport = _Messages(reader, group, most)
    mine = _rounds([c for c in shared.values() if c.reader == group.rank], reader, most)
    wanted, count = _announced(mine, reader, shared, most)
    ahead = transport.ahead
    for turn in range(count + ahead):
        if turn < count:
            pieces = mine[turn] if turn < len(mine) else []
            _read_round(reader, pieces, transport.place(turn))
            transport.offer(turn, pieces)
        if turn >= ahead:
            transport.pass_on(turn - ahead, wanted.get(turn - ahead, []))
    transport.end()


def _read_round(reader: ChunkReader, pieces: Sequence[_Read], place: Array) -> None:
    """Read pieces one after the other, and copy what this rank wants of them into its block."""
    for piece, at, _ in pieces:
        if piece.number == 0:  # the pieces of a chunk follow one another
            reader.begin(piece.chunk)
        out = place[at : at + piece.nbytes]
        reader.go_on(out)
        reader.put(piece.chunk, piece.box, out, piece.shape)


class _SharedMemory:
    """Passes pieces in memory that all ranks of the group see."""

    ahead = _AHEAD

    def __init__(self, reader: ChunkReader, group: Group, board: Board) -> None:
        self._reader, self._group, self._board = reader, group, board
        parts = [part.reshape(-1) for part in board.slots]
        self._cells = [part[: part.size // _CELLS * _CELLS].reshape(_CELLS, -1) for part in parts]
        #: For each cell of this rank, the ranks that want some of its pieces.
        self._takers: list[set[int]] = [set() for _ in range(_CELLS)]
        board.begin()

    def place(self, turn: int) -> Array:
        """A cell of this rank, once the other ranks have copied what they want from it."""
        for rank in self._takers[turn % _CELLS]:
            self._board.wait_for(rank, _TAKEN, turn - _CELLS + 1)
        cell: Array = self._cells[self._group.rank][turn % _CELLS]
        return cell

    def offer(self, turn: int, pieces: Sequence[_Read]) -> None:
        """Mark the round as read."""
        self._takers[turn % _CELLS] = {rank for each in pieces for rank, _ in each.takers}
        if ledger.watching:
            self._note(pieces, self._cells[self._group.rank][turn % _CELLS])
        self._board.mark(_READ, turn + 1)

    def pass_on(self, turn: int, wanted: Sequence[_Wanted]) -> None:
        """Copy what this rank wants from the cells of the others."""
        for peer, piece, at in wanted:
            self._board.wait_for(peer, _READ, turn + 1)
            found = self._cells[peer][turn % _CELLS, at : at + piece.nbytes]
            self._reader.put(piece.chunk, piece.box, found, piece.shape)
        self._board.mark(_TAKEN, turn + 1)

    def _note(self, pieces: Sequence[_Read], place: Array) -> None:
        """Write down what the others copy, as messages of this size would be."""
        given = [pair for each in pieces for pair in _parts(self._reader, each, place)]
        if given:
            sizes, peers = [view.nbytes for _, view in given], tuple([peer for peer, _ in given])
            ledger.record("exchange", sum(sizes), len(given), peers, _NOTE)

    def end(self) -> None:
        """Wait until all ranks have copied what they want."""
        self._board.meet()


class _Messages:
    """Passes pieces in messages, packed where what is wanted is not one stretch."""

    ahead = 0

    def __init__(self, reader: ChunkReader, group: Group, most: int) -> None:
        self._reader, self._group = reader, group
        self._room = landing((most,), np.uint8)
        self._pieces: Sequence[_Read] = []

    def place(self, turn: int) -> Array:
        """Memory of this rank."""
        return self._room

    def offer(self, turn: int, pieces: Sequence[_Read]) -> None:
        """Remember what to send."""
        self._pieces = pieces

    def pass_on(self, turn: int, wanted: Sequence[_Wanted]) -> None:
        """Send and receive."""
        sends: list[Pair] = []
        for each in self._pieces:
            packed: dict[tuple[Any, ...], Array] = {}  # replicas are sent the same array
            for peer, part in _parts(self._reader, each, self._room):
                key = (part.ctypes.data, part.shape)
                if key not in packed:
                    packed[key] = _packed(part)
                sends.append((peer, packed[key]))
        receives = [(peer, self._reader.target(p.chunk, p.box)) for peer, p, _ in wanted]
        self._group.exchange(sends, receives, _NOTE)

    def end(self) -> None:
        """Nothing: what was sent has been received."""


def _parts(reader: ChunkReader, read: _Read, place: Array) -> Iterator[Pair]:
    """For each rank that wants some of a piece, the part that it wants, as a view."""
    piece, at, takers = read
    data = place[at : at + piece.nbytes]
    for rank, coords in takers:
        yield rank, reader.part(piece.chunk, piece.box, data, piece.shape, coords)


def _packed(part: Array) -> Array:
    """The elements in one stretch, aligned with pages: see `landing`."""
    if part.flags.c_contiguous:
        return part
    packed = landing(part.shape, part.dtype)
    packed[...] = part
    return packed


def _rounds(chunks: Sequence[Chunk], reader: ChunkReader, most: int) -> list[list[_Read]]:
    """The pieces of chunks in rounds of at most so many bytes."""
    rounds: list[list[_Read]] = []
    at = most
    for chunk in chunks:
        layout = reader.arrays[chunk.array].layout
        for piece in _pieces(chunk, reader, most):
            if at + piece.nbytes > most:
                rounds.append([])
                at = 0
            takers = _takers(chunk.ranks, layout, piece.box, reader.mesh.rank)
            rounds[-1].append(_Read(piece, at, takers))
            at += -(-piece.nbytes // PAGE) * PAGE
    return rounds


def _pieces(chunk: Chunk, reader: ChunkReader, most: int) -> list[_Piece]:
    """A chunk in pieces of at most so many bytes, in C order."""
    stored = reader.stored(chunk)
    size = stored.dtype.itemsize
    cut = _boxes(stored.grid.chunk, chunk.place, max(1, most // size))
    return [
        _Piece(chunk, number, box, shape, prod(shape) * size)
        for number, (box, shape) in enumerate(cut)
    ]


# Cached: all of this is the same for arrays of one layout.


@lru_cache(16)
def _takers(ranks: Ranks, layout: Layout, box: Box, own: int) -> list[tuple[int, Coords]]:
    """The ranks, except this one, that want some of a box."""
    return [
        (rank, coords)
        for rank, coords in ranks
        if rank != own and intersect(box, layout.section(coords)) is not None
    ]


@lru_cache(256)
def _boxes(lengths: Coords, place: Coords, most: int) -> list[tuple[Box, tuple[int, ...]]]:
    """The boxes of a chunk's pieces of at most so many elements, and their shapes."""
    origin = [number * length for number, length in zip(place, lengths)]
    return [
        (
            tuple([(start + a, start + b) for start, (a, b) in zip(origin, inner)]),
            tuple([b - a for a, b in inner]),
        )
        for inner in _stretches(lengths, most)
    ]


@lru_cache(64)
def _stretches(shape: tuple[int, ...], most: int) -> list[Box]:
    """Boxes of at most so many elements that are one stretch each and follow one another.

    Examples
    --------
    >>> _stretches((1, 3, 4), 8)
    [((0, 1), (0, 2), (0, 4)), ((0, 1), (2, 3), (0, 4))]
    """
    if not shape:
        return [()]
    dim = next(d for d in range(len(shape)) if prod(shape[d + 1 :]) <= most)
    step, length = most // prod(shape[dim + 1 :]), shape[dim]
    singles = [[(i, i + 1) for i in range(n)] for n in shape[:dim]]
    cuts = [(start, min(start + step, length)) for start in range(0, length, step)]
    return list(product(*singles, cuts, *[[(0, n)] for n in shape[dim + 1 :]]))


def _announced(
    mine: Sequence[Sequence[_Read]],
    reader: ChunkReader,
    shared: Mapping[tuple[int, int], Chunk],
    most: int,
) -> tuple[dict[int, list[_Wanted]], int]:
    """The pieces that this rank wants of others, by round; and the number of rounds. Collective."""
    group = reader.mesh.group
    rows: list[list[tuple[int, ...]]] = [[(len(mine), 0, 0, 0, 0)] for _ in range(group.size)]
    for turn, pieces in enumerate(mine):
        for piece, at, takers in pieces:
            for rank, _ in takers:
                rows[rank].append((turn, *piece.chunk.key, piece.number, at))
    told = group.alltoall_varied([np.array(some, np.int64) for some in rows], "who reads what")
    wanted: dict[int, list[_Wanted]] = {}
    for peer, table in enumerate(told):
        known: dict[tuple[int, int], list[_Piece]] = {}
        for turn, array, chunk, number, at in table[1:].tolist():
            key = (array, chunk)
            if key not in known:
                known[key] = _pieces(shared[key], reader, most)
            wanted.setdefault(turn, []).append(_Wanted(peer, known[key][number], at))
    return wanted, max([int(table[0, 0]) for table in told])
