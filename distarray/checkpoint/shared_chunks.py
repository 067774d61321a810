"""Chunks that several ranks need: read by one of them, in pieces, and passed to the others.

The transfer runs in rounds. In each round every rank reads pieces of some MiB. If all ranks are on
one node, they read the pieces into shared memory, and each rank copies the elements that it needs
directly into its block. Counters in that memory show the progress of each rank, which may be a
round or two ahead of the others. If the ranks are not all on one node, they send the elements in
messages.
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

#: Maximum number of bytes that a rank reads for others in one round; small, so that they are still
#: in the processor's cache when they are copied.
_ROUND = 1 << 21
#: Number of rounds that fit into a rank's shared memory, and number of rounds that it reads ahead.
_CELLS, _AHEAD = 4, 1
#: Counters of a rank: rounds that it has read, and rounds from which it has copied.
_READ, _TAKEN = 0, 1
_NOTE = "chunks of a checkpoint"


class _Piece(NamedTuple):
    """Box of a chunk that is contiguous in the bytes of the chunk."""

    chunk: Chunk
    number: int
    box: Box
    shape: tuple[int, ...]
    nbytes: int


class _Read(NamedTuple):
    """Piece that this rank reads, its first byte in the round, and the ranks that need it."""

    piece: _Piece
    at: int
    takers: list[tuple[int, Coords]]


class _Wanted(NamedTuple):
    """Piece that another rank reads and of which this rank needs elements."""

    peer: int
    piece: _Piece
    at: int


class _Transport(Protocol):
    """Transport of pieces to the ranks that need them.

    Attributes
    ----------
    ahead : int
        Number of rounds that are read before the first round is passed on.
    """

    ahead: int

    def place(self, turn: int) -> Array:
        """Return memory for a round's pieces."""

    def offer(self, turn: int, pieces: Sequence[_Read]) -> None:
        """Announce that a round's pieces have been read."""

    def pass_on(self, turn: int, wanted: Sequence[_Wanted]) -> None:
        """Pass a round's pieces to the other ranks, and get the pieces that this rank needs."""

    def end(self) -> None:
        """Wait until no rank needs this rank's pieces any more."""


def read_shared(reader: ChunkReader, shared: Mapping[tuple[int, int], Chunk]) -> None:
    """Read the chunks that several ranks need, each chunk on one rank; collective.

    Parameters
    ----------
    reader : ChunkReader
    shared : mapping
        The chunks that this rank needs, by key.

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
    """Read pieces one after the other, and copy the elements that this rank needs to its block."""
    for piece, at, _ in pieces:
        if piece.number == 0:  # the first piece of a chunk; the others follow
            reader.begin(piece.chunk)
        out = place[at : at + piece.nbytes]
        reader.go_on(out)
        reader.put(piece.chunk, piece.box, out, piece.shape)


class _SharedMemory:
    """Transport in memory that all ranks of the group share."""

    ahead = _AHEAD

    def __init__(self, reader: ChunkReader, group: Group, board: Board) -> None:
        self._reader, self._group, self._board = reader, group, board
        parts = [part.reshape(-1) for part in board.slots]
        self._cells = [part[: part.size // _CELLS * _CELLS].reshape(_CELLS, -1) for part in parts]
        #: For each cell of this rank, the ranks that need its pieces.
        self._takers: list[set[int]] = [set() for _ in range(_CELLS)]
        board.begin()

    def place(self, turn: int) -> Array:
        """Return a cell of this rank, after the other ranks have copied its old content."""
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
        """Copy the elements that this rank needs from the cells of the other ranks."""
        for peer, piece, at in wanted:
            self._board.wait_for(peer, _READ, turn + 1)
            found = self._cells[peer][turn % _CELLS, at : at + piece.nbytes]
            self._reader.put(piece.chunk, piece.box, found, piece.shape)
        self._board.mark(_TAKEN, turn + 1)

    def _note(self, pieces: Sequence[_Read], place: Array) -> None:
        """Record the copies of the other ranks in the ledger, as messages of the same size."""
        given = [pair for each in pieces for pair in _parts(self._reader, each, place)]
        if given:
            sizes, peers = [view.nbytes for _, view in given], tuple([peer for peer, _ in given])
            ledger.record("exchange", sum(sizes), len(given), peers, _NOTE)

    def end(self) -> None:
        """Wait until all ranks have copied all pieces."""
        self._board.meet()


class _Messages:
    """Transport by messages; elements that are not contiguous are packed."""

    ahead = 0

    def __init__(self, reader: ChunkReader, group: Group, most: int) -> None:
        self._reader, self._group = reader, group
        self._room = landing((most,), np.uint8)
        self._pieces: Sequence[_Read] = []

    def place(self, turn: int) -> Array:
        """Return this rank's buffer."""
        return self._room

    def offer(self, turn: int, pieces: Sequence[_Read]) -> None:
        """Remember the pieces to send."""
        self._pieces = pieces

    def pass_on(self, turn: int, wanted: Sequence[_Wanted]) -> None:
        """Send the pieces of this rank, and receive the pieces that it needs."""
        sends: list[Pair] = []
        for each in self._pieces:
            packed: dict[tuple[Any, ...], Array] = {}  # replicas receive the same array
            for peer, part in _parts(self._reader, each, self._room):
                key = (part.ctypes.data, part.shape)
                if key not in packed:
                    packed[key] = _packed(part)
                sends.append((peer, packed[key]))
        receives = [(peer, self._reader.target(p.chunk, p.box)) for peer, p, _ in wanted]
        self._group.exchange(sends, receives, _NOTE)

    def end(self) -> None:
        """Do nothing: all messages have been received."""


def _parts(reader: ChunkReader, read: _Read, place: Array) -> Iterator[Pair]:
    """Yield each rank that needs elements of a piece, with the section that it needs, as a view."""
    piece, at, takers = read
    data = place[at : at + piece.nbytes]
    for rank, coords in takers:
        yield rank, reader.part(piece.chunk, piece.box, data, piece.shape, coords)


def _packed(part: Array) -> Array:
    """Copy the elements into contiguous memory, aligned with pages: see `landing`."""
    if part.flags.c_contiguous:
        return part
    packed = landing(part.shape, part.dtype)
    packed[...] = part
    return packed


def _rounds(chunks: Sequence[Chunk], reader: ChunkReader, most: int) -> list[list[_Read]]:
    """Divide the pieces of chunks into rounds of at most `most` bytes."""
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
    """Divide a chunk into pieces of at most `most` bytes, in C order."""
    stored = reader.stored(chunk)
    size = stored.dtype.itemsize
    cut = _boxes(stored.grid.chunk, chunk.place, max(1, most // size))
    return [
        _Piece(chunk, number, box, shape, prod(shape) * size)
        for number, (box, shape) in enumerate(cut)
    ]


# The functions below are cached: their results are equal for arrays of the same layout.


@lru_cache(16)
def _takers(ranks: Ranks, layout: Layout, box: Box, own: int) -> list[tuple[int, Coords]]:
    """List the ranks, except this rank (`own`), that need elements of a box."""
    return [
        (rank, coords)
        for rank, coords in ranks
        if rank != own and intersect(box, layout.section(coords)) is not None
    ]


@lru_cache(256)
def _boxes(lengths: Coords, place: Coords, most: int) -> list[tuple[Box, tuple[int, ...]]]:
    """Return the boxes of a chunk's pieces of at most `most` elements, and their shapes."""
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
    """Divide a shape into consecutive, contiguous boxes of at most `most` elements.

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
    """Return the pieces that this rank needs, by round, and the number of rounds. Collective."""
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
