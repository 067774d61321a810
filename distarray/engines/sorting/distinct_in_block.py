"""Distinct elements of one block."""

from dataclasses import dataclass

import numpy as np

from distarray.engines.sorting.counted import shifted, unshifted
from distarray.engines.sorting.sort_in_block import is_nan, sorted_values, stable_order
from distarray.typing import Array

__all__ = ["Distinct", "condensed", "distinct", "kept", "starts"]

#: Integers are tabulated if their range is narrower than this multiple of their number.
_SPREAD = 2


@dataclass(slots=True)
class Distinct:
    """Distinct elements, with attributes that are None unless requested.

    Attributes
    ----------
    keys : array
        The distinct elements, ascending.
    first : array or None
        The first position of each distinct element.
    count : array or None
        The number of occurrences of each distinct element.
    inverse : array or None
        For each element of the block, its number among the distinct elements.
    """

    keys: Array
    first: Array | None = None
    count: Array | None = None
    inverse: Array | None = None


def starts(keys: Array, equal_nan: bool) -> Array:
    """Return a mask of the sorted keys that differ from the previous key."""
    new = np.empty(len(keys), bool)
    new[:1] = True
    new[1:] = keys[1:] != keys[:-1]
    if equal_nan and len(keys) and is_nan(keys[-1:])[0]:
        first = np.searchsorted(is_nan(keys), True)
        new[first + 1 :] = False
    return new


def distinct(block: Array, first: bool, count: bool, inverse: bool, equal_nan: bool) -> Distinct:
    """Compute the distinct elements of a 1-d block, with the requested attributes."""
    if block.dtype.kind in "biu" and len(block):
        low, high = int(block.min()), int(block.max())
        if high - low < _SPREAD * len(block):
            return _tabulated(block, low, high - low + 1, (first, count, inverse))
    if first or inverse:
        where = np.arange(len(block)) if first else None
        ones = np.ones(len(block), np.intp) if count else None
        return condensed(block, stable_order(block), equal_nan, where, ones, inverse)
    if count:
        keys = sorted_values(block)
        places = np.flatnonzero(starts(keys, equal_nan))
        return Distinct(keys[places], None, np.diff(places, append=len(keys)))
    if block.dtype.kind in "SU" and _seem_few(block):
        return Distinct(np.unique(block))  # NumPy hashes
    return kept(sorted_values(block), equal_nan)


def _seem_few(block: Array) -> bool:
    """Estimate whether at most an eighth of the elements are distinct, from a sample.

    Hashing then takes less time than sorting. If d elements are equally frequent, a sample of s
    elements has about s * s / 2d repeats.
    """
    sample = np.sort(block[:: max(32, len(block) // 4096 + 1)])
    repeats = len(sample) - int(np.count_nonzero(starts(sample, False)))
    return repeats * len(block) > 4 * len(sample) ** 2


def kept(keys: Array, equal_nan: bool) -> Distinct:
    """Return the distinct elements of sorted keys."""
    new = starts(keys, equal_nan)
    return Distinct(keys if new.all() else keys[new])


def _tabulated(block: Array, low: int, extent: int, asked: tuple[bool, bool, bool]) -> Distinct:
    """Compute the distinct elements of integers of a narrow range: by a table, without sorting."""
    places = shifted(block, low)
    if asked[1]:
        counts = np.bincount(places, minlength=extent)
        seen = counts > 0
    else:
        seen = np.zeros(extent, bool)
        seen[places] = True
    values = np.flatnonzero(seen)
    found = Distinct(unshifted(values, low, block.dtype))
    if asked[0]:
        first = np.empty(extent, np.intp)
        first[places[::-1]] = np.arange(len(block) - 1, -1, -1)  # the last write wins
        found.first = first[values]
    if asked[1]:
        found.count = counts[values]
    if asked[2]:
        found.inverse = (np.cumsum(seen) - 1)[places]
    return found


def condensed(
    keys: Array,
    order: Array,
    equal_nan: bool,
    first: Array | None,
    count: Array | None,
    inverse: bool,
) -> Distinct:
    """Compute the distinct elements of keys that a permutation sorts; reduce their attributes.

    Parameters
    ----------
    keys, order : array
        The keys and the permutation: ``keys[order]`` ascends.
    equal_nan : bool
        True if NaN equals NaN.
    first, count : array or None
        For each key, its first position, and its number of occurrences.
    inverse : bool
        True to number the keys.
    """
    ordered = keys[order]
    new = starts(ordered, equal_nan)
    places = np.flatnonzero(new)
    found = Distinct(ordered[places])
    if first is not None:
        found.first = _least(first[order], places, ordered) if len(places) else first[:0]
    if count is not None:
        found.count = np.add.reduceat(count[order], places) if len(places) else count[:0]
    if inverse:
        found.inverse = np.empty(len(keys), np.intp)
        found.inverse[order] = np.cumsum(new) - 1
    return found


def _least(first: Array, places: Array, keys: Array) -> Array:
    """Return the first position of each distinct element.

    All complex NaN are one element, whose first position is the least of all of them.
    """
    if keys.dtype.kind != "c" or not is_nan(keys[-1:])[0]:
        return np.minimum.reduceat(first, places)
    new = np.zeros(len(keys), bool)
    for part in (keys.real, keys.imag):
        lost = np.isnan(part)
        new[1:] |= (part[1:] != part[:-1]) & ~(lost[1:] & lost[:-1])
    new[0] = True
    runs = np.flatnonzero(new)
    return np.minimum.reduceat(first, runs)[np.searchsorted(runs, places)]
