"""Cuts of sorted runs by which every rank gets exactly its part of the merged sequence.

There are two rounds of messages for any distribution of the keys. In the first round every rank
sends a regular sample of its run to all ranks. The elements of all runs are ordered by key, rank
and position, a strict order also among equal keys. Hence the samples bound the position of each cut
from both sides: about 2 d elements of each run remain undecided, where d is the distance between
samples. In the second round each rank sends these elements to the rank in charge of the cut, which
merges and counts them and replies. With d = sqrt(n / p), each rank receives about sqrt(n * p) keys
in both rounds: few as long as a rank has more elements than there are ranks.

References
----------
V. Harsh, L. Kale, E. Solomonik, Histogram Sort with Sampling, SPAA 2019.
"""

from collections.abc import Sequence
from math import isqrt
from typing import NamedTuple

import numpy as np

from distarray.array import faults
from distarray.comm import devices
from distarray.comm.group import Group
from distarray.engines.sorting.sort_in_block import is_nan, position
from distarray.layout import Fold
from distarray.typing import Array

__all__ = ["cuts_of"]

_PURPOSE = "splitters"


class _Bounds(NamedTuple):
    """Bounds of each cut: elements before `low` are left of it, elements from `high` are not."""

    low: Array
    high: Array


def cuts_of(
    group: Group,
    keys: Array,
    lengths: Sequence[int],
    stops: Sequence[int],
    together: bool = False,
) -> list[int]:
    """Compute the cuts of this rank's run.

    Parameters
    ----------
    group : Group
        The ranks, in the order of their runs.
    keys : array
        This rank's sorted run.
    lengths : sequence of int
        The lengths of all runs.
    stops : sequence of int
        For each rank, the total number of elements that this rank and the lower ranks shall
        receive.
    together : bool
        True to keep equal keys (also all NaN) on one rank. The parts then have only approximately
        the requested lengths, unless no key is frequent.

    Returns
    -------
    list of int
        The cuts, one more than there are ranks; rank i gets the elements between the i-th and the
        next cut.

    Cost
    ----
    An allgather of samples, a reduce-scatter of one number per rank, an all-to-all of keys, and an
    all-to-all of one number or key per pair of ranks.
    """
    total, size = sum(lengths), group.size
    if size == 1 or not total:
        return [0] * size + [len(keys)]
    targets = np.array(stops[:-1], np.int64)
    inner = (targets > 0) & (targets < total)
    bounds = _sampled(group, keys, lengths, targets)
    low = np.where(inner, bounds.low, np.where(targets > 0, len(keys), 0))
    high = np.where(inner, np.maximum(bounds.high, low), low)
    cuts = _settle_cuts(group, keys, np.where(inner, targets, 0), low, high, together)
    assert cuts is not None
    return cuts


def _settle_cuts(
    group: Group, keys: Array, targets: Array, low: Array, high: Array, together: bool = False
) -> list[int] | None:
    """Compute the exact cuts, from bounds for them.

    Parameters
    ----------
    group, keys, together
        See :func:`cuts_of`.
    targets : array
        The number of elements of all ranks left of each cut; 0 if the cut is at `low`.
    low, high : array
        For each cut: this rank's elements before `low` are left of it, and elements from `high` on
        are right of it. The elements between are sorted.

    Returns
    -------
    list of int or None
        The cuts. None, on all ranks, if the bounds are wrong.
    """
    size = group.size
    parts = [devices.to_host(keys[a:b]) for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    empty = np.empty(0, keys.dtype)
    before = group.reduce_scatter([*low.reshape(-1, 1), np.zeros(1, np.int64)], Fold.SUM, _PURPOSE)
    found = group.alltoall_varied([*parts, empty], _PURPOSE)
    target = int(targets[group.rank]) if group.rank < size - 1 else 0
    left = target - int(before[0]) if target else 0
    if together:
        replies = [_last_key(found, left)] * size
        splitters = group.alltoall_varied(replies, _PURPOSE)[:-1]
        pairs = zip(splitters, low.tolist(), strict=True)
        inside = [_after(keys, key) if len(key) else outer for key, outer in pairs]
    else:
        counts = _shares(found, left).reshape(-1, 1)
        shares = np.concatenate(group.alltoall_varied([*counts], _PURPOSE)[:-1])
        if (shares < 0).any():
            return None
        inside = (shares + low).tolist()
    return [0, *inside, len(keys)]


def _after(keys: Array, splitter: Array) -> int:
    """Return the end of the keys that are not above the splitter."""
    if is_nan(splitter)[0]:
        return len(keys)
    return int(position(keys, splitter, "right")[0])


def _shares(parts: Sequence[Array], left: int) -> Array:
    """Return how many of the first `left` elements of the merged parts each part contains.

    -1 if there are fewer elements in total.
    """
    if not left:
        return np.zeros(len(parts), np.int64)
    if not 0 < left <= sum([len(part) for part in parts]):
        return np.full(len(parts), -1, np.int64)
    last = _last_key(parts, left)
    below = np.concatenate([position(part, last, "left") for part in parts])
    upto = np.concatenate([position(part, last, "right") for part in parts])
    # If keys equal the last one, those of lower ranks come first.
    equal = np.cumsum(upto - below)
    missing = left - int(below.sum())
    shares: Array = below + np.diff(np.minimum(equal, missing), prepend=0)
    return shares


def _last_key(parts: Sequence[Array], left: int) -> Array:
    """Return the key of the last element left of the cut; empty if this rank has no cut."""
    if not left:
        return parts[0][:0]
    return faults.partition(np.concatenate(parts), left - 1)[left - 1 : left]


def _sampled(group: Group, keys: Array, lengths: Sequence[int], targets: Array) -> _Bounds:
    """Compute bounds of the cuts from the samples.

    At least one element left of every cut remains undecided, so that its key is known at the end.
    """
    total, me = sum(lengths), group.rank
    step = max(1, isqrt(total // group.size))
    places = [np.arange(step // 2, length, step) for length in lengths]
    own = devices.to_host(keys[step // 2 :: step])
    samples = group.allgather_varied(own, [len(p) for p in places], _PURPOSE)
    values = np.concatenate(samples)
    order = np.argsort(values, kind="stable")
    # Each sample represents itself and the elements after its predecessor in the same run.
    upto = [np.diff(p, prepend=-1) for p in places]
    fromit = [np.diff(p, append=n) for p, n in zip(places, lengths, strict=True)]
    at_or_before = np.cumsum(np.concatenate(upto)[order])
    before = total - np.cumsum(np.concatenate(fromit)[order][::-1])[::-1]
    first = np.searchsorted(before, targets - 1, "right") - 1
    last = np.searchsorted(at_or_before, targets, "left")
    source = np.repeat(np.arange(group.size), [len(p) for p in places])[order]
    place, values = np.concatenate(places)[order], values[order]

    def ends(numbers: Array, inclusive: int) -> Array:
        """Count this rank's elements before the samples, or up to and including them."""
        wanted = values[numbers]
        lower, upper = position(keys, wanted, "left"), position(keys, wanted, "right")
        rank = source[numbers]
        other = np.where(rank > me, upper, lower)
        return np.where(rank == me, place[numbers] + inclusive, other)

    low = np.where(first < 0, 0, ends(np.maximum(first, 0), 0))
    high = np.where(last == len(order), len(keys), ends(np.minimum(last, len(order) - 1), 1))
    return _Bounds(low, high)
