"""Chunks that several ranks want: read by one of them, in pieces, and given to the others.

This happens in rounds: in each, every rank reads pieces of some MiB. Ranks of one node lay them in
memory that all of them see, and each takes out what it wants, straight into its block; marks there
say how far each is, and a rank may be a round or two ahead of the others. Other ranks are sent what
they want in messages.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from distarray.checkpoint.chunk_reader import Chunk, Ranks, Reader
from distarray.comm import Group, ledger
from distarray.comm.files import PAGE, landing
from distarray.comm.group import Board, Pair
from distarray.layout import Box, Fold, Layout
from distarray.plan.exchange import intersect
from distarray.typing import Array

__all__ = ["read_shared"]

Coords = tuple[int, ...]

#: Bytes that a rank reads for others in one round, at most: few, so that they are still in the
#: processor's cache when they are taken.
_ROUND = 1 << 21
#: Rounds for which a rank has room in shared memory, and those it is ahead of what it takes there.
_CELLS, _AHEAD = 4, 1
#: The marks of a rank: rounds that it has read, and rounds of which it has taken what it wants.
_READ, _TAKEN = 0, 1
_NOTE = "chunks of a checkpoint"


class _Piece(NamedTuple):
    """A stretch of a chunk: a box of it that lies in one piece there."""

    chunk: Chunk
    number: int
    box: Box
    shape: tuple[int, ...]
    nbytes: int


class _Laid(NamedTuple):
    """A piece that this rank reads: from which byte of a round on, and who else wants of it."""

    piece: _Piece
    at: int
    takers: list[tuple[int, Coords]]


class _Coming(NamedTuple):
    """A piece of which this rank gets something."""

    peer: int
    piece: _Piece
    at: int


class _Way(Protocol):
    """How pieces get to who wants them.

    Attributes
    ----------
    ahead : int
        Rounds that are read before the first one is handed out.
    """

    ahead: int

    def place(self, turn: int) -> Array:
        """Where a round's pieces are read to."""

    def lay(self, turn: int, laid: Sequence[_Laid]) -> None:
        """Say that a round's pieces have been read."""

    def hand_out(self, turn: int, coming: Sequence[_Coming]) -> None:
        """Give the others what they want of a round's pieces, and get what this rank wants."""

    def end(self) -> None:
        """Return when nobody needs this rank's pieces any more."""


def read_shared(reader: Reader, shared: Mapping[tuple[int, int], Chunk]) -> None:
    """Read the chunks that several ranks want, one of them each; collective.

    Parameters
    ----------
    reader : Reader
    shared : mapping
        Those that this rank wants, by their keys.

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
        way: _Way = _OnBoard(reader, group, board)
    else:
        way = _ByMessages(reader, group, most)
    mine = _rounds([c for c in shared.values() if c.reader == group.rank], reader, most)
    coming, count = _announced(mine, reader, shared, most)
    for turn in range(count + way.ahead):
        if turn < count:
            laid = mine[turn] if turn < len(mine) else []
            _read_round(reader, laid, way.place(turn))
            way.lay(turn, laid)
        if turn >= way.ahead:
            way.hand_out(turn - way.ahead, coming.get(turn - way.ahead, []))
    way.end()


def _read_round(reader: Reader, laid: Sequence[_Laid], place: Array) -> None:
    """Read pieces one after the other, and keep what is wanted of them here."""
    for piece, at, _ in laid:
        if piece.number == 0:  # the pieces of a chunk follow one another
            reader.begin(piece.chunk)
        out = place[at : at + piece.nbytes]
        reader.go_on(out)
        reader.put(piece.chunk, piece.box, out, piece.shape)


class _OnBoard:
    """In memory that all ranks of the group see: what one has read the others look at."""

    ahead = _AHEAD

    def __init__(self, reader: Reader, group: Group, board: Board) -> None:
        self._reader, self._group, self._board = reader, group, board
        parts = [part.reshape(-1) for part in board.slots]
        self._cells = [part[: part.size // _CELLS * _CELLS].reshape(_CELLS, -1) for part in parts]
        #: Who takes something of what lies in this rank's cells.
        self._takers: list[set[int]] = [set() for _ in range(_CELLS)]
        board.begin()

    def place(self, turn: int) -> Array:
        """A cell of this rank's own part, once those who wanted what lay there have it."""
        for rank in self._takers[turn % _CELLS]:
            self._board.wait_for(rank, _TAKEN, turn - _CELLS + 1)
        return self._cells[self._group.rank][turn % _CELLS]

    def lay(self, turn: int, laid: Sequence[_Laid]) -> None:
        """Let the others look."""
        self._takers[turn % _CELLS] = {rank for each in laid for rank, _ in each.takers}
        if ledger.watching:
            self._note(laid, self._cells[self._group.rank][turn % _CELLS])
        self._board.mark(_READ, turn + 1)

    def hand_out(self, turn: int, coming: Sequence[_Coming]) -> None:
        """Take what this rank wants from where the others have laid it."""
        for peer, piece, at in coming:
            self._board.wait_for(peer, _READ, turn + 1)
            found = self._cells[peer][turn % _CELLS, at : at + piece.nbytes]
            self._reader.put(piece.chunk, piece.box, found, piece.shape)
        self._board.mark(_TAKEN, turn + 1)

    def _note(self, laid: Sequence[_Laid], place: Array) -> None:
        given = [pair for each in laid for pair in _parts(self._reader, each, place)]
        if given:
            sizes, peers = [view.nbytes for _, view in given], tuple([peer for peer, _ in given])
            ledger.record("exchange", sum(sizes), len(given), peers, _NOTE)

    def end(self) -> None:
        """Meet once more: nobody looks at the board any longer."""
        self._board.meet()


class _ByMessages:
    """In messages, packed where what is wanted does not lie in one stretch."""

    ahead = 0

    def __init__(self, reader: Reader, group: Group, most: int) -> None:
        self._reader, self._group = reader, group
        self._room = landing((most,), np.uint8)
        self._laid: Sequence[_Laid] = []

    def place(self, turn: int) -> Array:
        """Memory of this rank's own."""
        return self._room

    def lay(self, turn: int, laid: Sequence[_Laid]) -> None:
        """Keep in mind what to send."""
        self._laid = laid

    def hand_out(self, turn: int, coming: Sequence[_Coming]) -> None:
        """Send and receive."""
        sends: list[Pair] = []
        for each in self._laid:
            packed: dict[tuple[Any, ...], Array] = {}  # replicas get the same one
            for peer, part in _parts(self._reader, each, self._room):
                key = (part.ctypes.data, part.shape)
                if key not in packed:
                    packed[key] = _packed(part)
                sends.append((peer, packed[key]))
        receives = [(peer, self._reader.target(p.chunk, p.box)) for peer, p, _ in coming]
        self._group.exchange(sends, receives, _NOTE)

    def end(self) -> None:
        """Nothing: what was sent has been received."""


def _parts(reader: Reader, laid: _Laid, place: Array) -> Iterator[Pair]:
    """What each of those who want something of a piece gets, as a view."""
    piece, at, takers = laid
    data = place[at : at + piece.nbytes]
    for rank, coords in takers:
        yield rank, reader.part(piece.chunk, piece.box, data, piece.shape, coords)


def _packed(part: Array) -> Array:
    """The elements in one stretch; where pages begin, for which see `landing`."""
    if part.flags.c_contiguous:
        return part
    packed = landing(part.shape, part.dtype)
    packed[...] = part
    return packed


def _rounds(chunks: Sequence[Chunk], reader: Reader, most: int) -> list[list[_Laid]]:
    """The pieces of chunks in portions of so many bytes at most."""
    rounds: list[list[_Laid]] = []
    at = most
    for chunk in chunks:
        layout = reader.arrays[chunk.array].layout
        for piece in _pieces(chunk, reader, most):
            if at + piece.nbytes > most:
                rounds.append([])
                at = 0
            takers = _takers(chunk.ranks, layout, piece.box, reader.mesh.rank)
            rounds[-1].append(_Laid(piece, at, takers))
            at += -(-piece.nbytes // PAGE) * PAGE
    return rounds


def _pieces(chunk: Chunk, reader: Reader, most: int) -> list[_Piece]:
    """A chunk in pieces of so many bytes at most, in C order."""
    stored = reader.stored(chunk)
    size = stored.dtype.itemsize
    cut = _boxes(stored.grid.chunk, chunk.place, max(1, most // size))
    return [
        _Piece(chunk, number, box, shape, prod(shape) * size)
        for number, (box, shape) in enumerate(cut)
    ]


# Of arrays of one layout all is alike; what was found out for one is looked up for the others.


@lru_cache(16)
def _takers(ranks: Ranks, layout: Layout, box: Box, own: int) -> list[tuple[int, Coords]]:
    """Which of some ranks want something of a box, but one."""
    return [
        (rank, coords)
        for rank, coords in ranks
        if rank != own and intersect(box, layout.section(coords)) is not None
    ]


@lru_cache(256)
def _boxes(lengths: Coords, place: Coords, most: int) -> list[tuple[Box, tuple[int, ...]]]:
    """The pieces of at most so many elements of a chunk of some lengths; their shapes."""
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
    """Boxes of at most so many elements, each in one stretch, that follow one another.

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
    mine: Sequence[Sequence[_Laid]],
    reader: Reader,
    shared: Mapping[tuple[int, int], Chunk],
    most: int,
) -> tuple[dict[int, list[_Coming]], int]:
    """What this rank gets in which round, and the number of rounds; collective."""
    group = reader.mesh.group
    rows: list[list[tuple[int, ...]]] = [[(len(mine), 0, 0, 0, 0)] for _ in range(group.size)]
    for turn, laid in enumerate(mine):
        for piece, at, takers in laid:
            for rank, _ in takers:
                rows[rank].append((turn, *piece.chunk.key, piece.number, at))
    told = group.alltoall_varied([np.array(some, np.int64) for some in rows], "who reads what")
    coming: dict[int, list[_Coming]] = {}
    for peer, table in enumerate(told):
        known: dict[tuple[int, int], list[_Piece]] = {}
        for turn, array, chunk, number, at in table[1:].tolist():
            key = (array, chunk)
            if key not in known:
                known[key] = _pieces(shared[key], reader, most)
            coming.setdefault(turn, []).append(_Coming(peer, known[key][number], at))
    return coming, max([int(table[0, 0]) for table in told])
