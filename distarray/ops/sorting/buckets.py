"""Splitting before sorting: for numbers that travel alone.

Where the keys are numbers that NumPy sorts with vector instructions, it costs less to split a
block by value, exchange the parts and sort once than to sort, exchange and merge. The cuts are
bracketed by a random sample. What is within a bracket is settled as :mod:`splitters` does, so
that the cuts are as exact. Where this does not serve (frequent keys, NaN, a bracket that misses),
all ranks see it alike and sort first.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from distarray.comm.group import Group
from distarray.layout import Fold
from distarray.ops.sorting.local import negative_zeros
from distarray.ops.sorting.splitters import settle_cuts
from distarray.ops.tiles import TILE

__all__ = ["blurred", "split_parts"]

Array = Any
_PURPOSE = "splitters"
#: Below this many elements a rank on average, sorting first is as fast.
_SHORT = 1 << 15
#: With more ranks the brackets would take up too much of the parts.
_MOST_RANKS = 16
#: Samples of all ranks together.
_SAMPLES = 1 << 15
#: Half the width of a bracket, in standard deviations of a sample's rank.
_DEVIATIONS = 4
#: More equal samples in one bracket than this tell of a frequent key.
_TIES = 8
#: The fractional part of the golden ratio: its multiples are spread evenly and hit no period.
_GOLDEN = 0.6180339887498949
_NOWHERE = np.empty(0, np.intp)


def split_parts(
    group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]
) -> list[Array] | None:
    """For each rank, what of this rank's elements belongs into its part of the sorted sequence.

    Parameters
    ----------
    group, lengths, stops
        As for :func:`~distarray.ops.sorting.splitters.cuts_of`.
    block : array
        This rank's elements, on the host; not changed.

    Returns
    -------
    list of array or None
        Views of one copy of the block. None, on all ranks, if the ranks should sort first.

    Cost
    ----
    As :func:`~distarray.ops.sorting.splitters.cuts_of`, with 2**15 samples in all; about 4 % of
    the elements are in doubt.
    """
    total, size = sum(lengths), group.size
    fits = block.dtype.kind in "iuf" and block.dtype.itemsize in (4, 8)
    if not fits or size == 1 or size > _MOST_RANKS or total < size * _SHORT:
        return None
    brackets = _brackets(group, block, lengths, stops)
    if brackets is None:
        return None
    work = np.empty_like(block)
    ends = [0] * (2 * len(brackets))
    _split(work, 0, brackets, ends, block)
    low, high = np.array(ends[::2]), np.array(ends[1::2])
    cuts = settle_cuts(group, work, np.array(stops[:-1]), low, high)
    if cuts is None:
        return None
    return [work[a:b] for a, b in pairwise(cuts)]


def _brackets(
    group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]
) -> list[tuple[Any, Any]] | None:
    """For each cut, two values between which it surely is; None if there are no such."""
    total = sum(lengths)
    counts = [-(-_SAMPLES * length // total) if length else 0 for length in lengths]
    own = _sample(block, counts[group.rank])
    values = np.concatenate(group.allgather_varied(own, counts, _PURPOSE))
    values.sort()
    if values[-1] != values[-1]:
        return None
    found, last = [], -1
    for stop in stops[:-1]:
        share = stop / total
        middle = share * len(values)
        margin = _DEVIATIONS * np.sqrt(middle * (1 - share)) + 2
        low, high = int(middle - margin), int(middle + margin)
        if low <= last or high >= len(values):
            return None
        window = values[low : high + 1]
        if (window[_TIES:] == window[:-_TIES]).any():
            return None
        found.append((values[low], values[high]))
        last = high
    return found


def _sample(block: Array, count: int) -> Array:
    """Elements of the block from all over it."""
    places = np.arange(1, count + 1) * _GOLDEN % 1.0 * len(block)
    return block[places.astype(np.intp)]


def blurred(group: Group, found: Array, block: Array) -> bool:
    """Whether NumPy's unstable sort has lost signs of zeros or of NaN; equal on all ranks.

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
    lost = bool(negative_zeros(block).any() or np.isnan(block).any())
    return bool(group.allreduce(np.array(lost), Fold.ANY, _PURPOSE))


def _split(
    work: Array,
    start: int,
    brackets: Sequence[tuple[Any, Any]],
    ends: list[int],
    source: Array | None = None,
) -> None:
    """Bring a part of the block into the order of the brackets, by halves.

    `ends` receives where the elements within each bracket start, in ascending order, and stop.
    The elements come from `source` if it is given; they are counted while they are copied.
    """
    if not brackets:
        return
    middle = len(brackets) // 2
    low, high = brackets[middle]
    below = 0
    for into, tile in zip(_tiles(work), _tiles(work if source is None else source), strict=True):
        below += int(np.count_nonzero(tile < low))
        if source is not None:
            into[...] = tile
    if 0 < below < len(work):
        work.partition(below)
    inside = below + _gather_front(work[below:], high)
    ends[2 * middle : 2 * middle + 2] = start + below, start + inside
    lower, upper = ends[: 2 * middle], ends[2 * middle + 2 :]
    _split(work[:below], start, brackets[:middle], lower)
    _split(work[inside:], start + inside, brackets[middle + 1 :], upper)
    ends[: 2 * middle], ends[2 * middle + 2 :] = lower, upper


def _gather_front(work: Array, high: Any) -> int:
    """Move what is not above a value to the front, sorted; there is little of it."""
    found = [np.flatnonzero(tile <= high) for tile in _tiles(work)]
    places = np.concatenate([part + n * TILE for n, part in enumerate(found)] or [_NOWHERE])
    count, inside = len(places), work[places]
    taken = np.zeros(count, bool)
    taken[places[places < count]] = True
    work[places[places >= count]] = work[:count][~taken]
    inside.sort()
    work[:count] = inside
    return count


def _tiles(work: Array) -> list[Array]:
    """The array in parts that stay in the cache while they are compared and counted."""
    return [work[start : start + TILE] for start in range(0, len(work), TILE)]
