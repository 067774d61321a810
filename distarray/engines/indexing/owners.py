"""Owners of indexed rows: :meth:`Cut.owner`, vectorized."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.array.portable import beside, contiguous, take
from distarray.array.speedups.rows import are_rows, grouped
from distarray.comm.group import Group
from distarray.engines.indexing.mask_in_block import from_linear
from distarray.layout import Coords, Cut, Layout
from distarray.typing import Array, Shape

__all__ = ["Rows", "grouped_by_owner", "positions_by_owner", "sorted_by_owner"]

#: Number of blocks up to which comparing with each boundary is cheaper than a binary search.
_FEW = 16


class Rows:
    """View of an array as rows: its indexed dimensions first, then its other dimensions.

    Parameters
    ----------
    y : DistArray
        The array.
    dims : sequence of int
        The indexed dimensions, in the order of the index arrays.

    Attributes
    ----------
    block : array
        This rank's block with the indexed dimensions in front; a view.
    rest : tuple of int
        The other dimensions, in order.
    mesh_dims : tuple of int
        Mesh dimensions that cut the indexed dimensions into more than one block.
    rank, size : int
        This rank's number in `group`, and the number of ranks in `group`, which hold all rows.
    """

    def __init__(self, y: DistArray, dims: Sequence[int]) -> None:
        self.y = y
        self.dims = tuple(dims)
        found = _geometry(y.layout, self.dims, y.mesh.coords)
        self.rest, self.cuts, self.mesh_dims, self.radix = found[:4]
        self.starts, self.stops, self.extents, self.holds, self.rank, order = found[4:]
        self.size = prod(self.radix)
        block = y.mesh.asarray(y.block)
        self.block = block if order is None else block.transpose(order)

    @property
    def group(self) -> Group:
        """The ranks along `mesh_dims`, numbered as in the results of the methods."""
        group: Group = self.y.mesh.subgroup(self.mesh_dims)
        return group

    # -- index arrays: one for each indexed dimension, within bounds, broadcasting -----------------

    def mine(self, indices: Sequence[Array]) -> Array:
        """Return a mask of the indexed rows that this rank owns."""
        own: Any = True
        for array, cut, start, stop in zip(
            indices, self.cuts, self.starts, self.stops, strict=True
        ):
            if cut.parts == 1:
                continue
            # Block bounds at an end of the dimension need no comparison.
            if start > 0:
                own = (array >= start) & own if own is not True else array >= start
            if stop < cut.extent:
                own = (array < stop) & own if own is not True else array < stop
        if own is True:
            return np.ones_like(indices[0], bool, shape=_common(indices))
        return _broadcast(own, _common(indices))

    def owners(self, indices: Sequence[Array]) -> Array:
        """Return the rank in `group` that owns each of the indexed rows."""
        found: Any = None
        for array, cut in zip(indices, self.cuts, strict=True):
            if cut.parts == 1:
                continue
            part = owning_parts(cut, array)
            table = _ranks_of_parts(cut, self.mesh_dims, self.radix)
            if table is not None:
                part = np.take(beside(table, part), part)
            found = part if found is None else found + part
        return _broadcast(found, _common(indices))

    def keys(self, indices: Sequence[Array]) -> tuple[Array, Array]:
        """Return keys of the indexed rows, and starts: the owner is the count of starts <= key."""
        several = [(array, cut) for array, cut in zip(indices, self.cuts) if cut.parts > 1]
        if len(several) == 1 and several[0][1].step > 0:
            [(array, cut)] = several
            if _ranks_of_parts(cut, self.mesh_dims, self.radix) is None:
                return contiguous(array).astype(np.int64, copy=False), _boundaries(cut)[0]
        return self.owners(indices).astype(np.int64), np.arange(1, self.size)

    def linear(self, indices: Sequence[Array]) -> Array:
        """Return the positions of rows in C order over the indexed dimensions of the array."""
        total = indices[0]
        for array, extent in zip(indices[1:], self.extents[1:], strict=True):
            total = total * extent + array
        return total

    def from_linear(self, positions: Array) -> list[Array]:
        """Return the index arrays of positions: the inverse of :meth:`linear`."""
        return list(from_linear(positions, self.extents))

    @property
    def lines(self) -> tuple[Array, int] | None:
        """Block as consecutive rows, and the position of the first row; None if not consecutive."""
        whole = zip(self.starts[1:], self.stops[1:], self.extents[1:], strict=True)
        flat = self.block.flags.c_contiguous and self.block.size
        if not flat or any((a, b) != (0, n) for a, b, n in whole):
            return None
        start = self.starts[0] * prod(self.extents[1:])
        return self.block.reshape(-1, *self.block.shape[len(self.dims) :]), start

    # -- this rank's rows ------------------------------------------------------------------------

    def in_block(self, indices: Sequence[Array]) -> tuple[Array, ...]:
        """Convert global index arrays of this rank's rows to indices within its block."""
        pairs = zip(indices, self.starts, strict=True)
        return tuple([array - start if start else array for array, start in pairs])

    def take(self, indices: Sequence[Array], out: Array | None = None) -> Array:
        """Return rows of this rank, stacked along the dimensions of the index arrays."""
        indices = self.in_block(indices)
        flat = self._flat(indices)
        if flat is not None:
            rows, position = flat
            return take(rows, position, 0, out)
        found: Array = self.block[tuple(indices)]
        if out is None:
            return found
        out[...] = found
        return out

    def _flat(self, indices: Sequence[Array]) -> tuple[Array, Array] | None:
        """Return the block with its indexed dimensions merged, and one index array.

        None if the block is not contiguous.
        """
        block = self.block
        if not block.flags.c_contiguous or not block.size:
            return None
        if len(indices) == 1:
            return block, indices[0]
        extents = block.shape[: len(indices)]
        total = indices[0]
        for array, extent in zip(indices[1:], extents[1:], strict=True):
            total = total * extent + array
        return block.reshape(-1, *block.shape[len(indices) :]), total


@lru_cache(maxsize=1024)
def _geometry(layout: Layout, dims: tuple[int, ...], coords: Coords | None) -> tuple[Any, ...]:
    """Compute the attributes of :class:`Rows` that follow from the layout; cached."""
    rest = tuple([d for d in range(layout.ndim) if d not in dims])
    cuts = tuple([layout.cuts[d] for d in dims])
    mesh_dims = tuple(sorted({m for cut in cuts if cut.parts > 1 for m in cut.mesh_dims}))
    radix = tuple([layout.mesh_shape[m] for m in mesh_dims])
    section = layout.section(coords)
    starts, stops = [tuple([section[d][end] for d in dims]) for end in (0, 1)]
    extents = tuple([layout.shape[d] for d in dims])
    rank = Cut(0, mesh_dims, radix).part(coords) if coords is not None else 0
    order = None if dims + rest == tuple(range(layout.ndim)) else dims + rest
    holds = layout.holds(coords)
    return rest, cuts, mesh_dims, radix, starts, stops, extents, holds, rank, order


def _common(indices: Sequence[Array]) -> Shape:
    if len(indices) == 1:
        return indices[0].shape
    return np.broadcast_shapes(*[array.shape for array in indices])


def _broadcast(array: Array, shape: Shape) -> Array:
    return array if array.shape == shape else np.broadcast_to(array, shape)


def owning_parts(cut: Cut, array: Array) -> Array:
    """Return the number of the cut's block that owns each index."""
    parts = cut.parts
    found: Array
    if parts <= _FEW or cut.bounds is not None or len(cut.radix) > 1:
        starts, descending = _boundaries(cut)
        if parts == 2:
            found = (array >= int(starts[0])).view(np.uint8)
        elif parts <= _FEW:
            found = np.zeros_like(array, np.uint8)
            for start in starts.tolist():
                found += array >= start
        else:
            found = np.searchsorted(beside(starts, array), array, side="right")
        return parts - 1 - found if descending else found
    block = -(-cut.base // parts)
    if cut.offset or cut.step != 1:
        array = cut.offset + array * cut.step
    return array // block


@lru_cache(maxsize=256)
def _boundaries(cut: Cut) -> tuple[Array, bool]:
    """Return the first indices of all blocks but the first, ascending; True if numbers descend.

    Block numbers descend along the indices if the step of the cut is negative.
    """
    order = range(cut.parts) if cut.step > 0 else range(cut.parts - 1, -1, -1)
    starts = [cut.interval(part)[0] for part in order][1:]
    return np.array(starts, np.intp), cut.step < 0


@lru_cache(maxsize=256)
def _ranks_of_parts(cut: Cut, mesh_dims: tuple[int, ...], radix: tuple[int, ...]) -> Array | None:
    """Return the addend to a rank's number for each block number; None if the numbers agree."""
    if cut.mesh_dims == mesh_dims:
        return None
    strides = {m: prod(radix[i + 1 :]) for i, m in enumerate(mesh_dims)}
    numbers = []
    for part in range(cut.parts):
        digits = zip(cut.mesh_dims, cut.digits(part), strict=True)
        numbers.append(sum([digit * strides.get(m, 0) for m, digit in digits]))
    return np.array(numbers, np.intp)


def positions_by_owner(owners: Array, ranks: int) -> list[Array]:
    """Return for each owner the ascending positions in `owners` where it appears."""
    if ranks <= _FEW:
        return [np.flatnonzero(owners == rank) for rank in range(ranks)]
    order, counts = grouped_by_owner(owners, ranks)
    return np.split(order, np.cumsum(counts[:-1]))


def grouped_by_owner(owners: Array, ranks: int) -> tuple[Array, list[int]]:
    """Return the positions in `owners` ordered by owner, then position, and counts per owner."""
    if ranks <= _FEW:
        found = positions_by_owner(owners, ranks)
        return np.concatenate(found), [len(positions) for positions in found]
    counts = np.bincount(owners, minlength=ranks).tolist()
    return np.argsort(owners.astype(np.min_scalar_type(ranks)), kind="stable"), counts


def sorted_by_owner(
    rows: Rows, indices: Sequence[Array], arrays: Sequence[Array], into: Sequence[Array]
) -> list[int]:
    """Write rows of arrays into other arrays, ordered by owner and then by position.

    Parameters
    ----------
    rows : Rows
        The indexed array.
    indices : sequence of array
        1-d index arrays, one for each indexed dimension; they determine the owner of each row.
    arrays, into : sequence of array
        Sources and targets, with as many rows. Targets are in C order, of the same types or int32
        for int64.

    Returns
    -------
    list of int
        Number of rows that each rank owns.
    """
    if rows.size <= _FEW and all(map(are_rows, (*arrays, *into))):
        return grouped(*rows.keys(indices), arrays, into)
    order, counts = grouped_by_owner(rows.owners(indices), rows.size)
    for array, ordered in zip(arrays, into, strict=True):
        ordered[...] = take(array, order, 0)
    return counts
