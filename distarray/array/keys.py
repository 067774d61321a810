"""Index expressions: recognition of basic keys, and their normalized entries."""

from operator import index
from typing import Any, cast

import numpy as np

from distarray.array.base import Base
from distarray.layout import Entries
from distarray.typing import Array, Key

__all__ = [
    "INVALID",
    "as_index",
    "basic_entries",
    "directed",
    "expand_ellipsis",
    "names_element",
    "plain_key",
]

_FULL = slice(None)
#: Types of entries that index one dimension each and are basic.
_PLAIN = frozenset({int, slice})
#: NumPy's message about an entry that cannot be an index.
INVALID = (
    "only integers, slices (`:`), ellipsis (`...`), numpy.newaxis (`None`) and integer or "
    "boolean arrays are valid indices"
)


def as_index(entry: Any) -> int | None:
    """Return the integer value of a key's entry, or None if the entry is not an integer."""
    kind = type(entry)
    if kind is int:
        return int(entry)
    if kind is bool or isinstance(entry, (bool, np.bool_, slice, type(None), type(Ellipsis))):
        return None
    if _is_array(entry):
        if entry.ndim or entry.dtype.kind not in "iu":
            return None
        return index(entry)
    try:
        return index(entry)
    except TypeError:
        return None


def _is_array(entry: Any) -> bool:
    return isinstance(entry, (np.ndarray, Base))


def expand_ellipsis(key: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    """Write out a key's ellipsis, or the implied one at its end, as slices.

    Raises
    ------
    IndexError
        If there are two ellipses or more entries than dimensions.
    """
    used, position = 0, None
    for place, entry in enumerate(key):
        if entry is Ellipsis:
            if position is not None:
                raise IndexError("an index can only have a single ellipsis ('...')")
            position = place
        elif isinstance(entry, (bool, np.bool_)):
            continue
        elif entry is not None:
            mask = _is_array(entry) and entry.dtype == bool
            used += entry.ndim if mask else 1
    if used > ndim:
        raise IndexError(
            f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed"
        )
    missing = (_FULL,) * (ndim - used)
    if position is None:
        return key + missing
    return key[:position] + missing + key[position + 1 :]


def plain_key(key: Key) -> Any:
    """Convert a subclass of tuple, such as a named tuple, to a tuple; NumPy reads both alike."""
    return tuple(key) if isinstance(key, tuple) else key


def basic_entries(key: Key, shape: tuple[int, ...], arrays: bool = False) -> Entries | None:
    """Return the entries of a basic key (see :mod:`distarray.layout.views`); None for other keys.

    A 0-d integer array that is not a scalar counts as basic only with `arrays`: it selects the same
    elements as an integer, but NumPy returns a copy.

    Raises
    ------
    IndexError
        NumPy's: out of bounds, too many indices, no valid index.
    """
    parts = key if type(key) is tuple else (key,)
    plain = _PLAIN.issuperset(map(type, parts))
    if not plain and not all(_is_basic(part, arrays) for part in parts):
        return None
    if not plain or len(parts) != len(shape):
        parts = expand_ellipsis(parts, len(shape))
    entries: list[Any] = []
    dim = 0
    for entry in parts:
        if entry is None:
            entries.append(None)
            continue
        extent = shape[dim]
        if type(entry) is slice:
            if entry == _FULL:
                entries.append((0, 1, extent))
            else:
                start, stop, step = entry.indices(extent)
                entries.append((start, step, len(range(start, stop, step))))
        else:
            entries.append(_position(entry, extent, dim))
        dim += 1
    return tuple(entries)


def _is_basic(entry: Any, arrays: bool) -> bool:
    """Return True if an entry is valid in a basic key."""
    if entry is None or entry is Ellipsis or isinstance(entry, slice):
        return True
    if not arrays and _is_array(entry) and not isinstance(getattr(entry, "block", 0), np.generic):
        return False
    return not isinstance(entry, list) and as_index(entry) is not None


def _position(entry: int, extent: int, dim: int) -> int:
    number = as_index(entry)
    if number is None:
        raise IndexError(INVALID)
    if not -extent <= number < extent:
        raise IndexError(f"index {number} is out of bounds for axis {dim} with size {extent}")
    return number + extent if number < 0 else number


def names_element(key: Key, shape: tuple[int, ...]) -> bool:
    """Return True if a basic key that selects `shape` yields an element and not a 0-d array."""
    return not shape and Ellipsis not in (key if type(key) is tuple else (key,))


def directed(empty: Array, base: Array, entries: Entries) -> Any:
    """Return the empty block of a view, with the signs that strides have on other ranks.

    NumPy drops the signs of empty arrays. But code that checks whether a block can be shared must
    get the same result on all ranks.
    """
    if type(empty) is not np.ndarray:
        return empty
    strides, dim, signs = getattr(base, "strides", ()), 0, []
    for entry in entries:
        before = strides[dim] if entry is not None and dim < len(strides) else 0
        dim += entry is not None
        if not isinstance(entry, int):
            signs.append((-1 if before < 0 else 1) * (1 if entry is None else entry[1]))
    if min(signs, default=1) < 0:
        steps = tuple([empty.itemsize if sign > 0 else -empty.itemsize for sign in signs])
        return np.ndarray(empty.shape, empty.dtype, cast("Any", empty), strides=steps)
    return empty
