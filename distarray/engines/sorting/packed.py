"""Stable argsort by one sort of 64-bit integers, in a fraction of the time of NumPy's.

A key is mapped to an unsigned integer of the same order, and its position is stored in the low
bits. If key and position together need more than 64 bits, the key's low bits are dropped. The few
elements that then compare equal are sorted again afterwards.
"""

import numpy as np

from distarray.engines.tiles import TILE
from distarray.typing import Array

__all__ = ["packed_labels", "packed_order"]

#: Shorter blocks are sorted directly.
_SHORT = 4096
_TOP = np.uint64(1 << 63)


def packed_order(block: Array, axis: int) -> Array | None:
    """Return the stable argsort of a block, or None if this method does not apply."""
    if not _serves(block):
        return None
    last = np.ascontiguousarray(np.moveaxis(block, axis, -1))  # contiguous for several passes
    lines = last.reshape(-1, last.shape[-1])
    if block.ndim == 1 and (block[1:] >= block[:-1]).all():
        return np.arange(block.size)
    order = _order_lines(lines, np.arange(lines.shape[1]))
    if order is None:
        return None
    return np.ascontiguousarray(np.moveaxis(order.reshape(last.shape), -1, axis))


def packed_labels(block: Array, labels: Array) -> Array | None:
    """Sort labels by a 1-d block's elements, or return None if this method does not apply.

    Parameters
    ----------
    block : array
        The elements, in C order.
    labels : array of intp
        The labels, ascending and not negative. Labels of equal elements keep their order.
    """
    if not _serves(block):
        return None
    if (block[1:] >= block[:-1]).all():
        return labels
    order = _order_lines(block.reshape(1, -1), labels)
    return None if order is None else order[0]


def _serves(block: Array) -> bool:
    dtype = block.dtype
    if block.size < _SHORT or dtype.kind not in "biufmM" or not 0 < dtype.itemsize <= 8:
        return False
    # Small integers: NumPy's stable sort counts digits.
    return dtype.isnative and (dtype.itemsize >= 4 or dtype.kind == "f")


def _order_lines(lines: Array, labels: Array) -> Array | None:
    """Sort labels by each line's elements; `labels` are the same for all lines."""
    keys, tiles = np.empty(lines.shape, np.uint64), _tiles(lines.shape)
    least, most = [], []
    for tile in tiles:
        part = _as_unsigned(lines[tile])
        keys[tile] = part
        least.append(part.min())
        most.append(part.max())
    bits = int(labels[-1]).bit_length()
    spare = 64 - bits - int(max(most) - min(least)).bit_length()
    for tile in tiles:
        part = keys[tile]
        part -= min(least)
        if spare < 0:
            part >>= np.uint64(-spare)
        part <<= np.uint64(bits)
        part |= labels[tile[1]].view(np.uint64)
    keys.sort(axis=1)
    mask = np.uint64((1 << bits) - 1)
    doubtful = _doubtful(keys, mask) if spare < 0 else None
    keys &= mask
    order = keys.view(np.int64)
    if doubtful is not None and not _put_right(order, doubtful, lines, labels):
        return None
    return order.astype(np.intp, copy=False)


def _tiles(shape: tuple[int, ...]) -> list[tuple[slice, slice]]:
    """Return keys of tiles that fit in the cache: several lines, or part of a line, in C order."""
    lines, length = shape
    height, width = max(1, TILE // length), min(length, TILE)
    return [
        (slice(top, min(top + height, lines)), slice(left, min(left + width, length)))
        for top in range(0, lines, height)
        for left in range(0, length, width)
    ]


def _as_unsigned(block: Array) -> Array:
    """Map elements to unsigned 64-bit integers of the same order; NaN and NaT are last."""
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
    lost = np.isnan(block)
    if lost.any():
        keys[lost] = np.iinfo(np.uint64).max
    return keys


def _doubtful(keys: Array, mask: np.uint64) -> Array:
    """Return the flat positions where sorted keys equal the previous key except for `mask`."""
    length = keys.shape[1]
    found = [np.empty(0, np.intp)]
    for rows, columns in _tiles((len(keys), length - 1)) if length > 1 else ():
        after = slice(columns.start + 1, columns.stop + 1)
        same = keys[rows, columns] ^ keys[rows, after] <= mask
        if same.any():
            line, column = np.nonzero(same)
            found.append((line + rows.start) * length + column + after.start)
    return np.concatenate(found)


def _put_right(order: Array, doubtful: Array, lines: Array, labels: Array) -> bool:
    """Sort the elements whose shortened keys are equal; return False if there are too many."""
    if not doubtful.size:
        return True
    if doubtful.size > order.size // 8:
        return False
    places = np.union1d(doubtful - 1, doubtful)
    flat, length = order.reshape(-1), order.shape[1]
    line, found = places // length, flat[places]
    keys = _as_unsigned(lines.reshape(-1)[line * length + np.searchsorted(labels, found)])
    # Runs of equal shortened keys ascend: sorting all by their full keys keeps each run in its
    # range.
    flat[places] = found[np.lexsort((found, keys, line))]
    return True
