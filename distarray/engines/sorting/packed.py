"""A stable argsort by one sort of 64-bit integers, which takes NumPy a fraction of the time.

A key is mapped to an unsigned integer of the same order, and its position goes into the low bits.
Where key and position need more than 64 bits together, the key's low bits are dropped, and the few
elements that this makes equal are put right afterwards.
"""

import numpy as np

from distarray.typing import Array

__all__ = ["packed_order"]

#: Shorter blocks are sorted as they are.
_SHORT = 4096
_TOP = np.uint64(1 << 63)


def packed_order(block: Array, axis: int) -> Array | None:
    """The stable argsort of a block, or None where this way does not serve."""
    dtype = block.dtype
    if block.size < _SHORT or dtype.kind not in "biufmM" or not 0 < dtype.itemsize <= 8:
        return None
    if not dtype.isnative or (dtype.itemsize < 4 and dtype.kind != "f"):
        return None  # small integers: NumPy's stable sort counts digits
    last = np.ascontiguousarray(np.moveaxis(block, axis, -1))  # for several passes over it
    lines = last.reshape(-1, last.shape[-1])
    if block.ndim == 1 and (block[1:] >= block[:-1]).all():
        return np.arange(block.size)
    order = _order_lines(lines)
    if order is None:
        return None
    return np.ascontiguousarray(np.moveaxis(order.reshape(last.shape), -1, axis))


def _order_lines(lines: Array) -> Array | None:
    """The stable argsort along the second of two axes."""
    length = lines.shape[1]
    keys = _as_unsigned(lines)
    keys -= keys.min()
    bits = (length - 1).bit_length()
    spare = 64 - bits - int(keys.max()).bit_length()
    if spare < 0:
        exact = keys.copy()
        keys >>= np.uint64(-spare)
    keys <<= np.uint64(bits)
    keys |= np.arange(length, dtype=np.uint64)
    keys.sort(axis=1)
    order = (keys & np.uint64((1 << bits) - 1)).view(np.int64)
    if spare < 0:
        keys >>= np.uint64(bits)
        if not _put_right(order, keys, exact):
            return None
    return order.astype(np.intp, copy=False)


def _as_unsigned(block: Array) -> Array:
    """Unsigned 64-bit integers in the order of the block's elements; NaN and NaT last."""
    kind, size = block.dtype.kind, block.dtype.itemsize
    if kind in "bu":
        return block.astype(np.uint64)
    if kind == "i":
        return block.astype(np.int64).view(np.uint64) ^ _TOP
    if kind in "mM":
        return (block.view(np.int64).view(np.uint64) ^ _TOP) - np.uint64(1)
    block = block + block.dtype.type(0)  # -0.0 becomes 0.0
    bits = block.view(f"i{size}")
    # The order of negative numbers is that of their bits, reversed.
    bits = bits ^ ((bits >> (8 * size - 1)) & np.iinfo(bits.dtype).max)
    keys: Array = bits.astype(np.int64).view(np.uint64) ^ _TOP
    keys[np.isnan(block)] = np.iinfo(np.uint64).max
    return keys


def _put_right(order: Array, cut: Array, exact: Array) -> bool:
    """Sort the elements whose shortened keys are equal; False if there are too many of them."""
    same = np.zeros(cut.shape, bool)
    np.equal(cut[:, 1:], cut[:, :-1], out=same[:, 1:])
    doubtful = np.flatnonzero(same)
    if not doubtful.size:
        return True
    if doubtful.size > order.size // 8:
        return False
    places = np.union1d(doubtful - 1, doubtful)
    flat = order.reshape(-1)
    line, found = places // order.shape[1], flat[places]
    # Runs of equal shortened keys ascend: sorting all by their keys leaves each run in its place.
    keys = exact.reshape(-1)[line * order.shape[1] + found]
    flat[places] = found[np.lexsort((found, keys, line))]
    return True
