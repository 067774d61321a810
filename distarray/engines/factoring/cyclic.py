"""A matrix dealt out in panels of columns: what the blocked factorizations work on.

Rank r of p has the panels r, r + p, r + 2p, ...: while a factorization eats its way through the
matrix, every rank keeps a share of what is left. All columns of a rank form one array in C order,
so that exchanging rows, and subtracting a product from the rows below, touch long runs of memory.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from distarray.array import DistArray, movement, to_layout, wrap
from distarray.comm import DeviceMesh
from distarray.layout import Layout, Shard
from distarray.typing import Array

__all__ = [
    "PANEL",
    "Dealing",
    "collected",
    "dealt",
    "panel_width",
    "row_layout",
]


#: Columns in a panel, if the matrix is large enough.
PANEL = 128
#: Bytes of a cache line, and the distance at which lines compete for a place in the cache.
_LINE, _CLASH = 64, 1 << 10


@dataclass(frozen=True, slots=True)
class Dealing:
    """How a number of columns is dealt out over the ranks of a mesh.

    Attributes
    ----------
    mesh : DeviceMesh
        Whose ranks take turns.
    columns : int
        Number of columns.
    width : int
        Columns in a panel; the last may have fewer.
    """

    mesh: DeviceMesh
    columns: int
    width: int

    @property
    def panels(self) -> int:
        """Number of panels."""
        return -(-self.columns // self.width)

    def owner(self, panel: int) -> int:
        """The rank that has a panel."""
        return panel % self.mesh.size()

    def interval(self, panel: int) -> tuple[int, int]:
        """The global columns of a panel."""
        start = panel * self.width
        return start, min(start + self.width, self.columns)

    def place(self, panel: int) -> int:
        """Where the panel, or the next one that is this rank's, starts among its columns."""
        before = -(-max(panel - self.mesh.rank, 0) // self.mesh.size())
        return min(before * self.width, self.count(self.mesh.rank))

    def count(self, rank: int) -> int:
        """Number of columns that a rank has."""
        return self.reach(rank, self.columns)

    def stretches(self, rank: int) -> list[tuple[slice, slice]]:
        """The global columns of each of a rank's panels, and which of its own they are."""
        found, place = [], 0
        for panel in range(rank, self.panels, self.mesh.size()):
            start, stop = self.interval(panel)
            found.append((slice(start, stop), slice(place, place + stop - start)))
            place += stop - start
        return found

    def empty(self, rows: int, dtype: Any, extra: int = 0) -> Array:
        """Room for so many rows of this rank's columns, and of `extra` columns after them."""
        dtype, columns = np.dtype(dtype), self.count(self.mesh.rank) + extra
        # Rows begin on cache lines, but not all of them on the same ones.
        line = max(1, _LINE // dtype.itemsize)
        length = -(-columns // line) * line
        length += 0 if length * dtype.itemsize % _CLASH else line
        return self.mesh.xp.empty((rows, length), dtype)[:, :columns]

    def reach(self, rank: int, below: int) -> int:
        """How many of a rank's columns are in panels that start left of a global column."""
        return sum([own.stop - own.start for c, own in self.stretches(rank) if c.start < below])

    def indices(self, rank: int) -> Array:
        """The global columns of a rank, in its order."""
        every = np.arange(self.columns)
        return every[every // self.width % self.mesh.size() == rank]


def panel_width(columns: int, mesh: DeviceMesh) -> int:
    """Columns in a panel: narrower where the ranks would not have some panels each."""
    return max(1, min(PANEL, -(-columns // (2 * mesh.size()))))


def row_layout(x: DistArray) -> Layout:
    """The layout of a matrix in which every rank has some rows, whole: its own if it is one."""
    layout, mesh = x.layout, x.mesh
    cut = layout.cuts[0]
    idle = [m for m, size in enumerate(mesh.shape) if size > 1 and m not in cut.mesh_dims]
    if not idle and not layout.cuts[1].mesh_dims:
        return layout
    return Layout.chunked(x.shape, mesh.shape, [Shard(0)] * mesh.ndim)


def dealt(x: DistArray, dealing: Dealing, target: Array, lower: bool = False) -> Array:
    """Fill an array with this rank's columns of a matrix, all rows of them; returns it.

    Parameters
    ----------
    x : DistArray, shape (n, dealing.columns)
        Placed as it may be.
    dealing : Dealing
        Which columns are whose.
    target : array, shape (n, own columns)
        May be a part of a larger array.
    lower : bool
        Whether what stands above the diagonal may be left out.

    Cost
    ----
    Of a replicated matrix nothing is sent. One exchange if each rank has whole rows, two
    otherwise; each moves what a rank does not have yet.
    """
    mesh = x.mesh
    if x.layout.is_replicated:
        _take(target, mesh.asarray(x.block), dealing, mesh.rank)
        return target
    rows = row_layout(x)
    block = to_layout(x, rows).block
    me, sends, receives = mesh.rank, [], []
    for rank in range(mesh.size()):
        start, stop = rows.section(mesh.coords_of(rank))[0]
        here = dealing.reach(me, stop if lower else dealing.columns)
        if rank != me and target[start:stop, :here].size:
            receives.append((rank, target[start:stop, :here]))
    start, stop = rows.section(mesh.coords)[0]
    for rank in range(mesh.size()):
        there = dealing.reach(rank, stop if lower else dealing.columns)
        if rank == me:
            _take(target[start:stop, :there], block, dealing, me)
        elif block.size and there:
            part = mesh.xp.empty((len(block), there), target.dtype)
            _take(part, block, dealing, rank)
            sends.append((rank, part))
    mesh.group.exchange(sends, receives, "panels of columns")
    return target


def _take(into: Array, block: Array, dealing: Dealing, rank: int) -> None:
    """A rank's first columns out of whole rows, panel by panel: faster than by indices."""
    for columns, own in dealing.stretches(rank):
        if own.start < into.shape[1]:
            into[:, own] = block[:, columns]


def _put(block: Array, part: Array, dealing: Dealing, rank: int) -> None:
    """A rank's columns into whole rows."""
    for columns, own in dealing.stretches(rank):
        block[:, columns] = part[:, own]


def collected(own: Array, dealing: Dealing, layout: Layout) -> DistArray:
    """The matrix of which each rank has dealt columns, in a layout of its shape; as `dealt`."""
    mesh = dealing.mesh
    rows = Layout.chunked(layout.shape, mesh.shape, [Shard(0)] * mesh.ndim)
    first, last = rows.section(mesh.coords)[0]
    block = mesh.xp.empty((last - first, dealing.columns), own.dtype)
    sends, landing = [], []
    for rank in range(mesh.size()):
        start, stop = rows.section(mesh.coords_of(rank))[0]
        if rank == mesh.rank:
            _put(block, own[start:stop], dealing, rank)
            continue
        if stop > start and own.shape[1]:
            sends.append((rank, own[start:stop]))
        if last > first and dealing.count(rank):
            landing.append((rank, mesh.xp.empty((last - first, dealing.count(rank)), own.dtype)))
    mesh.group.exchange(sends, landing, "panels of columns")
    for rank, part in landing:
        _put(block, part, dealing, rank)
    moved = movement.moved(block, rows, layout, mesh)
    return wrap(moved, layout, mesh)
