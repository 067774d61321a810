"""Collectives made of simpler collectives, for transports that have no call for them.

They fold with NumPy's ufuncs in rank order: every dtype works, NaN and NaT are treated as in NumPy,
and all ranks get the same bits.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from distarray.comm.folding import UFUNCS, averaged, fold_rows, prepared
from distarray.comm.pending import Finishing, Pending
from distarray.layout.placement import Fold
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.comm.group import Group
    from distarray.comm.ledger import Note
    from distarray.comm.transport import Transport

__all__ = [
    "allreduce",
    "alltoall_together",
    "alltoall_varied",
    "begin_allgather",
    "begin_reduce_scatter",
    "exscan",
    "gather_varied",
    "reduce_scatter",
]

#: Largest number of gathered bytes for which every rank folds everything. Above it, each rank folds
#: one piece.
GATHER_BELOW = 1 << 16


def allreduce(group: "Transport", block: Array, fold: Fold) -> Array:
    """Fold in rank order: gather and fold small blocks; fold and gather pieces of large blocks."""
    block = prepared(block, fold)
    if group.size == 1 or block.size == 0:
        return averaged(block.copy(order="C"), group.size, fold)
    if block.nbytes * group.size <= GATHER_BELOW:
        total = fold_rows(group._allgather(block), fold)
    else:
        flat = np.ascontiguousarray(block).reshape(-1)
        pieces = np.array_split(flat, group.size)
        mine = reduce_scatter(group, pieces, Fold.SUM if fold is Fold.AVG else fold)
        parts = group._allgather_varied(mine, [len(piece) for piece in pieces])
        total = joined(parts).reshape(block.shape)
    return averaged(total, group.size, fold)


def reduce_scatter(group: "Transport", blocks: Sequence[Array], fold: Fold) -> Array:
    """Exchange the contributions, and fold them in rank order into the first contribution."""
    own = prepared(blocks[group.rank], fold)
    if group.size == 1:
        return averaged(own.copy(order="C"), 1, fold)
    others = [rank for rank in range(group.size) if rank != group.rank]
    sends = [(r, prepared(blocks[r], fold)) for r in others if blocks[r].size]
    landing: dict[int, Array] = {r: np.empty_like(own, order="C") for r in others}
    group._exchange(sends, list(landing.items()) if own.size else [])
    landing[group.rank] = own
    total = landing[0] if group.rank else own.copy(order="C")
    ufunc = UFUNCS[fold]
    for rank in range(1, group.size):
        ufunc(total, landing[rank], out=total)
    return averaged(total, group.size, fold)


def exscan(group: "Transport", block: Array, fold: Fold, identity: complex | Array) -> Array:
    """Scan exclusively in about log2(size) rounds, folding lower ranks' blocks from the left."""
    block = np.array(prepared(block, fold), order="C")
    first = np.empty_like(block)
    first[...] = identity
    if group.size == 1 or block.size == 0:
        return first
    rank, size, ufunc = group.rank, group.size, UFUNCS[fold]
    total = np.empty_like(block)
    _shift(group, block, total, 1)
    step = 1
    while step < size - 1:
        lower = np.empty_like(block)
        # Rank 0 has no total to send; rank r's total covers ranks r-step .. r-1.
        _shift(group, total, lower, step, floor=1)
        if rank - step >= 1:
            total = ufunc(lower, total, out=lower)
        step *= 2
    return total if rank else first


def _shift(group: "Transport", block: Array, into: Array, step: int, floor: int = 0) -> None:
    """Send `block` to the rank `step` above; ranks below `floor` send nothing."""
    up, down = group.rank + step, group.rank - step
    group._exchange(
        [(up, block)] if up < group.size and group.rank >= floor else [],
        [(down, into)] if down >= floor else [],
    )


def alltoall_varied(group: "Transport", blocks: Sequence[Array]) -> list[Array]:
    """Exchange lengths, then the nonempty blocks, which are received directly in one array."""
    lengths = np.array([len(block) for block in blocks], dtype=np.int64)
    counts = group._alltoall_counts(lengths)
    own = blocks[group.rank]
    whole = np.empty_like(own, shape=(int(counts.sum()), *own.shape[1:]), order="C")
    received = split_views(whole, counts)
    received[group.rank][...] = own
    group._exchange(
        [(r, block) for r, block in enumerate(blocks) if r != group.rank and block.size],
        [(r, view) for r, view in enumerate(received) if r != group.rank and view.size],
    )
    return received


def alltoall_together(
    group: "Transport", arrays: Sequence[Array], counts: Sequence[int]
) -> list[list[Array]]:
    """Exchange lengths, then rows of all arrays at once; see :class:`distarray.comm.outbox.Outbox`.

    A rank's own rows are views of the arrays.
    """
    lengths = group._alltoall_counts(np.array(counts, np.int64))
    lengths[group.rank] = 0
    others = [rank for rank in range(group.size) if rank != group.rank]
    sends, receives, each = [], [], []
    for array in arrays:
        parts = split_views(array, counts)
        landing = np.empty_like(array, shape=(int(lengths.sum()), *array.shape[1:]), order="C")
        views = split_views(landing, lengths)
        sends += [(rank, parts[rank]) for rank in others if parts[rank].size]
        receives += [(rank, views[rank]) for rank in others if views[rank].size]
        views[group.rank] = parts[group.rank]
        each.append(views)
    group._exchange(sends, receives)
    return [list(rows) for rows in zip(*each, strict=True)]


def gather_varied(group: "Transport", block: Array, root: int) -> list[Array] | None:
    """Send the lengths to all ranks, then the blocks to root."""
    counts = group._allgather(np.array(len(block), dtype=np.int64))
    if group.rank != root:
        group._exchange([(root, block)] if block.size else [], [])
        return None
    whole = np.empty_like(block, shape=(int(counts.sum()), *block.shape[1:]), order="C")
    views = split_views(whole, counts)
    views[root][...] = block
    group._exchange([], [(r, v) for r, v in enumerate(views) if r != root and v.size])
    return views


def begin_allgather(
    group: "Group", block: Array, counts: Sequence[int], note: "Note" = None
) -> tuple[list[Array], Pending]:
    """Begin an ``allgather_varied``; return the views that it fills, and the pending operation."""
    whole = np.empty_like(block, shape=(sum(counts), *block.shape[1:]), order="C")
    views = split_views(whole, counts)
    mine = views[group.rank]
    mine[...] = block  # the caller may change the original meanwhile
    others = [(rank, view) for rank, view in enumerate(views) if rank != group.rank]
    pending = group.begin_exchange(
        [(rank, mine) for rank, _ in others if mine.size],
        [(rank, view) for rank, view in others if view.size],
        note,
        "allgather",
    )
    return views, pending


def begin_reduce_scatter(
    group: "Group", blocks: Sequence[Array], fold: Fold, note: "Note" = None
) -> tuple[Array, Pending]:
    """Begin a ``reduce_scatter``; return the array that it fills, and the pending operation.

    The caller must not touch the blocks until `wait` returns. For AVG the caller divides the sum.
    """
    ready = [np.ascontiguousarray(prepared(block, fold)) for block in blocks]
    own = ready[group.rank]
    total = np.empty_like(own)
    others = [rank for rank in range(group.size) if rank != group.rank]
    parts = {rank: np.empty_like(own) for rank in others} | {group.rank: own}
    pending = group.begin_exchange(
        [(rank, ready[rank]) for rank in others if ready[rank].size],
        [(rank, parts[rank]) for rank in others if own.size],
        note,
        "reduce_scatter",
    )

    def finish() -> None:
        np.copyto(total, parts[0])
        for rank in range(1, group.size):
            UFUNCS[fold](total, parts[rank], out=total)

    return total, Finishing(pending, finish)


def split_views(whole: Array, counts: Sequence[int] | Array) -> list[Array]:
    """Return consecutive views of `whole` along axis 0, of the given lengths."""
    stops = np.cumsum(counts)
    return [whole[stop - count : stop] for stop, count in zip(stops, counts, strict=True)]


def joined(views: list[Array]) -> Array:
    """Return the array of which the given views are consecutive pieces, without a copy."""
    whole = views[0].base
    assert whole is not None
    return whole
