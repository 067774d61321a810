"""Block-cyclic distribution of matrix columns, used by the blocked factorizations.

Rank r of p stores the panels (blocks of adjacent columns) r, r + p, r + 2p, ..., so that every rank
has a share of the remaining columns at every step of a factorization. All columns of a rank form
one array in C order, so that exchanging rows, and subtracting a product from the rows below, access
long contiguous runs of memory.
"""

from dataclasses import dataclass

import numpy as np

from distarray.array import DistArray, movement, to_layout, wrap
from distarray.comm import DeviceMesh
from distarray.layout import Layout, Shard
from distarray.typing import Array, DTypeLike

__all__ = [
    "PANEL",
    "Dealing",
    "collected",
    "dealt",
]


#: Columns in a panel, if the matrix is large enough.
PANEL = 128
#: Bytes of a cache line, and the stride at which lines compete for a slot in the cache.
_LINE, _CLASH = 64, 1 << 10


@dataclass(frozen=True, slots=True)
class Dealing:
    """Block-cyclic distribution of columns over the ranks of a mesh.

    Attributes
    ----------
    mesh : DeviceMesh
        The ranks that share the columns.
    columns : int
        The number of columns.
    width : int
        The number of columns in a panel; the last panel may have fewer.
    """

    mesh: DeviceMesh
    columns: int
    width: int

    @classmethod
    def in_panels(cls, mesh: DeviceMesh, columns: int, most: int | None = None) -> "Dealing":
        """Choose panels of `most` columns, or fewer so that each rank has at least two panels."""
        most = PANEL if most is None else most
        return cls(mesh, columns, max(1, min(most, -(-columns // (2 * mesh.size())))))

    @property
    def panels(self) -> int:
        """The number of panels."""
        return -(-self.columns // self.width)

    def owner(self, panel: int) -> int:
        """Return the rank that owns a panel."""
        return panel % self.mesh.size()

    def interval(self, panel: int) -> tuple[int, int]:
        """Return the range of global columns of a panel."""
        start = panel * self.width
        return start, min(start + self.width, self.columns)

    def place(self, panel: int) -> int:
        """Return the local column at which a panel, or this rank's next panel, begins."""
        before = -(-max(panel - self.mesh.rank, 0) // self.mesh.size())
        return min(before * self.width, self.count(self.mesh.rank))

    def count(self, rank: int) -> int:
        """Return the number of columns of a rank."""
        return self.reach(rank, self.columns)

    def stretches(self, rank: int) -> list[tuple[slice, slice]]:
        """Return the global columns and the local columns of each panel of a rank."""
        found, place = [], 0
        for panel in range(rank, self.panels, self.mesh.size()):
            start, stop = self.interval(panel)
            found.append((slice(start, stop), slice(place, place + stop - start)))
            place += stop - start
        return found

    def empty(self, rows: int, dtype: DTypeLike, extra: int = 0) -> Array:
        """Allocate rows for this rank's columns, and for `extra` columns after them."""
        dtype, columns = np.dtype(dtype), self.count(self.mesh.rank) + extra
        # Rows begin on cache lines, but not at a stride that maps them all to the same cache slots.
        line = max(1, _LINE // dtype.itemsize)
        length = -(-columns // line) * line
        length += 0 if length * dtype.itemsize % _CLASH else line
        padded: Array = self.mesh.xp.empty((rows, length), dtype)
        return padded[:, :columns]

    def reach(self, rank: int, below: int) -> int:
        """Return the number of a rank's columns in panels that start before a global column."""
        return sum([own.stop - own.start for c, own in self.stretches(rank) if c.start < below])

    def indices(self, rank: int) -> Array:
        """Return the global columns of a rank, in local order."""
        return np.flatnonzero(np.arange(self.columns) // self.width % self.mesh.size() == rank)


def _row_layout(x: DistArray) -> Layout:
    """Return the matrix's layout if every rank has whole rows, else a layout cut along rows."""
    layout, mesh = x.layout, x.mesh
    cut = layout.cuts[0]
    idle = [m for m, size in enumerate(mesh.shape) if size > 1 and m not in cut.mesh_dims]
    if not idle and not layout.cuts[1].mesh_dims:
        return layout
    return Layout.chunked(x.shape, mesh.shape, [Shard(0)] * mesh.ndim)


def dealt(x: DistArray, dealing: Dealing, target: Array, lower: bool = False) -> Array:
    """Fill an array with all rows of this rank's columns of a matrix, and return the array.

    Parameters
    ----------
    x : DistArray, shape (n, dealing.columns)
        The matrix, in any layout.
    dealing : Dealing
        The distribution of the columns.
    target : array, shape (n, own columns)
        The array to fill; may be a view of a larger array.
    lower : bool
        True if elements above the diagonal need not be filled.

    Cost
    ----
    No communication if the matrix is replicated, one exchange if each rank has whole rows, two
    exchanges otherwise. Each exchange moves only the elements that a rank does not have yet.
    """
    mesh = x.mesh
    if x.layout.is_replicated:
        _take(target, mesh.asarray(x.block), dealing, mesh.rank)
        return target
    rows = _row_layout(x)
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
    """Copy a rank's first columns from whole rows, panel by panel (faster than by indices)."""
    for columns, own in dealing.stretches(rank):
        if own.start < into.shape[1]:
            into[:, own] = block[:, columns]


def _put(block: Array, part: Array, dealing: Dealing, rank: int) -> None:
    """Copy the columns of a rank into whole rows."""
    for columns, own in dealing.stretches(rank):
        block[:, columns] = part[:, own]


def collected(own: Array, dealing: Dealing, layout: Layout) -> DistArray:
    """Assemble the distributed matrix in a layout of its shape; the inverse of :func:`dealt`."""
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
