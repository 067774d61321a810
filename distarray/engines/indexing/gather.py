"""Gathering rows by global position from cut dimensions, in one or two exchanges.

If every rank has the index arrays, each knows which of its rows other ranks need, and sends them:
one exchange. Otherwise each rank sends its part of the index to the owners of the rows, and the
owners send the rows: two exchanges. Rows are slabs of the other dimensions, which keep their cuts.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray, wrap
from distarray.array.portable import in_c_order, take
from distarray.array.storage import has_several, walked
from distarray.comm.devices import on_device
from distarray.comm.group import Group
from distarray.config import config
from distarray.engines.indexing.located import Located
from distarray.engines.indexing.owners import Rows, grouped_by_owner, positions_by_owner
from distarray.layout import Cut, Layout
from distarray.typing import Array, DType

__all__ = [
    "fetch",
    "kind_of_positions",
    "part_of_index",
    "placed",
    "result_layout",
    "room",
    "segments",
    "swap",
]


def result_layout(rows: Rows, index: Sequence[Cut], at: int) -> Layout:
    """Return the layout of the result: the index's dimensions inserted at position `at`."""
    return _result_layout(rows.y.layout, rows.rest, tuple(index), at)


@lru_cache(maxsize=1024)
def _result_layout(
    layout: Layout, dims: tuple[int, ...], index: tuple[Cut, ...], at: int
) -> Layout:
    rest = [layout.cuts[d] for d in dims]
    others = {m: layout.placements[m] for m in layout.ats}
    return Layout.from_cuts([*rest[:at], *index, *rest[at:]], layout.mesh_shape, others)


def placed(block: Array, ndim: int, at: int) -> Array:
    """Move the first `ndim` dimensions of an array to position `at`; a view."""
    if not at or not ndim:
        return block
    order = [*range(ndim, ndim + at), *range(ndim), *range(ndim + at, block.ndim)]
    return block.transpose(order)


def fetch(rows: Rows, index: Located, at: int, *, rows_first: bool = False) -> DistArray:
    """Gather the indexed rows.

    Parameters
    ----------
    rows : Rows
        The indexed array.
    index : Located
        The index arrays.
    at : int
        Position of the index dimensions in the result.
    rows_first : bool
        True to store rows one after the other in memory, whatever the position of the index
        dimensions, with the memory order of the array within a row: NumPy's order for ``x[key]``.
        Otherwise the result is in C order.

    Returns
    -------
    DistArray
        A copy. The dimensions that are not indexed keep their cuts. Index dimensions are cut as the
        index arrays, if these are cut. Else the first one is cut by the mesh dimensions that cut
        the indexed dimensions, or the result is replicated if it is small.

    Cost
    ----
    No message if the indexed dimensions are whole. With replicated index arrays, one exchange of
    the rows that change rank, or an allgather of a small result. Else an all-to-all of 4 or 8 bytes
    per row, and the exchange.
    """
    y, shape = rows.y, index.layout.shape
    mesh = y.mesh
    cuts: Sequence[Cut] = index.layout.cuts
    if rows.mesh_dims and index.known:
        cuts = _cuts_of_result(rows, shape)
    layout = result_layout(rows, cuts, at)
    if not rows.holds or not layout.size:
        return wrap(mesh.xp.empty(layout.local_shape(mesh.coords), y.dtype), layout, mesh)
    if not rows.mesh_dims:
        return wrap(_take_here(rows, index.blocks, at, rows_first), layout, mesh)
    lengths = Layout.from_cuts(cuts, mesh.shape).local_shape(mesh.coords)
    target = _room(rows, prod(lengths), at, rows_first)
    if not index.known:
        _ask(rows, index.flat(lengths), target)
    elif cuts and any(cut.mesh_dims for cut in cuts):
        _send_parts(rows, index.blocks, cuts, target)
    else:
        _send_to_all(rows, index.flat(shape), target)
    found = target.reshape((*lengths, *target.shape[1:]))  # splits one dimension: a view
    if rows_first and not rows.rest:
        found = _as_indices(found, index.blocks)
    return wrap(placed(found, len(lengths), at), layout, mesh)


def _room(rows: Rows, count: int, at: int, rows_first: bool) -> Array:
    """Allocate an array for `count` rows; return a view with the row dimension first."""
    if rows_first:
        return room(rows, count)
    kept = rows.block.shape[len(rows.dims) :]
    space = rows.y.mesh.xp.empty((*kept[:at], count, *kept[at:]), rows.y.dtype)
    return np.moveaxis(space, at, 0) if at else space


def room(rows: Rows, count: int) -> Array:
    """Allocate an array for `count` rows, each in the memory order of the array.

    In C order if some rank's block does not determine that order: all ranks use the same order.
    """
    kept = rows.block.shape[len(rows.dims) :]
    order = tuple(range(len(kept)))
    if has_several(rows.y.layout):
        order = walked(rows.block.strides[len(rows.dims) :], kept)
    space = rows.y.mesh.xp.empty((count, *[kept[dim] for dim in order]), rows.y.dtype)
    found: Array = space.transpose([0, *[1 + order.index(dim) for dim in range(len(kept))]])
    return found


def _as_indices(found: Array, blocks: Sequence[Array]) -> Array:
    """Store the selected elements in the memory order of the index arrays, if not C order."""
    if found.ndim < 2 or on_device(found) or all(block.flags.c_contiguous for block in blocks):
        return found
    operands: Any = [*blocks, None]
    flags: Any = [["readonly"]] * len(blocks) + [["writeonly", "allocate"]]
    dtypes = [None] * len(blocks) + [found.dtype]
    result: Array = np.nditer(operands, ["zerosize_ok"], flags, dtypes).operands[-1]
    result[...] = found
    return result


def _cuts_of_result(rows: Rows, shape: tuple[int, ...]) -> list[Cut]:
    """Return the index cuts of the result for replicated index arrays: cut unless small."""
    cuts = [Cut.whole(extent) for extent in shape]
    width = prod([rows.y.shape[d] for d in rows.rest])
    if shape and prod(shape) * width * rows.y.itemsize >= config.replicate_below:
        dim = 0 if shape[0] >= rows.size else int(np.argmax(shape))
        cuts[dim] = Cut.chunked(shape[dim], rows.mesh_dims, rows.radix)
    return cuts


def _take_here(rows: Rows, blocks: Sequence[Array], at: int, rows_first: bool) -> Array:
    if rows_first:
        found = rows.take(blocks)
        found = found if rows.rest else _as_indices(found, blocks)
        return placed(found, found.ndim - len(rows.rest), at)
    block = rows.y.block
    if len(rows.dims) == 1 and rows.dims[0] == at and block.flags.c_contiguous:
        return take(block, rows.in_block(blocks)[0], at)
    found = rows.take(blocks)
    return in_c_order(placed(found, found.ndim - len(rows.rest), at))


# -- replicated index arrays -----------------------------------------------------------------------


def _send_to_all(rows: Rows, flat: Sequence[Array], target: Array) -> None:
    """Allgather: each rank sends the indexed rows that it owns to every rank along the cut."""
    order, counts = grouped_by_owner(rows.owners(flat), rows.size)
    first = sum(counts[: rows.rank])
    own = order[first : first + counts[rows.rank]]
    found = rows.take([array[own] for array in flat])
    parts = rows.group.allgather_varied(found, counts, "rows by index")
    for part, positions in zip(parts, segments(order, counts), strict=True):
        target[positions] = part


def _send_parts(rows: Rows, blocks: Sequence[Array], cuts: Sequence[Cut], target: Array) -> None:
    """Send every rank along the cut the rows of its part of the index."""
    shape = tuple([cut.extent for cut in cuts])
    whole = [np.broadcast_to(block, shape) for block in blocks]
    own = rows.mine(whole)
    me = rows.rank
    mine = part_of_index(cuts, me)
    wanted = [array[mine].reshape(-1) for array in whole]
    order, counts = grouped_by_owner(rows.owners(wanted), rows.size)
    landing = np.empty_like(target, order="C", shape=target.shape)
    parts = []
    for rank, (space, positions) in enumerate(
        zip(segments(landing, counts), segments(order, counts), strict=True)
    ):
        if rank == me:
            parts.append(rows.take([np.take(array, positions) for array in wanted], space))
            continue
        key = part_of_index(cuts, rank)
        positions = np.flatnonzero(own[key])
        parts.append(rows.take([np.take(array[key].reshape(-1), positions) for array in whole]))
    swap(rows.group, parts, landing, counts)
    target[order] = landing


def part_of_index(cuts: Sequence[Cut], rank: int) -> tuple[slice, ...]:
    """Return the key of a rank's part of an index that is cut over the ranks of `Rows.group`."""
    return tuple([slice(*cut.interval(rank if cut.mesh_dims else 0)) for cut in cuts])


# -- distributed index arrays ----------------------------------------------------------------------


def _ask(rows: Rows, flat: Sequence[Array], target: Array) -> None:
    """Send the positions of the requested rows to their owners, and store the rows they return."""
    own, others, counts = grouped_by_others(rows, flat)
    positions = rows.linear([np.take(array, others) for array in flat])
    wanted = segments(positions.astype(kind_of_positions(rows), copy=False), counts)
    named = rows.group.alltoall_varied(wanted, "positions of rows")
    replies = [rows.take(rows.from_linear(part.astype(np.intp))) for part in named]
    landing = np.empty_like(target, order="C", shape=(len(others), *target.shape[1:]))
    swap(rows.group, replies, landing, counts)
    target[own] = rows.take([np.take(array, own) for array in flat])
    target[others] = landing


def kind_of_positions(rows: Rows) -> DType:
    """Return the data type of C-order positions in messages: int32 if sufficient, else int64."""
    few = prod(rows.extents) <= np.iinfo(np.int32).max
    return np.dtype(np.int32 if few else np.int64)


def grouped_by_others(rows: Rows, flat: Sequence[Array]) -> tuple[Array, Array, list[int]]:
    """Return the positions of this rank's own rows, of other ranks' rows, and counts per owner.

    The positions of other ranks' rows are ordered by owner and then by position. The count for this
    rank is 0, because it sends no rows to itself.
    """
    found = positions_by_owner(rows.owners(flat), rows.size)
    own, found[rows.rank] = found[rows.rank], found[rows.rank][:0]
    counts = [len(positions) for positions in found]
    some = [positions for positions in found if len(positions)]
    return own, some[0] if len(some) == 1 else np.concatenate(found), counts


def swap(group: Group, parts: Sequence[Array], landing: Array, counts: Sequence[int]) -> None:
    """Send ``parts[i]`` to rank i; receive the parts from all ranks in `landing`, in rank order.

    The lengths `counts` are known, so only rows are sent. This rank's own part is already in place.
    """
    if group.size > 1 and group.guarded:
        # Also if this rank sends nothing: it must not wait for ranks that raise.
        group.check_exchange(sum([part.nbytes for part in parts]), "rows by index")
    others = [rank for rank in range(group.size) if rank != group.rank]
    spaces = segments(landing, counts)
    group.exchange(
        [(rank, parts[rank]) for rank in others if parts[rank].size],
        [(rank, spaces[rank]) for rank in others if spaces[rank].size],
        "rows by index",
    )


def segments(array: Array, counts: Sequence[int]) -> list[Array]:
    """Split an array into consecutive views of the given lengths along the first dimension."""
    found, stop = [], 0
    for count in counts:
        found.append(array[stop : stop + count])
        stop += count
    return found
