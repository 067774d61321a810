"""Integers of which few are possible: counted, not sorted.

The ranks add up how often each is there; then every rank writes down its own part of the sorted
sequence. No element is sent.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.comm.group import Group
from distarray.layout import Fold
from distarray.typing import Array

__all__ = ["counted_part", "shifted", "unshifted"]

_PURPOSE = "counts of keys"
#: Up to this many different integers are counted.
_POSSIBLE = 1 << 16
#: And only if there are so many elements for each.
_OFTEN = 4
#: Elements that are turned into indices at a time.
_CHUNK = 1 << 20


def counted_part(
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
        None, on all ranks, if these are no integers, or too many are possible.

    Cost
    ----
    One allreduce of a count for each integer that is possible; with more than 16 bits, first two
    allreduces of a number.
    """
    total = sum(lengths)
    if block.dtype.kind not in "biu" or total < _OFTEN:
        return None
    low, high = _range(group, block)
    extent = high - low + 1
    if extent > min(_POSSIBLE, total // _OFTEN):
        return None
    counts = np.zeros(extent, np.int64)
    for start in range(0, len(block), _CHUNK):
        counts += np.bincount(shifted(block[start : start + _CHUNK], low), minlength=extent)
    ends = np.cumsum(group.allreduce(counts, Fold.SUM, _PURPOSE))
    first = stops[group.rank - 1] if group.rank else 0
    here = np.diff(np.clip(ends, first, stops[group.rank]), prepend=first)
    return np.repeat(unshifted(np.arange(extent), low, block.dtype), here)


def _range(group: Group, block: Array) -> tuple[int, int]:
    """The least and the greatest integer, or those that the data type has."""
    if block.dtype.kind == "b":
        return 0, 1
    info = np.iinfo(block.dtype)
    if block.dtype.itemsize <= 2:
        return int(info.min), int(info.max)
    least = block.min() if len(block) else block.dtype.type(info.max)
    most = block.max() if len(block) else block.dtype.type(info.min)
    low = group.allreduce(np.array(least), Fold.MIN, _PURPOSE)
    return int(low), int(group.allreduce(np.array(most), Fold.MAX, _PURPOSE))


def shifted(block: Array, low: int) -> Array:
    """How much above `low` integers are; none is further from it than an index can tell."""
    if block.dtype.itemsize < 8:
        return block.astype(np.intp) - low
    return (block - block.dtype.type(low)).astype(np.intp, copy=False)


def unshifted(places: Array, low: int, dtype: Any) -> Array:
    """The integers of a data type that are so much above `low`."""
    if dtype.itemsize < 8:
        return (places + low).astype(dtype)
    return places.astype(dtype) + dtype.type(low)
