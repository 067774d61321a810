"""The distinct elements of all ranks, given those of each.

Few distinct elements are gathered, and cost a message of their size. Many go by the parallel sort
to the rank that has their place, equal ones to the same rank.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from distarray.comm.group import Group
from distarray.engines.sorting.distinct_in_block import Distinct, condensed, kept
from distarray.engines.sorting.parallel_sort import Routed
from distarray.engines.sorting.sort_in_block import merged, merging_order
from distarray.typing import Array

__all__ = ["Merged", "merge"]

_PURPOSE = "distinct elements"
#: Kinds of elements that may be equal and yet differ, as 0.0 and -0.0 do: the first one counts.
_VARIED = "fcV"


class Merged(NamedTuple):
    """The distinct elements of all ranks.

    Attributes
    ----------
    found : Distinct
        All of them, if they are few; else those whose place is on this rank. `inverse` has, for
        each of this rank's own distinct elements, its number among all.
    counts : list of int or None
        How many each rank has; None if every rank has them all.
    """

    found: Distinct
    counts: list[int] | None


def merge(group: Group, own: Distinct, equal_nan: bool, few: int) -> Merged:
    """The distinct elements of all ranks, given those of each.

    Parameters
    ----------
    group : Group
        The ranks.
    own : Distinct
        This rank's distinct elements. Of all ranks' those attributes are found that are not None
        here; what `inverse` holds does not matter.
    equal_nan : bool
        Whether NaN equals NaN.
    few : int
        Up to this many bytes, they are gathered on every rank.

    Cost
    ----
    An allgather of a number, then either one of the elements and of each attribute, or cuts and
    all-to-alls as for sorting.
    """
    lengths = group.allgather(np.array(len(own.keys)), _PURPOSE).tolist()
    total = sum(lengths)
    if total * own.keys.dtype.itemsize <= few:
        return _gathered(group, own, lengths, equal_nan)
    return _routed(group, own, lengths, equal_nan)


def _gathered(group: Group, own: Distinct, lengths: Sequence[int], equal_nan: bool) -> Merged:
    def gathered(array: Array) -> Array:
        return np.concatenate(group.allgather_varied(array, lengths, _PURPOSE))

    keys = gathered(own.keys)
    first = None if own.first is None else gathered(own.first)
    count = None if own.count is None else gathered(own.count)
    found = _joined(keys, first, count, equal_nan, own)
    if found.inverse is not None:
        before = sum(lengths[: group.rank])
        found.inverse = found.inverse[before : before + len(own.keys)]
    return Merged(found, None)


def _routed(group: Group, own: Distinct, lengths: Sequence[int], equal_nan: bool) -> Merged:
    total, size = sum(lengths), group.size
    stops = [total * (rank + 1) // size for rank in range(size)]
    routed = Routed(group, own.keys, lengths, stops, together=True)
    first = None if own.first is None else routed.carried(own.first)
    count = None if own.count is None else routed.carried(own.count)
    found = _joined(routed.keys, first, count, equal_nan, own)
    counts = group.allgather(np.array(len(found.keys)), _PURPOSE).tolist()
    if found.inverse is not None:
        found.inverse = routed.returned(found.inverse + sum(counts[: group.rank]))
    return Merged(found, counts)


def _joined(
    keys: Array, first: Array | None, count: Array | None, equal_nan: bool, own: Distinct
) -> Distinct:
    """The distinct elements of sorted runs, one after the other."""
    if first is None and count is None and own.inverse is None:
        return kept(merged(keys), equal_nan)
    found = condensed(keys, merging_order(keys), equal_nan, first, count, own.inverse is not None)
    if first is not None and found.first is not None and keys.dtype.kind in _VARIED:
        order = np.argsort(first)
        found.keys = keys[order[np.searchsorted(first, found.first, sorter=order)]]
    return found
