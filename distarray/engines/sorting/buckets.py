"""Splitting before sorting, for numbers, alone or with their positions.

If NumPy sorts the keys with vector instructions, splitting a block by value, exchanging the parts
and sorting once costs less than sorting, exchanging and merging. The pivots come from a sample, so
that the parts have only approximately the right lengths: the surplus at both ends of a rank's part,
about a hundredth of the part, is sent to the neighbors after sorting. If this does not work
(frequent keys, NaN, a misleading sample), all ranks detect the failure alike and sort first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.comm.group import Group
from distarray.engines.sorting.sort_in_block import equal_is_same, labels_in_order
from distarray.engines.tiles import TILE
from distarray.layout import Fold
from distarray.typing import Array

__all__ = ["ordered_by_parts", "sorted_by_parts"]

_PURPOSE = "splitters"
_PARTS = "parts by value"
#: With more ranks the parts are often too uneven.
_MOST_RANKS = 16
#: Samples per pair of ranks, up to `_PAIRS_UP_TO` ranks; above, per rank and `_PAIRS_UP_TO`.
_SAMPLES, _PAIRS_UP_TO = 1 << 12, 4
#: With fewer samples per pair of ranks the parts may be too uneven.
_FEWEST = 1 << 10
#: At most one element in this many is sampled.
_RARELY = 16
#: A part may deviate from its length by one in this many elements before its ends are moved.
_UNEVEN = 16
#: The fractional part of the golden ratio: its multiples are spread evenly and match no period.
_GOLDEN = 0.6180339887498949


def sorted_by_parts(
    group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]
) -> Array | None:
    """Sort a sequence by value; return this rank's part of the sorted sequence.

    Parameters
    ----------
    group, lengths, stops
        See :func:`~distarray.engines.sorting.splitters.cuts_of`.
    block : array
        This rank's elements, on the host; not changed.

    Returns
    -------
    array or None
        This rank's part, possibly a view of a slightly longer array. None, on all ranks, if the
        ranks should sort first.

    Cost
    ----
    An allgather of samples, 2**12 elements for each pair of ranks, and an allgather of the parts'
    lengths; an exchange of the parts, and an exchange of the surplus at their ends; for floats an
    allreduce of a flag. Besides the block, memory for at most two more blocks and a sixteenth.
    """
    pivots = _pivots(group, block, lengths, stops)
    if pivots is None:
        return None
    parts = _split(np.empty(block.shape, block.dtype), pivots, block)
    found = _ends(group, [len(part) for part in parts], stops)
    if found is None:
        return None
    table, starts, goals = found
    me = group.rank
    first = min(starts[me], goals[me])
    room = np.empty(max(starts[me + 1], goals[me + 1]) - first, block.dtype)
    landed = room[starts[me] - first : starts[me + 1] - first]
    _exchange_parts(group, parts, table[:, me], landed)
    del parts
    landed.sort()
    part = _put_ends_right(group, room, first, starts, goals)
    return None if _blurred(group, part, block) else part


def ordered_by_parts(
    group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]
) -> Array | None:
    """Return this rank's part of the positions that sort the sequence; equal keys keep their order.

    Parameters, result and cost are those of :func:`sorted_by_parts`, except that the positions are
    sent in a second exchange, and that there is no flag: equal keys are on one rank, in their
    order, and are sorted stably.
    """
    pivots = _pivots(group, block, lengths, stops)
    if pivots is None:
        return None
    places = _places(block, pivots)
    ends = _ends(group, [len(part) for part in places], stops)
    if ends is None:
        return None
    table, starts, goals = ends
    me = group.rank
    keys = np.empty(starts[me + 1] - starts[me], block.dtype)
    positions = np.empty(len(keys), np.intp)
    _exchange_parts(group, [block[part] for part in places], table[:, me], keys)
    before = sum(lengths[:me])
    for part in places:
        part += before
    _exchange_parts(group, places, table[:, me], positions)
    del places
    order = labels_in_order(keys, positions)  # positions from lower ranks come first
    del keys, positions
    first = min(starts[me], goals[me])
    room = np.empty(max(starts[me + 1], goals[me + 1]) - first, np.intp)
    room[starts[me] - first : starts[me + 1] - first] = order
    return _put_ends_right(group, room, first, starts, goals)


def _places(block: Array, pivots: Sequence[Any]) -> list[Array]:
    """Return the positions of each part's elements in the block; NaN is above every pivot."""
    part = np.zeros(len(block), np.uint8)
    for pivot in pivots:
        part += ~(block < pivot)
    return [np.flatnonzero(part == number) for number in range(len(pivots) + 1)]


def _ends(
    group: Group, counts: Sequence[int], stops: Sequence[int]
) -> tuple[Array, list[int], list[int]] | None:
    """Return the lengths of all parts on all ranks, the parts' starts and the ranks' starts.

    Both lists of starts end with the length of the sequence. None, on all ranks, if the parts are
    too uneven.
    """
    table = group.allgather(np.array(counts), _PURPOSE)
    starts, goals = [0, *np.cumsum(table.sum(axis=0)).tolist()], [0, *stops]
    uneven = max(abs(start - goal) for start, goal in zip(starts, goals, strict=True))
    return None if uneven * _UNEVEN * group.size > goals[-1] else (table, starts, goals)


def _sample_size(total: int, size: int) -> int:
    """Return how many elements all ranks together sample; 0 if too few."""
    samples = min(total // _RARELY, _SAMPLES * size * min(size, _PAIRS_UP_TO))
    return samples if samples >= _FEWEST * size * size else 0


def _pivots(
    group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]
) -> list[Any] | None:
    """Return a value near each cut.

    None, on all ranks, if the method does not apply or there is no suitable value for a cut.
    """
    total = sum(lengths)
    fits = block.dtype.kind in "iuf" and block.dtype.itemsize in (4, 8)
    samples = _sample_size(total, group.size)
    if not fits or not 1 < group.size <= _MOST_RANKS or not samples:
        return None
    counts = [-(-samples * length // total) for length in lengths]
    own = _sample(block, counts[group.rank])
    values = np.concatenate(group.allgather_varied(own, counts, _PURPOSE))
    values.sort()
    if values[-1] != values[-1]:
        return None
    found = []
    near = len(values) // (2 * _UNEVEN * group.size)
    for stop in stops[:-1]:
        middle = stop * len(values) // total
        if not near <= middle < len(values) - near:
            return None
        pivot = values[middle]
        if pivot in (values[middle - near], values[middle + near]):  # a frequent key
            return None
        found.append(pivot)
    return found


def _sample(block: Array, count: int) -> Array:
    """Return elements spread evenly over the block."""
    places = np.arange(1, count + 1) * _GOLDEN % 1.0 * len(block)
    return block[places.astype(np.intp)]


def _split(work: Array, pivots: Sequence[Any], source: Array | None = None) -> list[Array]:
    """Partition elements by the pivots, by halves; return the parts in order.

    The elements come from `source` if `source` is given.
    """
    if not pivots:
        return [work]
    middle = len(pivots) // 2
    if source is not None:
        below = _halved(source, pivots[middle], work)
    else:
        below = sum([int(np.count_nonzero(tile < pivots[middle])) for tile in _tiles(work)])
        if 0 < below < len(work):
            work.partition(below)
    lower = _split(work[:below], pivots[:middle])
    return [*lower, *_split(work[below:], pivots[middle + 1 :])]


def _halved(source: Array, pivot: Any, into: Array) -> int:
    """Copy elements below a pivot to the front, others to the end; return the number below."""
    low, high = 0, len(into)
    for tile in _tiles(source):
        is_below = tile < pivot
        places = np.flatnonzero(is_below)
        tile.take(places, out=into[low : low + len(places)], mode="clip")
        low += len(places)
        places = np.flatnonzero(np.logical_not(is_below, out=is_below))
        high -= len(places)
        tile.take(places, out=into[high : high + len(places)], mode="clip")
    return low


def _exchange_parts(group: Group, parts: Sequence[Array], lengths: Array, into: Array) -> None:
    """Exchange the parts; the parts for this rank are stored one after the other."""
    views = np.split(into, np.cumsum(lengths)[:-1])
    others = [rank for rank in range(group.size) if rank != group.rank]
    views[group.rank][...] = parts[group.rank]
    group.exchange(
        [(rank, parts[rank]) for rank in others if parts[rank].size],
        [(rank, views[rank]) for rank in others if views[rank].size],
        _PARTS,
    )


def _put_ends_right(
    group: Group, room: Array, first: int, starts: Sequence[int], goals: Sequence[int]
) -> Array:
    """Send the surplus at the ends of parts to the right ranks; return this rank's share.

    Parameters
    ----------
    group : Group
        The ranks that share the sequence.
    room : array
        This rank's elements, sorted, with space for the elements that this rank receives.
    first : int
        The position of the start of `room` in the sorted sequence.
    starts, goals : sequence of int
        The positions at which each rank's part begins, and at which it should begin; and the end of
        the sequence.
    """
    me = group.rank

    def shared(has: int, wants: int) -> tuple[int, int]:
        return max(starts[has], goals[wants]), min(starts[has + 1], goals[wants + 1])

    others = [rank for rank in range(group.size) if rank != me]
    going = [(rank, *shared(me, rank)) for rank in others]
    coming = [(rank, *shared(rank, me)) for rank in others]
    group.exchange(
        [(rank, room[low - first : high - first]) for rank, low, high in going if low < high],
        [(rank, room[low - first : high - first]) for rank, low, high in coming if low < high],
        _PARTS,
    )
    if len(room) == goals[me + 1] - goals[me]:
        return room
    return room[goals[me] - first : goals[me + 1] - first]


def _blurred(group: Group, found: Array, block: Array) -> bool:
    """Check whether NumPy's unstable sort may lose signs of zeros or NaN, alike on all ranks.

    Parameters
    ----------
    group : Group
        The ranks that share the sequence.
    found : array
        This rank's part of the sorted sequence.
    block : array
        This rank's elements before sorting.

    Cost
    ----
    One allreduce of a flag; if there are zeros or NaN, two passes over the block and another
    allreduce.
    """
    if block.dtype.kind != "f":
        return False
    zero = found.dtype.type(0)
    ends = np.searchsorted(found, zero), np.searchsorted(found, zero, side="right")
    doubtful = bool(ends[0] < ends[1] or np.isnan(found[-1:]).any())
    if not group.allreduce(np.array(doubtful), Fold.ANY, _PURPOSE):
        return False
    lost = not equal_is_same(block)
    return bool(group.allreduce(np.array(lost), Fold.ANY, _PURPOSE))


def _tiles(work: Array) -> list[Array]:
    """Return the array in tiles that stay in the cache while they are compared and counted."""
    return [work[start : start + TILE] for start in range(0, len(work), TILE)]
