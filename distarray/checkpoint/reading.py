"""One rank's part of reading arrays: each chunk is read once, and sent to whom it concerns.

A chunk whose elements one rank wants alone is read by that rank, into its block where it lies
there in one stretch. One that several want is read by one of them, in turn, who sends each its
part; this happens in rounds, so that no more than a few chunks are in memory besides the blocks.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.array.movement import part_of
from distarray.checkpoint.files import ChunkFiles, as_bytes
from distarray.checkpoint.metadata import Stored
from distarray.comm import DeviceMesh
from distarray.comm.files import PAGE, landing
from distarray.comm.group import Pair
from distarray.io.grids import Index
from distarray.layout import Box, Fold, Layout
from distarray.plan.exchange import intersect, rank_of

__all__ = ["Wanted", "read_arrays"]

Array = Any
Told = Callable[[int], object]

#: Bytes of chunks that a rank reads for others in one round, at least one chunk: few, so that
#: they are still in the processor's cache when they are sent.
_ROUND = 1 << 21


class Wanted(NamedTuple):
    """An array that is being loaded.

    Attributes
    ----------
    stored : Stored
    layout : Layout
        Where it goes; without pending folds.
    block : numpy.ndarray
        This rank's block, to be filled; may be strided.
    """

    stored: Stored
    layout: Layout
    block: Array


class _Chunk(NamedTuple):
    """A chunk of one of the arrays, and the ranks that want some of it."""

    array: int
    number: int
    place: Index
    ranks: "_Ranks"

    @property
    def key(self) -> tuple[int, int]:
        """Which array, and which of its chunks in C order."""
        return self.array, self.number

    @property
    def reader(self) -> int:
        """The rank that reads it."""
        return self.ranks.nth(self.number % self.ranks.count)


class _Ranks:
    """The ranks whose blocks meet a box; only counted as long as nobody asks who they are."""

    __slots__ = ("_layout", "_ways", "count")

    def __init__(self, layout: Layout, box: Box) -> None:
        self._layout = layout
        self._ways: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = []
        taken: set[int] = set()
        for cut, (start, stop) in zip(layout.cuts, box):
            if cut.mesh_dims:
                parts = [p for p in cut.owners(start, stop) if _meets(cut.interval(p), start, stop)]
                self._ways.append((cut.mesh_dims, [cut.digits(p) for p in parts]))
                taken.update(cut.mesh_dims)
        for mesh_dim, size in enumerate(layout.mesh_shape):
            if mesh_dim in layout.ats:
                at = layout.placements[mesh_dim].coordinate  # type: ignore[attr-defined]
                self._ways.append(((mesh_dim,), [(at,)]))
            elif mesh_dim not in taken and size > 1:
                self._ways.append(((mesh_dim,), [(c,) for c in range(size)]))
        self.count = prod([len(choices) for _, choices in self._ways])

    def nth(self, number: int) -> int:
        """One of them, as a rank of the mesh."""
        coords = [0] * len(self._layout.mesh_shape)
        for mesh_dims, choices in reversed(self._ways):
            number, at = divmod(number, len(choices))
            for mesh_dim, coordinate in zip(mesh_dims, choices[at]):
                coords[mesh_dim] = coordinate
        return rank_of(tuple(coords), self._layout.mesh_shape)

    def __iter__(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Each with its coordinates."""
        for choice in product(*[choices for _, choices in self._ways]):
            coords = [0] * len(self._layout.mesh_shape)
            for (mesh_dims, _), digits in zip(self._ways, choice):
                for mesh_dim, coordinate in zip(mesh_dims, digits):
                    coords[mesh_dim] = coordinate
            yield rank_of(tuple(coords), self._layout.mesh_shape), tuple(coords)


def _meets(interval: tuple[int, int], start: int, stop: int) -> bool:
    return max(interval[0], start) < min(interval[1], stop)


def read_arrays(
    files: ChunkFiles, arrays: Sequence[Wanted], mesh: DeviceMesh, tell: Told
) -> Exception | None:
    """Fill this rank's blocks of some arrays; collective over the mesh they are on.

    Parameters
    ----------
    files : ChunkFiles
    arrays : sequence of Wanted
        The same, in the same order, on all ranks of the mesh.
    mesh : DeviceMesh
    tell : callable
        Told of bytes of chunks read.

    Returns
    -------
    Exception or None
        What went wrong on this rank, which has taken part in everything nevertheless.

    Cost
    ----
    Each chunk is read once. One exchange of a few integers a chunk that several ranks want, then
    rounds of such chunks, in which each rank receives what it lacks.
    """
    reader = _Reader(files, arrays, mesh, tell)
    alone, shared = _divided(arrays, mesh)
    for chunk in alone:
        reader.read_alone(chunk)
    _in_rounds(reader, shared, mesh)
    return reader.error


def _divided(
    arrays: Sequence[Wanted], mesh: DeviceMesh
) -> tuple[list[_Chunk], dict[tuple[int, int], _Chunk]]:
    """The chunks that this rank wants: those that it wants alone, and the others."""
    alone, shared = [], {}
    for array, (stored, layout, _) in enumerate(arrays):
        section = layout.section(mesh.coords)
        if not stored.nbytes or any(start >= stop for start, stop in section):
            continue
        for index in stored.grid.chunks_in(section):
            ranks = _Ranks(layout, stored.grid.chunk_box(index))
            chunk = _Chunk(array, stored.grid.number(index), index, ranks)
            if ranks.count == 1:
                alone.append(chunk)
            else:
                shared[chunk.key] = chunk
    return alone, shared


class _Reader:
    """Reads chunks into blocks; after a failure it only keeps up appearances."""

    def __init__(
        self, files: ChunkFiles, arrays: Sequence[Wanted], mesh: DeviceMesh, tell: Told
    ) -> None:
        self.arrays = arrays
        self.error: Exception | None = None
        self._files, self._mesh, self._tell = files, mesh, tell
        self._scratch = np.empty(0, np.uint8)

    def read_alone(self, chunk: _Chunk) -> None:
        """Put a chunk, or what is wanted of it, into this rank's block."""
        stored = self.arrays[chunk.array].stored
        view = self.target(chunk)
        if view.shape == stored.grid.chunk and view.flags.c_contiguous:
            self._read(chunk, as_bytes(view))
            return
        if self._scratch.size < stored.chunk_bytes:
            self._scratch = landing((stored.chunk_bytes,), np.uint8)
        data = self.read(chunk, self._scratch[: stored.chunk_bytes])
        if self.error is None:
            view[...] = self.part(chunk, data, self._mesh.coords)

    def read_shared(self, chunk: _Chunk, out: Array) -> list[Pair]:
        """Read a chunk, keep what is wanted of it here, and give what the others get of it."""
        data, home = self.read(chunk, out), self._mesh.rank
        parcels: dict[Box, Array] = {}  # replicas get the same one
        sends = []
        for rank, coords in chunk.ranks:
            if rank == home:
                if self.error is None:
                    self.target(chunk)[...] = self.part(chunk, data, coords)
                continue
            section = self.arrays[chunk.array].layout.section(coords)
            if section not in parcels:  # packed while it is in the processor's cache
                parcels[section] = np.ascontiguousarray(self.part(chunk, data, coords))
            sends.append((rank, parcels[section]))
        return sends

    def read(self, chunk: _Chunk, out: Array) -> Array:
        """A chunk as an array in the memory of `out`."""
        self._read(chunk, out)
        stored = self.arrays[chunk.array].stored
        return out.view(stored.dtype).reshape(stored.grid.chunk)

    def _read(self, chunk: _Chunk, out: Array) -> None:
        if self.error is None:
            try:
                self._files.read(self.arrays[chunk.array].stored, chunk.place, out)
                self._tell(out.size)
            except Exception as caught:
                self.error = caught

    def target(self, chunk: _Chunk) -> Array:
        """Where in this rank's block a chunk belongs, as far as it is wanted."""
        stored, layout, block = self.arrays[chunk.array]
        section = layout.section(self._mesh.coords)
        return part_of(block, _common(stored.grid.chunk_box(chunk.place), section, section))

    def part(self, chunk: _Chunk, data: Array, coords: Any) -> Array:
        """What a rank wants of a chunk."""
        stored, layout, _ = self.arrays[chunk.array]
        box = stored.grid.chunk_box(chunk.place)
        return part_of(data, _common(box, layout.section(coords), box))


def _common(a: Box, b: Box, within: Box) -> tuple[slice, ...]:
    """What two boxes have in common, as slices of a third that contains it."""
    common = intersect(a, b) or ((0, 0),) * len(a)
    return tuple([slice(i - start, j - start) for (i, j), (start, _) in zip(common, within)])


def _in_rounds(reader: _Reader, shared: Mapping[tuple[int, int], _Chunk], mesh: DeviceMesh) -> None:
    """Read the chunks that several ranks want, one of them each, and hand out the parts."""
    if mesh.size() == 1:
        return
    mine = _rounds([c for c in shared.values() if c.reader == mesh.rank], reader.arrays)
    expected, count = _announced(mine, mesh)
    room = landing((max([_room(chunks, reader.arrays) for chunks in mine], default=0),), np.uint8)
    for number in range(count):
        sends: list[Pair] = []
        at = 0
        for chunk in mine[number] if number < len(mine) else []:
            size = reader.arrays[chunk.array].stored.chunk_bytes
            sends += reader.read_shared(chunk, room[at : at + size])
            at += _paged(size)
        receives = [(peer, reader.target(shared[key])) for peer, key in expected.get(number, [])]
        mesh.group.exchange(sends, receives, "chunks of a checkpoint")


def _paged(size: int) -> int:
    """Bytes of the pages that so many bytes take."""
    return -(-size // PAGE) * PAGE


def _room(chunks: Sequence[_Chunk], arrays: Sequence[Wanted]) -> int:
    return sum(_paged(arrays[chunk.array].stored.chunk_bytes) for chunk in chunks)


def _rounds(chunks: Sequence[_Chunk], arrays: Sequence[Wanted]) -> list[list[_Chunk]]:
    """Chunks in portions that fit into memory."""
    rounds: list[list[_Chunk]] = []
    room = 0
    for chunk in chunks:
        size = arrays[chunk.array].stored.chunk_bytes
        if size > room:
            rounds.append([])
            room = _ROUND
        rounds[-1].append(chunk)
        room -= size
    return rounds


def _announced(
    mine: Sequence[Sequence[_Chunk]], mesh: DeviceMesh
) -> tuple[dict[int, list[tuple[int, tuple[int, int]]]], int]:
    """What this rank gets from whom in which round, and the number of rounds; collective."""
    rows: list[list[tuple[int, int, int]]] = [[] for _ in range(mesh.size())]
    for number, chunks in enumerate(mine):
        for chunk in chunks:
            for rank, _ in chunk.ranks:
                rows[rank].append((number, *chunk.key))
    rows[mesh.rank] = []
    told = mesh.group.alltoall_varied(
        [np.array(table, np.int64).reshape(-1, 3) for table in rows], "who reads which chunk"
    )
    expected: dict[int, list[tuple[int, tuple[int, int]]]] = {}
    for peer, table in enumerate(told):
        for number, array, chunk_number in table.tolist():
            expected.setdefault(number, []).append((peer, (array, chunk_number)))
    count = mesh.group.allreduce(np.array(len(mine)), Fold.MAX, "rounds of reading")
    return expected, int(count)
