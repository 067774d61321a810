"""Division of boxes into pieces that are read or written one at a time, to save memory."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from math import prod

from distarray.array.movement import Piece, part_of
from distarray.comm import DeviceMesh
from distarray.layout import Box
from distarray.typing import Array

__all__ = ["assembled", "chunk_aligned_pieces", "cut_to", "pieces_of", "within"]

#: Bytes of chunks that are encoded or decoded in one call. Libraries need several times as much
#: memory for the call.
PIECE = 1 << 23


def pieces_of(box: Box, itemsize: int, limit: int) -> Iterator[Box]:
    """Yield a box in pieces of at most `limit` bytes (one element at least), in C order.

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
        room = max(1, room // length)
    ranges = [range(start, stop, step) for (start, stop), step in zip(box, reversed(steps))]
    for corner in product(*ranges):
        yield tuple(
            [
                (at, min(at + step, stop))
                for at, step, (_, stop) in zip(corner, reversed(steps), box)
            ]
        )


def chunk_aligned_pieces(box: Box, chunks: Sequence[int], itemsize: int) -> Iterator[Box]:
    """Yield a box in pieces of some mebibytes that end at chunk boundaries.

    A piece covers at least one chunk.

    Examples
    --------
    >>> list(chunk_aligned_pieces(((100, 1500),), (1000,), 8 << 10))
    [((100, 1000),), ((1000, 1500),)]
    """
    around = tuple([(a // c, -(-b // c)) for (a, b), c in zip(box, chunks)])
    for piece in pieces_of(around, prod(chunks) * itemsize, PIECE):
        cells = zip(piece, chunks, box)
        yield tuple([(max(i * c, a), min(j * c, b)) for (i, j), c, (a, b) in cells])


def within(piece: Box, box: Box) -> tuple[slice, ...]:
    """Convert a piece of a box to slices of the box's block."""
    return tuple([slice(a - low, b - low) for (a, b), (low, _) in zip(piece, box, strict=True)])


def assembled(found: Sequence[Piece], box: Box, mesh: DeviceMesh) -> Array:
    """Assemble a box from pieces that cover it: a view of a piece that contains it, or a copy.

    Parameters
    ----------
    found : sequence of (slices, array)
        Pieces of a block; the slices are positions in the block.
    box : tuple of (int, int)
        A box of the block.
    mesh : DeviceMesh
        The mesh on whose device a new array is made.
    """
    cut = list(cut_to(found, box))
    lengths = tuple([stop - start for start, stop in box])
    if len(cut) == 1 and cut[0][1].shape == lengths:
        return cut[0][1]
    whole: Array = mesh.xp.empty(lengths, cut[0][1].dtype)
    for slices, part in cut:
        whole[slices] = part
    return whole


def cut_to(found: Iterable[Piece], box: Box) -> Iterator[Piece]:
    """Yield the sections of pieces that are in a box, with their positions in the box."""
    for slices, part in found:
        common = [(max(s.start, a), min(s.stop, b)) for s, (a, b) in zip(slices, box)]
        if all(low < high for low, high in common):
            of = [slice(low - s.start, high - s.start) for (low, high), s in zip(common, slices)]
            into = [slice(low - a, high - a) for (low, high), (a, _) in zip(common, box)]
            yield tuple(into), part_of(part, tuple(of))
