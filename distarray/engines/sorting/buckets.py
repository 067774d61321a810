"""Splitting before sorting, for numbers, alone or with their positions.

Where the keys are numbers that NumPy sorts with vector instructions, it costs less to split a
block by value, exchange the parts and sort once than to sort, exchange and merge. The pivots come
from a sample, so that the parts have only about the right lengths: the surplus at a rank's ends,
a hundredth or so, goes to its neighbours, already in order. Where this does not work (frequent
keys, NaN, a misleading sample), all ranks find that alike and sort first.
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
#: Samples for each pair of ranks, up to a number of ranks; above, for each rank and that number.
_SAMPLES, _PAIRS_UP_TO = 1 << 12, 4
#: With fewer samples a pair the parts may be too uneven.
_FEWEST = 1 << 10
#: At most one element in so many is sampled.
_RARELY = 16
#: A block may be longer or shorter by this part of it before its ends are put right.
_UNEVEN = 16
#: The fractional part of the golden ratio: its multiples are spread evenly and hit no period.
_GOLDEN = 0.6180339887498949


def sorted_by_parts(
    group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]
) -> Array | None:
    """This rank's part of the sorted sequence.

    Parameters
    ----------
    group, lengths, stops
        As for :func:`~distarray.engines.sorting.splitters.cuts_of`.
    block : array
        This rank's elements, on the host; not changed.

    Returns
    -------
    array or None
        May be a view of a slightly longer one. None, on all ranks, if they should sort first.

    Cost
    ----
    An allgather of samples, 2**12 elements for each pair of ranks, and one of the parts' lengths;
    an exchange of the parts, and one of the surplus at their ends; for floats an allreduce of a
    flag. Beyond the block, memory for two more, and a sixteenth at the most.
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
    """This rank's part of the positions that sort the sequence, equal keys in their order.

    Parameters, result and cost are those of :func:`sorted_by_parts`, save that the positions go
    with the keys, in a second exchange, and that there is no flag: equal keys are on one rank, in
    their order, and are sorted stably.
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
    order = labels_in_order(keys, positions)  # those of lower ranks come first
    del keys, positions
    first = min(starts[me], goals[me])
    room = np.empty(max(starts[me + 1], goals[me + 1]) - first, np.intp)
    room[starts[me] - first : starts[me + 1] - first] = order
    return _put_ends_right(group, room, first, starts, goals)


def _places(block: Array, pivots: Sequence[Any]) -> list[Array]:
    """For each part, where in the block its elements are; NaN is above every pivot."""
    part = np.zeros(len(block), np.uint8)
    for pivot in pivots:
        part += ~(block < pivot)
    return [np.flatnonzero(part == number) for number in range(len(pivots) + 1)]


def _ends(
    group: Group, counts: Sequence[int], stops: Sequence[int]
) -> tuple[Array, list[int], list[int]] | None:
    """The lengths of all parts on all ranks, where parts begin and where ranks' shares begin.

    Both with the end of the sequence. None, on all ranks, if the parts are too uneven.
    """
    table = group.allgather(np.array(counts), _PURPOSE)
    starts, goals = [0, *np.cumsum(table.sum(axis=0)).tolist()], [0, *stops]
    uneven = max(abs(start - goal) for start, goal in zip(starts, goals, strict=True))
    return None if uneven * _UNEVEN * group.size > goals[-1] else (table, starts, goals)


def _sample_size(total: int, size: int) -> int:
    """How many elements all ranks together sample; 0 if too few."""
    samples = min(total // _RARELY, _SAMPLES * size * min(size, _PAIRS_UP_TO))
    return samples if samples >= _FEWEST * size * size else 0


def _pivots(
    group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]
) -> list[Any] | None:
    """For each cut, a value near it; None, on all ranks, if there is none, or no use for them."""
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
    """Elements spread evenly over the block."""
    places = np.arange(1, count + 1) * _GOLDEN % 1.0 * len(block)
    return block[places.astype(np.intp)]


def _split(work: Array, pivots: Sequence[Any], source: Array | None = None) -> list[Array]:
    """Bring elements into the order of the pivots, by halves: the parts, one after the other.

    The elements come from `source` if it is given.
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
    """Copy elements below a pivot to the front, all others to the end: how many are below."""
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
    """Send each rank its part; the parts for this one land one after the other."""
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
    """Bring the surplus at the ends of parts to the ranks where it belongs; this rank's share.

    Parameters
    ----------
    group : Group
        The ranks.
    room : array
        This rank's elements, sorted, with space for those that arrive.
    first : int
        Position of its beginning in the sorted sequence.
    starts, goals : sequence of int
        Positions at which each rank's part begins, and at which it should; and the end.
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
    """Whether NumPy's unstable sort has lost signs of zeros or of NaN, alike on all ranks.

    Parameters
    ----------
    group : Group
        The ranks.
    found : array
        This rank's part of the sorted sequence.
    block : array
        Its elements before they were sorted.

    Cost
    ----
    One allreduce of a flag; if there are zeros or NaN, two passes over the block and another one.
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
    """The array in parts that stay in the cache while they are compared and counted."""
    return [work[start : start + TILE] for start in range(0, len(work), TILE)]
