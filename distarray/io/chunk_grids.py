"""How an array is cut into files and checksummed chunks, and which rank writes which file.

Pure: layouts in, integers and layouts out. A file holds one shard, a box of the array; all shards
of an array have the same shape, and so have the chunks in them, as Zarr wants it. Shards follow
the layout, so that a rank writes what it holds. Where blocks do not form a regular grid (views,
ragged blocks, blocks that the chunks do not divide evenly), the shards' boundaries differ from the
blocks' by a few rows, and only these travel.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import ceil, prod
from typing import NamedTuple

from distarray.layout import At, Box, Cut, Layout, Placement

__all__ = ["Grid", "Index", "files_of", "plan_shards"]

Index = tuple[int, ...]

#: Bytes of a chunk, at most (save for elements larger than that): what is checksummed at once.
CHUNK = 1 << 23
#: Bytes of a file, at most, that is put together in memory.
FILE = 1 << 23
#: A shard is not made smaller than this by dividing an array among ranks.
LEAST = 1 << 20


class Grid(NamedTuple):
    """The shards of an array, and the chunks of a shard.

    Attributes
    ----------
    shape : tuple of int
        Of the array.
    shard, chunk : tuple of int
        Shapes; the chunk's divides the shard's.
    """

    shape: tuple[int, ...]
    shard: tuple[int, ...]
    chunk: tuple[int, ...]

    @property
    def shards(self) -> tuple[int, ...]:
        """Number of shards along each dimension."""
        return tuple([-(-n // s) for n, s in zip(self.shape, self.shard)])

    @property
    def chunks(self) -> tuple[int, ...]:
        """Number of chunks along each dimension of a shard."""
        return tuple([s // c for s, c in zip(self.shard, self.chunk)])

    @property
    def chunked(self) -> bool:
        """Whether a shard is more than one chunk."""
        return self.shard != self.chunk

    def shard_box(self, shard: Index) -> Box:
        """The elements of a shard that exist."""
        return _clipped(shard, self.shard, self.shape)

    def chunk_box(self, chunk: Index) -> Box:
        """The elements of a chunk that exist; chunks are numbered through the whole array."""
        return _clipped(chunk, self.chunk, self.shape)

    def number(self, chunk: Index) -> int:
        """Of a chunk, among all of the array in C order."""
        number = 0
        for at, n, c in zip(chunk, self.shape, self.chunk):
            number = number * -(-n // c) + at
        return number

    def place(self, chunk: Index) -> tuple[Index, int]:
        """The shard a chunk is in, and its number there in C order."""
        shard, number = [], 0
        for at, count in zip(chunk, self.chunks):
            number = number * count + at % count
            shard.append(at // count)
        return tuple(shard), number

    def chunks_of(self, shard: Index) -> Iterator[Index | None]:
        """The chunks of a shard in C order; None for one beyond the edge of the array."""
        for inner in product(*[range(count) for count in self.chunks]):
            at = tuple([s * count + i for s, count, i in zip(shard, self.chunks, inner)])
            beyond = any(i * c >= n for i, c, n in zip(at, self.chunk, self.shape))
            yield None if beyond else at

    def chunks_in(self, box: Box) -> Iterator[Index]:
        """The chunks that meet a box, in C order."""
        return product(*[range(a // c, -(-b // c)) for (a, b), c in zip(box, self.chunk)])


def _clipped(index: Index, lengths: Sequence[int], shape: Sequence[int]) -> Box:
    return tuple([(i * k, min((i + 1) * k, n)) for i, k, n in zip(index, lengths, shape)])


def plan_shards(layout: Layout, itemsize: int, turn: int = 0) -> tuple[Grid, Layout]:
    """The grid that suits a layout, and the layout in which each rank holds what it writes.

    Parameters
    ----------
    layout : Layout
        Of the array; without pending folds.
    itemsize : int
        Bytes an element.
    turn : int
        Chooses among ranks that might as well write an array; count it up from array to array.

    Returns
    -------
    grid : Grid
    layout : Layout
        Of which a rank's section is empty or exactly one shard. Replicas share the work.

    Examples
    --------
    >>> from distarray.layout import Shard
    >>> rows = Layout.chunked((1 << 20, 4), (4,), [Shard(0)])
    >>> grid, writing = plan_shards(rows, 8)
    >>> grid.shard, grid.chunk, writing is rows
    ((262144, 4), (262144, 4), True)
    """
    # Ranks have equal turns, however many arrays there are; programs save the same ones again.
    return _planned(layout, itemsize, turn % prod(layout.mesh_shape), CHUNK, LEAST)


def files_of(grid: Grid, itemsize: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of a chunk and of a file, when files are so small that one is put together in memory.

    A rank's shard becomes several of these, of two chunks each where it is large enough.

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
    """Plan chunks of `most` bytes at most, in shards of `least` bytes at least."""
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
    """Shards along each dimension: as many as ranks cut it, unless they would be too small."""
    parts = []
    for taken in dims:
        ways = prod([layout.mesh_shape[m] for m in taken])
        parts.append(max(1, min(ways, budget)))
        budget //= parts[-1]
    return parts


def _chunked(
    lengths: Sequence[int], itemsize: int, most: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shapes of a chunk and of a shard, the latter grown until the former divides it.

    A chunk is a stretch of a shard in C order: whole in the last dimensions, cut in one, of
    length 1 in those before.
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
    cuts = []
    for n, length, count, taken, most in zip(grid.shape, grid.shard, grid.shards, dims, parts):
        radix = tuple([layout.mesh_shape[m] for m in taken])
        ways = prod(radix)
        if ways == 1:
            cuts.append(Cut.whole(n))
            continue
        # A shard of fewer shards than ranks goes to the first of those it is made of; one that
        # is nobody's in particular, because there is but one, to whose turn it is.
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
