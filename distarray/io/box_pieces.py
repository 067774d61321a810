"""Boxes of an array in portions that are stored one after another, for want of memory."""

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod
from typing import Any

from distarray.array.movement import Piece, part_of
from distarray.comm import DeviceMesh
from distarray.layout import Box

__all__ = ["pieces_of", "portions", "put_together"]

#: Bytes of chunks that are encoded or decoded at a time: libraries have several times as many in
#: memory.
PORTION = 1 << 23


def pieces_of(box: Box, itemsize: int, limit: int) -> Iterator[Box]:
    """A box in pieces of at most `limit` bytes (one element at least), in C order.

    Examples
    --------
    >>> list(pieces_of(((0, 4), (0, 3)), 8, limit=48))
    [((0, 2), (0, 3)), ((2, 4), (0, 3))]
    """
    steps = []
    room = max(1, limit // max(1, itemsize))
    for start, stop in reversed(box):
        length = max(1, min(stop - start, room))
        steps.append(length)
        room //= length
        room = max(1, room)
    ranges = [range(start, stop, step) for (start, stop), step in zip(box, reversed(steps))]
    for corner in product(*ranges):
        yield tuple(
            [
                (at, min(at + step, stop))
                for at, step, (_, stop) in zip(corner, reversed(steps), box)
            ]
        )


def portions(box: Box, chunks: Sequence[int], itemsize: int) -> Iterator[Box]:
    """A box in portions of some mebibytes that end where chunks do, of one chunk at least.

    Examples
    --------
    >>> list(portions(((100, 1500),), (1000,), 8 << 10))
    [((100, 1000),), ((1000, 1500),)]
    """
    around = tuple([(a // c, -(-b // c)) for (a, b), c in zip(box, chunks)])
    for piece in pieces_of(around, prod(chunks) * itemsize, PORTION):
        cells = zip(piece, chunks, box)
        yield tuple([(max(i * c, a), min(j * c, b)) for (i, j), c, (a, b) in cells])


def put_together(found: Sequence[Piece], box: Box, mesh: DeviceMesh) -> Any:
    """A box out of pieces that cover it: a view if one piece has all of it, else a new array.

    Parameters
    ----------
    found : sequence of (slices, array)
        Pieces of a block, by their places in it.
    box : tuple of (int, int)
        In the block.
    mesh : DeviceMesh
        Says where new arrays are.
    """
    met = []
    for slices, part in found:
        common = [(max(s.start, a), min(s.stop, b)) for s, (a, b) in zip(slices, box)]
        if all(low < high for low, high in common):
            of = [slice(low - s.start, high - s.start) for (low, high), s in zip(common, slices)]
            into = [slice(low - a, high - a) for (low, high), (a, _) in zip(common, box)]
            met.append((tuple(into), part_of(part, tuple(of))))
    lengths = tuple([stop - start for start, stop in box])
    if len(met) == 1 and met[0][1].shape == lengths:
        return met[0][1]
    whole = mesh.xp.empty(lengths, met[0][1].dtype)
    for slices, part in met:
        whole[slices] = part
    return whole
