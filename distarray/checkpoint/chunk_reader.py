"""Reading of chunks into a rank's blocks, and the ranks whose blocks overlap a chunk."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from distarray.array.movement import part_of
from distarray.checkpoint.chunk_files import ChunkFiles, ChunkReading, as_bytes
from distarray.checkpoint.zarr_metadata import Stored
from distarray.comm import DeviceMesh
from distarray.comm.files import landing
from distarray.io.chunk_grids import Index
from distarray.layout import At, Box, Coords, Layout
from distarray.plan.exchange import intersect, rank_of
from distarray.typing import Array

__all__ = ["Chunk", "ChunkReader", "Progress", "Ranks", "Wanted", "ranks_of"]

#: Function that is called with the number of bytes that have been read or written.
Progress: TypeAlias = Callable[[int], object]


class Wanted(NamedTuple):
    """Array that is being loaded.

    Attributes
    ----------
    stored : Stored
    layout : Layout
        The array's layout in memory, without pending folds.
    block : numpy.ndarray
        This rank's block, which is filled; it may be strided.
    """

    stored: Stored
    layout: Layout
    block: Array


class Chunk(NamedTuple):
    """Chunk of one of the arrays, and the ranks that need some of its elements."""

    array: int
    number: int
    place: Index
    ranks: "Ranks"

    @property
    def key(self) -> tuple[int, int]:
        """Number of the array, and number of the chunk in C order."""
        return self.array, self.number

    @property
    def reader(self) -> int:
        """Rank that reads the chunk."""
        return self.ranks.nth(self.number % self.ranks.count)


class Ranks:
    """Ranks whose blocks overlap a box: counted immediately, listed only on demand."""

    __slots__ = ("_layout", "_ways", "count")

    def __init__(self, layout: Layout, box: Box) -> None:
        self._layout = layout
        self._ways: list[tuple[tuple[int, ...], list[Coords]]] = []
        taken: set[int] = set()
        for cut, (start, stop) in zip(layout.cuts, box):
            if cut.mesh_dims:
                parts = [p for p in cut.owners(start, stop) if _meets(cut.interval(p), start, stop)]
                self._ways.append((cut.mesh_dims, [cut.digits(p) for p in parts]))
                taken.update(cut.mesh_dims)
        for mesh_dim, size in enumerate(layout.mesh_shape):
            if mesh_dim in layout.ats:
                at = cast("At", layout.placements[mesh_dim])
                self._ways.append(((mesh_dim,), [(at.coordinate,)]))
            elif mesh_dim not in taken and size > 1:
                self._ways.append(((mesh_dim,), [(c,) for c in range(size)]))
        self.count = prod([len(choices) for _, choices in self._ways])

    def nth(self, number: int) -> int:
        """Return the `number`-th of these ranks, as its rank in the mesh."""
        coords = [0] * len(self._layout.mesh_shape)
        for mesh_dims, choices in reversed(self._ways):
            number, at = divmod(number, len(choices))
            for mesh_dim, coordinate in zip(mesh_dims, choices[at]):
                coords[mesh_dim] = coordinate
        return rank_of(tuple(coords), self._layout.mesh_shape)

    def __iter__(self) -> Iterator[tuple[int, Coords]]:
        """Yield each rank with its coordinates."""
        for choice in product(*[choices for _, choices in self._ways]):
            coords = [0] * len(self._layout.mesh_shape)
            for (mesh_dims, _), digits in zip(self._ways, choice):
                for mesh_dim, coordinate in zip(mesh_dims, digits):
                    coords[mesh_dim] = coordinate
            yield rank_of(tuple(coords), self._layout.mesh_shape), tuple(coords)


@lru_cache(256)
def ranks_of(layout: Layout, box: Box) -> Ranks:
    """Return the ranks whose blocks overlap a box; cached: arrays of one layout share boxes."""
    return Ranks(layout, box)


def _meets(interval: tuple[int, int], start: int, stop: int) -> bool:
    return max(interval[0], start) < min(interval[1], stop)


class ChunkReader:
    """Reader of chunks into blocks; after an error it reads nothing, and its methods do not raise.

    Attributes
    ----------
    arrays : sequence of Wanted
    mesh : DeviceMesh
    error : Exception or None
        The first error of this rank.
    """

    def __init__(
        self, files: ChunkFiles, arrays: Sequence[Wanted], mesh: DeviceMesh, progress: Progress
    ) -> None:
        self.arrays, self.mesh = arrays, mesh
        self.error: Exception | None = None
        self._files, self._progress = files, progress
        self._scratch = np.empty(0, np.uint8)
        self._place: ChunkReading

    def read_alone(self, chunk: Chunk) -> None:
        """Read a chunk, and copy the elements that this rank needs into its block."""
        grid, size = self.arrays[chunk.array].stored.grid, self.stored(chunk).chunk_bytes
        box = grid.chunk_box(chunk.place)
        view = self.target(chunk, box)
        whole = view.shape == grid.chunk and view.flags.c_contiguous
        if not whole and self._scratch.size < size:
            self._scratch = landing((size,), np.uint8)
        out = as_bytes(view) if whole else self._scratch[:size]
        self.begin(chunk)
        self.go_on(out)
        if not whole:
            self.put(chunk, box, out, grid.chunk)

    def stored(self, chunk: Chunk) -> Stored:
        """Return the array to which a chunk belongs."""
        return self.arrays[chunk.array].stored

    def begin(self, chunk: Chunk) -> None:
        """Begin the read of another chunk."""
        self._place = ChunkReading(self._files, self.stored(chunk), chunk.place)

    def go_on(self, out: Array) -> None:
        """Read the next bytes of the chunk into `out`."""
        if self.error is None:
            try:
                self._place.read(out)
                self._progress(out.size)
            except Exception as caught:
                self.error = caught

    def put(self, chunk: Chunk, box: Box, data: Array, shape: Sequence[int]) -> None:
        """Copy the elements that this rank needs from the bytes of a box into its block.

        `shape` is the shape of the array in `data`, whose first corner is the box; `data` may
        extend beyond the edge of the array.
        """
        if self.error is None:
            self.target(chunk, box)[...] = self.part(chunk, box, data, shape, self.mesh.coords)

    def target(self, chunk: Chunk, box: Box) -> Array:
        """Return the section of this rank's block that a box of an array overlaps, as a view."""
        _, layout, block = self.arrays[chunk.array]
        section = layout.section(self.mesh.coords)
        return part_of(block, _common(box, section, section))

    def part(
        self, chunk: Chunk, box: Box, data: Array, shape: Sequence[int], coords: Coords | None
    ) -> Array:
        """Return the section of a box that the rank at `coords` needs, as a view of `data`."""
        stored, layout, _ = self.arrays[chunk.array]
        found = data.view(stored.dtype).reshape(shape)
        return part_of(found, _common(box, layout.section(coords), box))


@lru_cache(256)
def _common(a: Box, b: Box, within: Box) -> tuple[slice, ...]:
    """Return the intersection of two boxes, as slices of a third box that contains it."""
    common = intersect(a, b) or ((0, 0),) * len(a)
    return tuple([slice(i - start, j - start) for (i, j), (start, _) in zip(common, within)])
