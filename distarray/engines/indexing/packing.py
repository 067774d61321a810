"""Packing: the order of the elements that a mask selects, and their transport into this order.

If only the leading dimension of the mask is cut, the selected elements of one rank follow those of
lower ranks: they stay on their rank, and their counts determine the layout. Otherwise the elements
of different ranks interleave: a scan for each cut dimension computes their positions, and the
elements are sent to the ranks that hold these positions.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from distarray.array.portable import as_array, beside, contiguous, made_like, repeated
from distarray.comm import DeviceMesh
from distarray.engines.indexing.gather import segments, swap
from distarray.layout import Cut, Fold
from distarray.typing import Array

__all__ = ["Packing"]

_PURPOSE = "counts of selected elements"


class Packing:
    """Order of the elements that a distributed mask selects.

    Parameters
    ----------
    mask : array of bool
        This rank's part of the mask.
    cuts : sequence of Cut
        Cut of each dimension of the mask.
    mesh : DeviceMesh
        The mesh. The constructor is collective.
    whole : array of bool, optional
        The whole mask if every rank has it; then packing in place needs no communication.
    selected : int, optional
        Number of elements that this rank selects, if known.

    Attributes
    ----------
    count : int
        Number of elements selected on all ranks.
    cut : Cut
        Cut of the dimension of packed elements.
    in_place : bool
        True if each rank has selected exactly its block of the result, so that no element moves.

    Cost
    ----
    In place: one allgather of a number. Otherwise an exscan and an allreduce of the counts for
    each cut dimension, and one all-to-all of 4 or 8 bytes per element.
    """

    def __init__(
        self,
        mask: Array,
        cuts: Sequence[Cut],
        mesh: DeviceMesh,
        whole: Array | None = None,
        selected: int | None = None,
    ) -> None:
        cutting = [dim for dim, cut in enumerate(cuts) if cut.parts > 1]
        self.mesh = mesh
        self.in_place = not cutting or (
            len(cutting) == 1 and prod([cut.extent for cut in cuts[: cutting[0]]]) <= 1
        )
        if not cutting:
            self.cut = Cut.whole(_counted(mask, selected))
        elif self.in_place:
            self.cut = _cut_by_counts(mask, cuts, cutting[0], mesh, whole, selected)
        else:
            self._interleave(mask, cuts)
        self.count = self.cut.extent

    def _interleave(self, mask: Array, cuts: Sequence[Cut]) -> None:
        positions, count = _positions(mask, cuts, self.mesh)
        mesh_dims = tuple(sorted({m for cut in cuts if cut.parts > 1 for m in cut.mesh_dims}))
        radix = tuple([self.mesh.shape[m] for m in mesh_dims])
        self.cut = Cut.chunked(count, mesh_dims, radix)
        if self.mesh.coords is None:
            return
        self._group = self.mesh.subgroup(mesh_dims)
        self._positions = positions
        bounds = [self.cut.interval(part) for part in range(self.cut.parts)]
        # Positions ascend in C order of the block, so each rank gets one contiguous range.
        last = beside(np.array([stop for _, stop in bounds]), positions)
        stops = np.searchsorted(positions, last)
        self._sent = np.diff(stops, prepend=0).tolist()
        kind = np.int32 if count <= np.iinfo(np.int32).max else np.int64
        parts = segments(positions.astype(kind), self._sent)
        named = self._group.alltoall_varied(parts, "positions of selected elements")
        self._received = [len(part) for part in named]
        start = bounds[self._group.rank][0]
        self._places = [part.astype(np.intp) - start for part in named]

    def numbers(self, selected: int) -> Array:
        """Return the positions in the result of this rank's selected elements, in C order."""
        if not self.in_place:
            return self._positions
        coords = self.mesh.coords
        start = 0 if coords is None else self.cut.interval(self.cut.part(coords))[0]
        return np.arange(start, start + selected)

    def forward(self, rows: Array, into: Array | None = None) -> Array:
        """Return this rank's block of the result, given the elements that it selects, in C order.

        If elements move, the block is stored in `into` or a new array.
        """
        if self.in_place:
            return rows
        landing = self._swapped(segments(contiguous(rows), self._sent), self._received)
        result = np.empty_like(landing) if into is None else into
        result[np.concatenate(self._places)] = landing
        return result

    def backward(self, rows: Array) -> Array:
        """Return the values of this rank's selected elements, given its block of the result."""
        if self.in_place:
            return rows
        return self._swapped([np.take(rows, places, axis=0) for places in self._places], self._sent)

    def _swapped(self, parts: Sequence[Array], counts: Sequence[int]) -> Array:
        """Exchange parts; return the parts that the ranks send to this rank, concatenated."""
        rank, part = self._group.rank, parts[self._group.rank]
        shape = (sum(counts), *part.shape[1:])
        landing = made_like(np, "empty_like", part, None, "C", shape)
        segments(landing, counts)[rank][...] = part
        swap(self._group, parts, landing, counts)
        return landing


def _counted(mask: Array, selected: int | None) -> int:
    return int(np.count_nonzero(mask)) if selected is None else selected


def _cut_by_counts(
    mask: Array,
    cuts: Sequence[Cut],
    dim: int,
    mesh: DeviceMesh,
    whole: Array | None,
    selected: int | None,
) -> Cut:
    """Return the cut that keeps every selected element on its rank."""
    cut = cuts[dim]
    if whole is not None:
        key = (slice(None),) * dim
        parts = [slice(*cut.interval(part)) for part in range(cut.parts)]
        counts = [int(np.count_nonzero(whole[(*key, part)])) for part in parts]
    elif mesh.coords is None:
        counts = [0] * cut.parts
    else:
        own = np.array(_counted(mask, selected))
        counts = mesh.subgroup(cut.mesh_dims).allgather(own, _PURPOSE).tolist()
    found = Cut.ragged(counts, cut.mesh_dims, cut.radix)
    # In a reversed view the last block comes first.
    return found.view(found.extent - 1, -1, found.extent) if cut.step < 0 else found


def _positions(mask: Array, cuts: Sequence[Cut], mesh: DeviceMesh) -> tuple[Array, int]:
    """Return the positions of this rank's selected elements in the result; the global count."""
    if mesh.coords is None:
        return mesh.xp.zeros(0, np.intp), 0
    last = max([dim for dim, cut in enumerate(cuts) if cut.parts > 1])
    lines = mask.reshape(*mask.shape[:last], prod(mask.shape[last:]))
    counts = as_array(np.count_nonzero(lines, axis=-1)).astype(np.intp, copy=False)
    before, count = _before(counts, cuts[: last + 1], mesh)
    flat = counts.reshape(-1)
    ahead = before.reshape(-1) - (np.cumsum(flat) - flat)
    return repeated(ahead, flat) + mesh.xp.arange(int(flat.sum())), count


def _before(totals: Array, cuts: Sequence[Cut], mesh: DeviceMesh) -> tuple[Array, int]:
    """Return, for each line along the last, cut dimension, the count before this rank's part.

    `totals` has one number for each line: the count in this rank's part of it. The second result is
    the total count.
    """
    cut, prefix = cuts[-1], cuts[:-1]
    group = mesh.subgroup(cut.mesh_dims)
    lower = group.exscan(totals, Fold.SUM, 0, _PURPOSE)
    whole = group.allreduce(totals, Fold.SUM, _PURPOSE)
    if cut.step < 0:
        lower = whole - lower - totals
    cutting = [dim for dim, other in enumerate(prefix) if other.parts > 1]
    if not cutting:
        flat = whole.reshape(-1)
        preceding = (np.cumsum(flat) - flat).reshape(whole.shape)
        return lower + preceding, int(flat.sum())
    last = cutting[-1]
    lines = whole.reshape(*whole.shape[:last], prod(whole.shape[last:]))
    within = np.cumsum(lines, axis=-1) - lines
    before, count = _before(as_array(lines.sum(axis=-1)), prefix[: last + 1], mesh)
    return lower + (before[..., None] + within).reshape(whole.shape), count
