"""Distinct elements of all ranks, from the distinct elements of each rank.

Few distinct elements are gathered, which costs a message of their size. Otherwise the parallel sort
sends each element to the rank that stores its position in the result; equal elements go to the same
rank.
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
#: Kinds of elements that may be equal and yet differ, as 0.0 and -0.0: the first element is used.
_VARIED = "fcV"


class Merged(NamedTuple):
    """Distinct elements of all ranks.

    Attributes
    ----------
    found : Distinct
        All distinct elements, if they are few; else the elements that this rank stores. `inverse`
        contains, for each of this rank's own distinct elements, its number among all distinct
        elements.
    counts : list of int or None
        The number of distinct elements on each rank; None if every rank has all of them.
    """

    found: Distinct
    counts: list[int] | None


def merge(group: Group, own: Distinct, equal_nan: bool, few: int) -> Merged:
    """Compute the distinct elements of all ranks, from the distinct elements of each rank.

    Parameters
    ----------
    group : Group
        The ranks that merge their elements.
    own : Distinct
        This rank's distinct elements. An attribute of the result is computed if the attribute is
        not None here; the contents of `inverse` are ignored.
    equal_nan : bool
        True if NaN equals NaN.
    few : int
        Up to this many bytes, the elements are gathered on every rank.

    Cost
    ----
    An allgather of a number. Then either an allgather of the elements and of each attribute, or
    cuts and all-to-alls as for sorting.
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
    """Compute the distinct elements of concatenated sorted runs."""
    if first is None and count is None and own.inverse is None:
        return kept(merged(keys), equal_nan)
    found = condensed(keys, merging_order(keys), equal_nan, first, count, own.inverse is not None)
    if first is not None and found.first is not None and keys.dtype.kind in _VARIED:
        order = np.argsort(first)
        found.keys = keys[order[np.searchsorted(first, found.first, sorter=order)]]
    return found
