"""Chunk grids: the division of an array into files and checksummed chunks, and their writers.

The functions are pure: they take layouts and return integers and layouts. A file holds one shard,
which is a box of the array. All shards of an array have the same shape, and all chunks have the
same shape, as Zarr requires. Shards follow the layout, so that a rank writes its own block. Where
blocks do not form a regular grid (views, ragged blocks, blocks that the chunks do not divide
evenly), the boundaries of shards differ from those of blocks by a few rows. Only these rows are
sent.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import ceil, prod
from typing import NamedTuple

from distarray.layout import At, Box, Cut, Layout, Placement
from distarray.typing import Shape

__all__ = ["Grid", "Index", "files_of", "plan_shards"]

Index = tuple[int, ...]

#: Maximum size of a chunk, the unit of checksums, in bytes (except for larger elements).
CHUNK = 1 << 23
#: Maximum size of a file that is assembled in memory, in bytes.
FILE = 1 << 23
#: Minimum size of a shard, in bytes, when an array is divided among ranks.
LEAST = 1 << 20


class Grid(NamedTuple):
    """Grid of the shards of an array, and of the chunks of a shard.

    Attributes
    ----------
    shape : tuple of int
        Shape of the array.
    shard, chunk : tuple of int
        Shapes of a shard and of a chunk, which divides the shard.
    """

    shape: Shape
    shard: Shape
    chunk: Shape

    @property
    def shards(self) -> Shape:
        """Number of shards along each dimension."""
        return tuple([-(-n // s) for n, s in zip(self.shape, self.shard)])

    @property
    def chunks(self) -> Shape:
        """Number of chunks along each dimension of a shard."""
        return tuple([s // c for s, c in zip(self.shard, self.chunk)])

    @property
    def chunked(self) -> bool:
        """True if a shard has more than one chunk."""
        return self.shard != self.chunk

    def shard_box(self, shard: Index) -> Box:
        """Return the box of a shard, clipped at the edge of the array."""
        return _clipped(shard, self.shard, self.shape)

    def chunk_box(self, chunk: Index) -> Box:
        """Return the clipped box of a chunk; chunk indices count through the whole array."""
        return _clipped(chunk, self.chunk, self.shape)

    def number(self, chunk: Index) -> int:
        """Return the number of a chunk among all chunks of the array, in C order."""
        number = 0
        for at, n, c in zip(chunk, self.shape, self.chunk):
            number = number * -(-n // c) + at
        return number

    def place(self, chunk: Index) -> tuple[Index, int]:
        """Return the shard that contains a chunk, and the chunk's number in it, in C order."""
        shard, number = [], 0
        for at, count in zip(chunk, self.chunks):
            number = number * count + at % count
            shard.append(at // count)
        return tuple(shard), number

    def chunks_of(self, shard: Index) -> Iterator[Index | None]:
        """Yield the chunks of a shard in C order; None for a chunk beyond the array's edge."""
        for inner in product(*[range(count) for count in self.chunks]):
            at = tuple([s * count + i for s, count, i in zip(shard, self.chunks, inner)])
            beyond = any(i * c >= n for i, c, n in zip(at, self.chunk, self.shape))
            yield None if beyond else at

    def chunks_in(self, box: Box) -> Iterator[Index]:
        """Return an iterator over the chunks that overlap a box, in C order."""
        return product(*[range(a // c, -(-b // c)) for (a, b), c in zip(box, self.chunk)])


def _clipped(index: Index, lengths: Sequence[int], shape: Sequence[int]) -> Box:
    return tuple([(i * k, min((i + 1) * k, n)) for i, k, n in zip(index, lengths, shape)])


def plan_shards(layout: Layout, itemsize: int, turn: int = 0) -> tuple[Grid, Layout]:
    """Choose the grid for a layout, and the layout in which each rank holds the shard it writes.

    Parameters
    ----------
    layout : Layout
        Layout of the array, without pending folds.
    itemsize : int
        Bytes an element.
    turn : int
        Chooses among ranks that could equally write an array; increase `turn` for each array.

    Returns
    -------
    grid : Grid
    layout : Layout
        A rank's section of this layout is empty or exactly one shard. Replicas share the work.

    Examples
    --------
    >>> from distarray.layout import Shard
    >>> rows = Layout.chunked((1 << 20, 4), (4,), [Shard(0)])
    >>> grid, writing = plan_shards(rows, 8)
    >>> grid.shard, grid.chunk, writing is rows
    ((262144, 4), (262144, 4), True)
    """
    # `turn` modulo the ranks: the cache stays small when a program saves the same arrays again.
    return _planned(layout, itemsize, turn % prod(layout.mesh_shape), CHUNK, LEAST)


def files_of(grid: Grid, itemsize: int) -> tuple[Shape, Shape]:
    """Return the shapes of a chunk and of a file that is small enough to be built in memory.

    A rank's shard is divided into several such files, of two chunks each if it is large enough.

    Examples
    --------
    >>> files_of(Grid((1 << 20, 8), (1 << 19, 8), (1 << 17, 8)), 8)
    ((65536, 8), (131072, 8))
    """
    file, _ = _chunked(grid.shard, itemsize, FILE)
    return _chunked(file, itemsize, FILE // 2)


@lru_cache(512)
def _planned(
    layout: Layout, itemsize: int, turn: int, most: int, least: int
) -> tuple[Grid, Layout]:
    """Plan chunks of at most `most` bytes, in shards of at least `least` bytes."""
    budget = max(1, layout.size * itemsize // least)
    dims = [list(cut.mesh_dims) for cut in layout.cuts]
    for mesh_dim, size in enumerate(layout.mesh_shape):
        spare = not any(mesh_dim in taken for taken in dims)
        if spare and 1 < size <= budget // _ways(dims, layout):
            longest = max(
                range(layout.ndim),
                key=lambda d: layout.shape[d] / prod([layout.mesh_shape[m] for m in dims[d]]),
            )
            dims[longest].append(mesh_dim)
    parts = _few_parts(dims, layout, budget)
    lengths = [max(1, ceil(n / p)) for n, p in zip(layout.shape, parts)]
    chunk, shard = _chunked(lengths, itemsize, most)
    grid = Grid(layout.shape, shard, chunk)
    return grid, _writing(grid, layout, dims, parts, turn)


def _ways(dims: Sequence[Sequence[int]], layout: Layout) -> int:
    return prod([layout.mesh_shape[m] for taken in dims for m in taken])


def _few_parts(dims: Sequence[Sequence[int]], layout: Layout, budget: int) -> list[int]:
    """Count the shards along each dimension: one per rank, fewer if they would be too small."""
    parts = []
    for taken in dims:
        ways = prod([layout.mesh_shape[m] for m in taken])
        parts.append(max(1, min(ways, budget)))
        budget //= parts[-1]
    return parts


def _chunked(lengths: Sequence[int], itemsize: int, most: int) -> tuple[Shape, Shape]:
    """Return the shapes of a chunk and of a shard, enlarged so that the chunk divides it.

    A chunk is contiguous in the C order of its shard: it has the full length in the last
    dimensions, is cut in one dimension, and has length 1 in the dimensions before.
    """
    chunk, shard = list(lengths), list(lengths)
    for dim, length in enumerate(lengths):
        row = itemsize * prod(lengths[dim + 1 :])
        pieces = ceil(length / max(1, most // row))
        chunk[dim] = ceil(length / pieces)
        shard[dim] = chunk[dim] * ceil(length / chunk[dim])
        if chunk[dim] > 1 or row <= most:
            break
    return tuple(chunk), tuple(shard)


def _writing(
    grid: Grid, layout: Layout, dims: Sequence[Sequence[int]], parts: Sequence[int], turn: int
) -> Layout:
    """Return the layout in which a rank's section is empty or one shard."""
    cuts = []
    for n, length, count, taken, most in zip(grid.shape, grid.shard, grid.shards, dims, parts):
        radix = tuple([layout.mesh_shape[m] for m in taken])
        ways = prod(radix)
        if ways == 1:
            cuts.append(Cut.whole(n))
            continue
        # With fewer shards than ranks, a shard goes to the first rank whose block it contains;
        # with one shard, `turn` chooses the rank.
        first = turn % ways if most == 1 else 0
        counts = [0] * ways
        for number in range(count):
            counts[number * (ways // most) + first] = min(length, n - number * length)
        cuts.append(Cut.ragged(counts, tuple(taken), radix))
    used = {m for taken in dims for m in taken}
    others: dict[int, Placement] = {
        m: At(turn % size) for m, size in enumerate(layout.mesh_shape) if m not in used and size > 1
    }
    return Layout.from_cuts(cuts, layout.mesh_shape, others)
