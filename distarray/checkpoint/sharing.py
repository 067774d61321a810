"""Chunks that several ranks want: read by one of them, in pieces, and given to the others.

This happens in rounds: in each, every rank reads pieces of some MiB. Ranks of one node lay them in
memory that all of them see, and each takes out what it wants, straight into its block. Other ranks
are sent what they want in messages.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np

from distarray.checkpoint.blocks import Chunk, Reader
from distarray.comm import Group, ledger
from distarray.comm.files import PAGE, landing
from distarray.comm.group import Board, Pair
from distarray.layout import Box, Fold
from distarray.plan.exchange import intersect

__all__ = ["read_shared"]

Array = Any
Coords = tuple[int, ...]

#: Bytes that a rank reads for others in one round: few, so that they are still in the processor's
#: cache when they are taken.
_ROUND = 1 << 22
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
    """How pieces get to who wants them."""

    def place(self, turn: int) -> Array:
        """Where a round's pieces are read to."""

    def hand_out(self, turn: int, laid: Sequence[_Laid], coming: Sequence[_Coming]) -> None:
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
    if board is not None and item <= board.slots[0].shape[1]:
        most = min(most, board.slots[0].shape[1])
        way: _Way = _OnBoard(reader, group, board)
    else:
        way = _ByMessages(reader, group, most)
    mine = _rounds([c for c in shared.values() if c.reader == group.rank], reader, most)
    coming, count = _announced(mine, reader, shared, most)
    for turn in range(count):
        laid = mine[turn] if turn < len(mine) else []
        _read_round(reader, laid, way.place(turn))
        way.hand_out(turn, laid, coming.get(turn, []))
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

    def __init__(self, reader: Reader, group: Group, board: Board) -> None:
        self._reader, self._group, self._board = reader, group, board
        board.meet()

    def place(self, turn: int) -> Array:
        """This rank's own part, the halves by turns."""
        return self._board.slots[self._group.rank][turn % 2]

    def hand_out(self, turn: int, laid: Sequence[_Laid], coming: Sequence[_Coming]) -> None:
        """Take what this rank wants from where the others have laid it."""
        if ledger.watching:
            self._note(laid, self.place(turn))
        self._board.meet()  # also: who comes here has taken what it wanted of the turn before
        for peer, piece, at in coming:
            found = self._board.slots[peer][turn % 2, at : at + piece.nbytes]
            self._reader.put(piece.chunk, piece.box, found, piece.shape)

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

    def __init__(self, reader: Reader, group: Group, most: int) -> None:
        self._reader, self._group = reader, group
        self._room = landing((most,), np.uint8)

    def place(self, turn: int) -> Array:
        """Memory of this rank's own."""
        return self._room

    def hand_out(self, turn: int, laid: Sequence[_Laid], coming: Sequence[_Coming]) -> None:
        """Send and receive."""
        sends: list[Pair] = []
        for each in laid:
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
        wanting = [(rank, coords) for rank, coords in chunk.ranks if rank != reader.mesh.rank]
        layout = reader.arrays[chunk.array].layout
        for piece in _pieces(chunk, reader, most):
            if at + piece.nbytes > most:
                rounds.append([])
                at = 0
            takers = [
                (rank, coords)
                for rank, coords in wanting
                if intersect(piece.box, layout.section(coords)) is not None
            ]
            rounds[-1].append(_Laid(piece, at, takers))
            at += -(-piece.nbytes // PAGE) * PAGE
    return rounds


def _pieces(chunk: Chunk, reader: Reader, most: int) -> list[_Piece]:
    """A chunk in pieces of so many bytes at most, in C order."""
    stored = reader.stored(chunk)
    size, lengths = stored.dtype.itemsize, stored.grid.chunk
    origin = [number * length for number, length in zip(chunk.place, lengths)]
    found = []
    for number, inner in enumerate(_stretches(lengths, max(1, most // size))):
        box = tuple([(start + a, start + b) for start, (a, b) in zip(origin, inner)])
        shape = tuple([b - a for a, b in inner])
        found.append(_Piece(chunk, number, box, shape, prod(shape) * size))
    return found


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
