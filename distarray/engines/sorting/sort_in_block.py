"""Sorting one rank's block by NumPy's fastest sort for the data type, with a unique result.

NumPy's vectorized sorts do not keep the signs of zeros and NaN. Here equal elements always keep
their order, so that the same array gives the same bits for every distribution. This costs a scan
for zeros and NaN, not a stable sort.
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
#: Up to this many numbers, a stable sort takes less time than a scan for zeros.
_SHORT = 256


def sorted_values(block: Array, axis: int = -1) -> Array:
    """Return a copy of a block sorted along an axis; equal elements keep their order."""
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
    """Sort a block along an axis in place; equal elements keep their order.

    No memory for a copy is needed, unless zeros or NaN must be restored to their order.
    """
    kind = _sure_kind(block)
    if devices.on_device(block) or (kind is None and not equal_is_same(block)):
        block[...] = sorted_values(block, axis)
    else:
        block.sort(axis=axis, kind=kind)


def _sure_kind(block: Array) -> Any:
    """Return NumPy's fastest sort that certainly keeps equal elements in order, or None.

    The stable sorts do, and any sort does if equal elements have equal bits.
    """
    kind = block.dtype.kind
    if devices.on_device(block) or isinstance(block, Hollow):
        return "stable"
    if kind in "biu" and block.dtype.itemsize <= 2:
        return "stable"  # counts the digits of small integers
    if kind in _PLAIN or (kind == "c" and equal_is_same(block)):
        return "quicksort"
    if kind == "f" and block.size > _SHORT:
        return faults.sort_kind(block.dtype)
    return "stable"


def _restore(found: Array, block: Array) -> None:
    """Restore the order that zeros and NaN have in the block."""
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
    """Return True if real or complex numbers that are equal have equal bits."""
    parts = np.ascontiguousarray(block).view(block.real.dtype) if block.dtype.kind == "c" else block
    return not (np.isnan(parts.max(initial=0)) or _has_negative_zero(parts))


def _has_negative_zero(block: Array) -> bool:
    if block.dtype.itemsize > 8:
        return bool(_negative_zeros(block).any())
    bits = block.view(f"i{block.dtype.itemsize}")  # -0.0 is the least of these
    return bool(bits.min(initial=0) == np.iinfo(bits.dtype).min)


def _negative_zeros(block: Array) -> Array:
    """Return a mask of -0.0, which vectorized sorts turn into 0.0."""
    if block.dtype.itemsize > 8:
        signed: Array = (block == 0) & np.signbit(block)
        return signed
    bits = block.view(f"i{block.dtype.itemsize}")
    least: Array = bits == np.iinfo(bits.dtype).min
    return least


def _restore_lines(found: Array, block: Array) -> None:
    """Restore lines along the last axis: sort lines with zeros or NaN again, stably."""
    wrong = np.isnan(found[..., -1]) | _negative_zeros(block).any(axis=-1)
    if wrong.any():
        found[wrong] = np.sort(block[wrong], axis=-1, kind="stable")


def stable_order(block: Array, axis: int = -1) -> Array:
    """Return the indices that sort a block along an axis; equal elements keep their order."""
    if devices.on_device(block):
        return device_sorts.order_of(block, axis)
    found = packed_order(block, axis)
    return np.argsort(block, axis=axis, kind="stable") if found is None else found


def labels_in_order(keys: Array, labels: Array) -> Array:
    """Reorder ascending labels of a host block's keys, in the keys' :func:`stable_order`."""
    found = packed_labels(keys, labels)
    return labels[np.argsort(keys, kind="stable")] if found is None else found


def merging_order(keys: Array) -> Array:
    """Return the stable sorting order of a few concatenated sorted runs."""
    return np.argsort(keys, kind="stable")


def merged(keys: Array) -> Array:
    """Merge a few concatenated sorted runs in place."""
    if devices.on_device(keys):
        return np.sort(keys, kind="stable")
    keys.sort(kind="stable")
    return keys


def position(keys: Array, values: Array, side: Literal["left", "right"]) -> Array:
    """Search sorted keys for host values, as ``searchsorted``; the result is on the host."""
    if not devices.on_device(keys):
        return np.searchsorted(keys, values, side)
    if keys.dtype.kind == "c" and bool(np.isnan(keys[-1:]).any() or np.isnan(values).any()):
        # CuPy's search does not have NumPy's order of complex numbers with NaN.
        return np.searchsorted(devices.to_host(keys), devices.to_host(values), side)
    found = np.searchsorted(keys, devices.module_of(keys).asarray(values), side)
    return devices.to_host(found)


def is_nan(values: Array) -> Array:
    """Return a mask of NaN and NaT, for any data type."""
    if values.dtype.kind in "fcmM":
        return np.isnan(values)
    return np.zeros_like(values, bool)
