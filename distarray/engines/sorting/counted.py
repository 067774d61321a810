"""Sorting by counting, for integers of a narrow range.

The ranks add up the number of occurrences of each integer. Then every rank writes its own part of
the sorted sequence. No element is sent.
"""

from collections.abc import Sequence

import numpy as np

from distarray.comm.group import Group
from distarray.layout import Fold
from distarray.typing import Array, DType

__all__ = ["counted_part", "shifted", "unshifted"]

_PURPOSE = "counts of keys"
#: Up to this many different integers are counted.
_POSSIBLE = 1 << 16
#: The least number of elements per different integer.
_OFTEN = 4
#: Elements that are converted to indices at a time.
_CHUNK = 1 << 20


def counted_part(
    group: Group, block: Array, lengths: Sequence[int], stops: Sequence[int]
) -> Array | None:
    """Sort integers by counting; return this rank's part of the sorted sequence.

    Parameters
    ----------
    group, lengths, stops
        See :func:`~distarray.engines.sorting.splitters.cuts_of`.
    block : array
        This rank's elements, on the host; not changed.

    Returns
    -------
    array or None
        This rank's part. None, on all ranks, if the elements are not integers, or if their range is
        too wide.

    Cost
    ----
    One allreduce of a count for each integer of the range. Integers of more than 16 bits first need
    two allreduces of a number.
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
    """Return the least and the greatest integer, or the limits of a small data type."""
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
    """Return differences of integers from the lowest, in an index type."""
    fits = block.dtype.itemsize < 8
    places = block.astype(np.intp) - low if fits else block - block.dtype.type(low)
    return places.astype(np.intp, copy=False)


def unshifted(places: Array, low: int, dtype: DType) -> Array:
    """Return the integers of a data type with these differences from the lowest."""
    if dtype.itemsize < 8:
        return (places + low).astype(dtype)
    integers: Array = places.astype(dtype) + dtype.type(low)
    return integers
