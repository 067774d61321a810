"""The one parallel sort: a sequence spread over a group of ranks, in their order.

Every rank sorts its part; the ranks find the exact cuts
(:mod:`~distarray.engines.sorting.splitters`), so that each gets a part of the wanted length
whatever the keys are; one all-to-all; and every rank merges what it received. Numbers are split
first and sorted afterwards where that is faster (:mod:`~distarray.engines.sorting.buckets`);
integers of a narrow range are counted (:mod:`~distarray.engines.sorting.counted`). Riders, such as
positions, go with the keys. Equal keys stay in the order of ranks and positions.
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
    """Sorted runs, each part brought to the rank that it belongs to.

    Parameters
    ----------
    group : Group
        The ranks, in the order of their runs.
    keys : array
        This rank's run, sorted.
    lengths : sequence of int
        Of all runs.
    stops : sequence of int
        For each rank, how many elements it and those before it get in all.
    together : bool
        Whether equal keys are kept on one rank; see :func:`cuts_of`.

    Attributes
    ----------
    keys : array
        The runs that this rank received, one after the other in the order of ranks.

    Cost
    ----
    Cuts, and one all-to-all of the elements that belong elsewhere.
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
        """The riders of the received keys, given those of this rank's keys."""
        return joined(self.group.alltoall_varied(self._split(rider), _PURPOSE))

    def returned(self, answers: Array) -> Array:
        """The answers of the ranks that received this rank's keys, in the order of its run."""
        stops = np.cumsum(self._received)
        parts = [answers[b - n : b] for b, n in zip(stops, self._received, strict=True)]
        return joined(self.group.alltoall_varied(parts, _PURPOSE))


def joined(parts: Sequence[Array]) -> Array:
    """Arrays one after the other: the base of consecutive views of it, else a copy."""
    base = parts[0].base
    if base is not None and base.size == sum([part.size for part in parts]):
        return base
    return np.concatenate(parts)


def lengths_of(cut: Cut) -> list[int]:
    """The lengths of the blocks."""
    found = [cut.interval(part) for part in range(cut.parts)]
    return [stop - start for start, stop in found]


def stops_of(cut: Cut) -> list[int]:
    """The ends of the blocks."""
    return list(accumulate(lengths_of(cut)))


def sort_line(group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]) -> Array:
    """This rank's part of the sorted sequence.

    Parameters
    ----------
    group : Group
        The ranks over which the sequence is spread, in its order.
    block : array
        This rank's part of it; not changed.
    lengths : sequence of int
        How many elements each rank has.
    stops : sequence of int
        How many elements each rank and those before it get in all.

    Cost
    ----
    As :class:`Routed`; no more than allreduces where integers are counted. Beyond the block,
    memory for two more.
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
    """This rank's part of the positions that sort the sequence, equal keys in their order.

    Parameters
    ----------
    group, keys, lengths, stops
        As for :func:`sort_line`.
    order, merging : callable
        The stable argsort of a block, and that of sorted runs one after the other.

    Cost
    ----
    As :class:`Routed`, and another all-to-all, of 8 bytes an element.
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
