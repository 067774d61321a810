"""Parallel sort: a sequence spread over a group of ranks, in rank order.

Every rank sorts its part. The ranks compute the exact cuts
(:mod:`~distarray.engines.sorting.splitters`), so that each rank gets a part of the requested length
for any keys. After one all-to-all, every rank merges the runs that it received. Numbers are split
first and sorted afterwards if that is faster (:mod:`~distarray.engines.sorting.buckets`); integers
of a narrow range are counted (:mod:`~distarray.engines.sorting.counted`). Additional values, such
as positions, are sent with the keys. Equal keys keep the order of ranks and positions.
"""

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np

from distarray.comm import devices
from distarray.comm.group import Group
from distarray.comm.progress import advance, stage
from distarray.engines.sorting.buckets import ordered_by_parts, sorted_by_parts
from distarray.engines.sorting.counted import counted_part
from distarray.engines.sorting.sort_in_block import (
    merged,
    merging_order,
    sorted_values,
    stable_order,
)
from distarray.engines.sorting.splitters import cuts_of
from distarray.layout import Cut
from distarray.typing import Array

__all__ = ["Routed", "joined", "lengths_of", "order_line", "sort_line", "stops_of"]

_PURPOSE = "sorted runs"


class Routed:
    """Sorted runs, split and sent to the ranks of the result.

    Parameters
    ----------
    group : Group
        The ranks, in the order of their runs.
    keys : array
        This rank's sorted run.
    lengths : sequence of int
        The lengths of all runs.
    stops : sequence of int
        For each rank, the total number of elements that this rank and the lower ranks receive.
    together : bool
        True to keep equal keys on one rank; see :func:`cuts_of`.

    Attributes
    ----------
    keys : array
        The runs that this rank received, concatenated in the order of ranks.

    Cost
    ----
    Cuts, and one all-to-all of the elements that go to other ranks.
    """

    def __init__(
        self,
        group: Group,
        keys: Array,
        lengths: Sequence[int],
        stops: Sequence[int],
        together: bool = False,
    ) -> None:
        self.group = group
        self._cuts = cuts_of(group, keys, lengths, stops, together)
        parts = group.alltoall_varied(self._split(keys), _PURPOSE)
        self._received = [len(part) for part in parts]
        self.keys = joined(parts)

    def _split(self, run: Array) -> list[Array]:
        return [run[a:b] for a, b in zip(self._cuts[:-1], self._cuts[1:], strict=True)]

    def carried(self, rider: Array) -> Array:
        """Send values that belong to this rank's keys; return the values of the received keys."""
        return joined(self.group.alltoall_varied(self._split(rider), _PURPOSE))

    def returned(self, answers: Array) -> Array:
        """Send values for received keys back; return the values for this rank's run, in order."""
        stops = np.cumsum(self._received)
        parts = [answers[b - n : b] for b, n in zip(stops, self._received, strict=True)]
        return joined(self.group.alltoall_varied(parts, _PURPOSE))


def joined(parts: Sequence[Array]) -> Array:
    """Concatenate arrays: return the base of consecutive views of it, else a copy."""
    base = parts[0].base
    if base is not None and base.size == sum([part.size for part in parts]):
        return base
    return np.concatenate(parts)


def lengths_of(cut: Cut) -> list[int]:
    """Return the lengths of the blocks."""
    found = [cut.interval(part) for part in range(cut.parts)]
    return [stop - start for start, stop in found]


def stops_of(cut: Cut) -> list[int]:
    """Return the ends of the blocks."""
    return list(accumulate(lengths_of(cut)))


def sort_line(group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]) -> Array:
    """Sort a sequence; return this rank's part of the sorted sequence.

    Parameters
    ----------
    group : Group
        The ranks that share the sequence, in its order.
    block : array
        This rank's part of the sequence; not changed.
    lengths : sequence of int
        The number of elements on each rank.
    stops : sequence of int
        For each rank, the total number of elements of the result on this rank and the lower ranks.

    Cost
    ----
    The cost of :class:`Routed`; only allreduces if integers are counted. Besides the block, memory
    for two more blocks.
    """
    with stage("sorting", 3):
        part = None
        if not devices.on_device(block):
            part = sorted_by_parts(group, block, lengths, stops)
            if part is None and group.size > 1:
                part = counted_part(group, block, lengths, stops)
        if part is None and group.size == 1:
            part = sorted_values(block)
        if part is not None:
            advance(3)
            return part
        keys = sorted_values(block)
        advance()
        routed = Routed(group, keys, lengths, stops)
        del keys
        advance()
        found = merged(routed.keys)
        advance()
    return found


def order_line(
    group: Group,
    keys: Array,
    lengths: Sequence[int],
    stops: Sequence[int],
    order: Callable[[Array], Array] = stable_order,
    merging: Callable[[Array], Array] = merging_order,
) -> Array:
    """Return this rank's part of the positions that sort the sequence; equal keys keep their order.

    Parameters
    ----------
    group, keys, lengths, stops
        See :func:`sort_line`.
    order, merging : callable
        The stable argsort of a block, and the stable argsort of concatenated sorted runs.

    Cost
    ----
    The cost of :class:`Routed`, and another all-to-all, of 8 bytes per element.
    """
    if group.size == 1:
        return order(keys)
    with stage("sorting", 3):
        if order is stable_order and not devices.on_device(keys):
            part = ordered_by_parts(group, keys, lengths, stops)
            if part is not None:
                advance(3)
                return part
        positions = order(keys)
        advance()
        routed = Routed(group, keys[positions], lengths, stops)
        found = routed.carried(positions + sum(lengths[: group.rank]))
        advance()
        found = found[merging(routed.keys)]
        advance()
    return found
