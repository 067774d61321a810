"""Mask on one block: reading, writing, and the positions of the selected elements.

NumPy branches on every element of a mask. Finding the positions first avoids these branches, and is
several times as fast if the mask is neither empty nor full. Blocks that are not contiguous (the
interior of a field, for example) are processed in tiles that fit the cache.
"""

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from distarray.array.portable import take
from distarray.comm.devices import on_device
from distarray.typing import Array

__all__ = ["from_linear", "is_set", "key_of", "places", "selected", "set_selected"]

#: Number of elements of a tile.
_TILE = 1 << 15


def key_of(mask: Array, first: int) -> tuple[Any, ...]:
    """Return the key of a mask over the dimensions from `first` on."""
    return (*[slice(None)] * first, mask)


def selected(block: Array, first: int, mask: Array) -> Array:
    """Return ``block[..., mask, ...]`` with the mask over the dimensions from `first` on."""
    if block.flags.c_contiguous:
        lead, rest = block.shape[:first], block.shape[first + mask.ndim :]
        lined = block.reshape(*lead, mask.size, *rest)
        positions = np.flatnonzero(mask)
        return lined[key_of(positions, first)] if first else take(lined, positions, 0)
    if not _in_tiles(block, mask):
        found: Array = block[key_of(mask, first)]
        return found
    result = np.empty(np.count_nonzero(mask), block.dtype)
    done = 0
    for tile in _tiles(block.shape):
        positions = np.flatnonzero(mask[tile])
        space = result[done : done + len(positions)]
        take(np.ascontiguousarray(block[tile]).reshape(-1), positions, 0, space)
        done += len(positions)
    return result


def set_selected(block: Array, first: int, mask: Array, values: Array) -> None:
    """Assign ``block[..., mask, ...] = values``; the mask's dimension is the first of `values`."""
    if block.flags.c_contiguous and not first:
        lined = block.reshape(mask.size, *block.shape[mask.ndim :])
        lined[np.flatnonzero(mask)] = values
    elif _in_tiles(block, mask) and _is_separate(block) and not np.may_share_memory(block, values):
        _set_in_tiles(block, mask, values)
    else:
        block[key_of(mask, first)] = np.moveaxis(values, 0, first)


def _set_in_tiles(block: Array, mask: Array, values: Array) -> None:
    done, same = 0, len(values) == 1
    for tile in _tiles(block.shape):
        positions = np.flatnonzero(mask[tile])
        if not len(positions):
            continue
        part = np.array(block[tile], order="C")
        written = values if same else values[done : done + len(positions)]
        part.reshape(-1)[positions] = written
        block[tile] = part
        done += len(positions)


def _is_separate(block: Array) -> bool:
    """Return True if no two elements of a block share memory, as those of windows do."""
    span = block.itemsize
    for step, extent in sorted(zip(map(abs, block.strides), block.shape, strict=True)):
        if extent > 1 and step < span:
            return False
        span += step * (extent - 1)
    return True


def _in_tiles(block: Array, mask: Array) -> bool:
    return not on_device(block) and block.ndim == mask.ndim > 0


def _tiles(shape: Sequence[int]) -> Iterator[slice]:
    """Yield slices of the first dimension, of about `_TILE` elements each."""
    step = max(1, _TILE // max(1, prod(shape[1:])))
    for start in range(0, shape[0], step):
        yield slice(start, start + step)


def is_set(block: Array) -> Array:
    """Return a mask of the elements that :func:`numpy.nonzero` selects."""
    if block.dtype.kind in "biufc":
        return block.astype(bool, copy=False)
    mask = np.zeros_like(block, bool)  # dates and strings have their own zero values
    mask[np.nonzero(block)] = True
    return mask


def places(mask: Array) -> tuple[Array, ...]:
    """Return ``np.nonzero`` of a mask of at least one dimension."""
    return from_linear(np.flatnonzero(mask), mask.shape)


def from_linear(positions: Array, shape: Sequence[int]) -> tuple[Array, ...]:
    """Return ``np.unravel_index`` of positions that are known to be within bounds."""
    found = []
    for extent in shape[:0:-1]:
        line = positions // extent
        found.append(positions - line * extent)
        positions = line
    return (positions, *reversed(found))
