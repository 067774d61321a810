"""Sorting one rank's block by NumPy's fastest sort for the data type, with a unique result.

NumPy's vectorized sorts do not keep the signs of zeros and NaN. Here equal elements always stay in
their order, so that the same array gives the same bits however it is spread; that costs a look at
the zeros and NaN, not a stable sort.
"""

from typing import Any, Literal

import numpy as np

from distarray.array import device_sorts, faults
from distarray.comm import devices
from distarray.engines.rehearsing.hollow import Hollow
from distarray.engines.sorting.packed import packed_labels, packed_order
from distarray.typing import Array

__all__ = [
    "equal_is_same",
    "is_nan",
    "labels_in_order",
    "merged",
    "merging_order",
    "position",
    "sort_block",
    "sorted_values",
    "stable_order",
]

#: Kinds whose equal elements have equal bits.
_PLAIN = "biumMSU"
#: Up to this many numbers a stable sort takes less time than a look at the zeros.
_SHORT = 256


def sorted_values(block: Array, axis: int = -1) -> Array:
    """A copy of a block sorted along an axis; equal elements stay in their order."""
    if devices.on_device(block):
        return device_sorts.in_order(block, axis)
    kind = _sure_kind(block)
    found = np.sort(block, axis=axis, kind=kind)
    if kind is not None:
        return found
    if block.ndim == 1:
        _restore(found, block)
    elif found.size:
        _restore_lines(np.moveaxis(found, axis, -1), np.moveaxis(block, axis, -1))
    return found


def sort_block(block: Array, axis: int) -> None:
    """Sort a block along an axis in place; equal elements stay in their order.

    Without memory for a copy, unless there are zeros or NaN to put in order again.
    """
    kind = _sure_kind(block)
    if devices.on_device(block) or (kind is None and not equal_is_same(block)):
        block[...] = sorted_values(block, axis)
    else:
        block.sort(axis=axis, kind=kind)


def _sure_kind(block: Array) -> Any:
    """The fastest of NumPy's sorts that surely keeps equal elements in their order, or None.

    The stable ones do, and any where equal elements have equal bits.
    """
    kind = block.dtype.kind
    if devices.on_device(block) or isinstance(block, Hollow):
        return "stable"
    if kind in "biu" and block.dtype.itemsize <= 2:
        return "stable"  # which counts the digits of small integers
    if kind in _PLAIN or (kind == "c" and equal_is_same(block)):
        return "quicksort"
    if kind == "f" and block.size > _SHORT:
        return faults.sort_kind(block.dtype)
    return "stable"


def _restore(found: Array, block: Array) -> None:
    """Put zeros and NaN into the order in which they are in the block."""
    if not found.size:
        return
    if found[-1] != found[-1]:
        lost = np.isnan(block)
        found[found.size - np.count_nonzero(lost) :] = block[lost]
    zero = found.dtype.type(0)
    first, stop = np.searchsorted(found, zero), np.searchsorted(found, zero, side="right")
    if first < stop and _has_negative_zero(block):
        found[first:stop] = block[block == 0]


def equal_is_same(block: Array) -> bool:
    """Whether real or complex numbers that are equal have equal bits."""
    parts = np.ascontiguousarray(block).view(block.real.dtype) if block.dtype.kind == "c" else block
    return not (np.isnan(parts.max(initial=0)) or _has_negative_zero(parts))


def _has_negative_zero(block: Array) -> bool:
    if block.dtype.itemsize > 8:
        return bool(_negative_zeros(block).any())
    bits = block.view(f"i{block.dtype.itemsize}")  # of these it is the least
    return bool(bits.min(initial=0) == np.iinfo(bits.dtype).min)


def _negative_zeros(block: Array) -> Array:
    """A mask of -0.0, of which vectorized sorts make 0.0."""
    if block.dtype.itemsize > 8:
        signed: Array = (block == 0) & np.signbit(block)
        return signed
    bits = block.view(f"i{block.dtype.itemsize}")
    least: Array = bits == np.iinfo(bits.dtype).min
    return least


def _restore_lines(found: Array, block: Array) -> None:
    """The same for lines along the last axis: lines with zeros or NaN are sorted again, stably."""
    wrong = np.isnan(found[..., -1]) | _negative_zeros(block).any(axis=-1)
    if wrong.any():
        found[wrong] = np.sort(block[wrong], axis=-1, kind="stable")


def stable_order(block: Array, axis: int = -1) -> Array:
    """The indices that sort a block along an axis; equal elements stay in their order."""
    if devices.on_device(block):
        return device_sorts.order_of(block, axis)
    found = packed_order(block, axis)
    return np.argsort(block, axis=axis, kind="stable") if found is None else found


def labels_in_order(keys: Array, labels: Array) -> Array:
    """Ascending labels of the keys of a block of the host, as :func:`stable_order` orders these."""
    found = packed_labels(keys, labels)
    return labels[np.argsort(keys, kind="stable")] if found is None else found


def merging_order(keys: Array) -> Array:
    """As :func:`stable_order`, for a few sorted runs one after the other."""
    return np.argsort(keys, kind="stable")


def merged(keys: Array) -> Array:
    """A few sorted runs one after the other, merged in place."""
    if devices.on_device(keys):
        return np.sort(keys, kind="stable")
    keys.sort(kind="stable")
    return keys


def position(keys: Array, values: Array, side: Literal["left", "right"]) -> Array:
    """``searchsorted`` in sorted keys of host values; the result is on the host."""
    if not devices.on_device(keys):
        return np.searchsorted(keys, values, side)
    if keys.dtype.kind == "c" and bool(np.isnan(keys[-1:]).any() or np.isnan(values).any()):
        # CuPy's search does not know NumPy's order of complex numbers with NaN.
        return np.searchsorted(devices.to_host(keys), devices.to_host(values), side)
    found = np.searchsorted(keys, devices.module_of(keys).asarray(values), side)
    return devices.to_host(found)


def is_nan(values: Array) -> Array:
    """A mask of NaN and NaT; of any data type."""
    if values.dtype.kind in "fcmM":
        return np.isnan(values)
    return np.zeros_like(values, bool)
