"""Sorts of blocks on a device, in NumPy's order.

CuPy's sorts of one line put complex numbers with NaN where NumPy puts them, those of several lines
anywhere among the others.
"""

import numpy as np

from distarray.comm import devices
from distarray.typing import Array

__all__ = ["in_order", "is_misplaced", "order_of"]


def is_misplaced(block: Array) -> bool:
    """Whether a block is one whose lines CuPy does not sort as NumPy does."""
    several = block.ndim > 1 and block.dtype.kind == "c" and devices.on_device(block)
    return several and bool(np.isnan(block).any())


def in_order(block: Array, axis: int) -> Array:
    """A copy sorted along an axis; equal elements stay in their order."""
    if is_misplaced(block):
        return np.take_along_axis(block, _order_by_parts(block, axis), axis)
    return np.sort(block, axis=axis, kind="stable")


def order_of(block: Array, axis: int) -> Array:
    """The indices that sort a block along an axis; equal elements stay in their order."""
    if is_misplaced(block):
        return _order_by_parts(block, axis)
    return np.argsort(block, axis=axis, kind="stable")


def _order_by_parts(block: Array, axis: int) -> Array:
    """The order of complex numbers: by which parts are NaN, by the real and the imaginary part."""
    lost = np.isnan(block.real) * 2 + np.isnan(block.imag)
    order = np.argsort(block.imag, axis=axis, kind="stable")
    for key in (block.real, lost):
        found = np.argsort(np.take_along_axis(key, order, axis), axis=axis, kind="stable")
        order = np.take_along_axis(order, found, axis)
    return order
