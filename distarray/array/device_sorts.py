"""Sorts of blocks on a device, in NumPy's order.

CuPy places complex numbers with NaN as NumPy does in sorts of a single line. In sorts of several
lines it places them anywhere among the other numbers.
"""

import numpy as np

from distarray.comm import devices
from distarray.typing import Array

__all__ = ["in_order", "is_misplaced", "order_of"]


def is_misplaced(block: Array) -> bool:
    """Return True if CuPy sorts the lines of a block otherwise than NumPy."""
    several = block.ndim > 1 and block.dtype.kind == "c" and devices.on_device(block)
    return several and bool(np.isnan(block).any())


def in_order(block: Array, axis: int) -> Array:
    """Return a copy sorted along an axis; the sort is stable."""
    if is_misplaced(block):
        return np.take_along_axis(block, _order_by_parts(block, axis), axis)
    return np.sort(block, axis=axis, kind="stable")


def order_of(block: Array, axis: int) -> Array:
    """Return the indices that sort a block along an axis; the sort is stable."""
    if is_misplaced(block):
        return _order_by_parts(block, axis)
    return np.argsort(block, axis=axis, kind="stable")


def _order_by_parts(block: Array, axis: int) -> Array:
    """Return the order of complex numbers: by NaN parts, then real part, then imaginary part."""
    lost = np.isnan(block.real) * 2 + np.isnan(block.imag)
    order = np.argsort(block.imag, axis=axis, kind="stable")
    for key in (block.real, lost):
        found = np.argsort(np.take_along_axis(key, order, axis), axis=axis, kind="stable")
        order = np.take_along_axis(order, found, axis)
    return order
