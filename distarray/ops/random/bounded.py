"""Integers of a small range, as NumPy draws them, but many at once and into their place.

Of each 32 bits NumPy takes the upper half of their product with the number of possible values (D.
Lemire, *Fast random integer generation in an interval*, ACM Trans. Model. Comput. Simul. 29, 2019),
unless the lower half is one of the few that would make some values more frequent than others. Where
a tile has such a number, which is rare for small ranges, NumPy draws the tile.
"""

import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["drawing_bounded"]

Array = Any
#: If more of the 2**32 lower halves are refused, too many tiles would be drawn twice.
_MOST_REFUSED = 1 << 15
_HALF = np.uint64(32)
_KINDS = (np.int64, np.uint64, np.int32, np.uint32)


def drawing_bounded(
    bounds: Sequence[Any], dtype: Any, endpoint: bool
) -> Callable[[np.random.Generator, Array], None] | None:
    """What draws integers into a contiguous array; None where it would be no faster.

    Parameters
    ----------
    bounds : sequence of int
        The lowest, and the highest.
    dtype, endpoint
        As in :meth:`numpy.random.Generator.integers`, which has accepted them all.

    Returns
    -------
    callable or None
        ``draw(generator, array)``; the bits are NumPy's.
    """
    dtype = np.dtype(dtype)
    if dtype not in _KINDS or not dtype.isnative or sys.byteorder != "little":
        return None
    try:
        low, high = (operator.index(bound) for bound in bounds)
    except TypeError:  # NumPy takes floats that are whole numbers
        return None
    count = high - low + bool(endpoint)
    if not 1 < count < 1 << 32 or (1 << 32) % count > _MOST_REFUSED:
        return None
    factor, refused = np.uint32(count), np.uint32((1 << 32) % count)

    def draw(generator: np.random.Generator, array: Array) -> None:
        stream = generator.bit_generator
        before = stream.state if refused else None
        words: Any = stream.random_raw(-(-array.size // 2))
        bits = words.view(np.uint32)[: array.size]
        if refused and ((bits * factor) < refused).any():
            stream.state = before  # type: ignore[assignment]
            array[...] = generator.integers(low, high, array.shape, dtype, endpoint)
            return
        flat = array.reshape(-1)
        products = flat.view(np.uint64) if dtype.itemsize == 8 else np.empty(flat.size, np.uint64)
        np.multiply(bits, np.uint64(count), out=products)
        np.right_shift(products, _HALF, out=products)
        if dtype.itemsize < 8:
            flat[...] = products
        if low:
            np.add(flat, dtype.type(low), out=flat)

    return draw
