"""Integers within bounds, with NumPy's bits, but many at once and in place.

From words of 8, 16, 32 or 64 bits NumPy takes the upper half of their product with the number of
possible values (D. Lemire, *Fast random integer generation in an interval*, ACM Trans. Model.
Comput. Simul. 29, 2019). It rejects a word if the lower half is one of the few that would make some
values more frequent than others.
"""

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from distarray.typing import Array, DTypeLike

__all__ = ["drawing_bounded"]


def drawing_bounded(
    bounds: Sequence[Any], dtype: DTypeLike, endpoint: bool
) -> Callable[[np.random.Generator, Array], None] | None:
    """A function that draws integers into a contiguous array; None where only NumPy can.

    Parameters
    ----------
    bounds : sequence of int
        The lowest and the highest.
    dtype, endpoint
        As in :meth:`numpy.random.Generator.integers`; checked.

    Returns
    -------
    callable or None
        ``draw(generator, array)``; the bits are NumPy's.
    """
    dtype = np.dtype(dtype)
    if not dtype.isnative or sys.byteorder != "little":
        return None
    try:
        low, high = (operator.index(bound) for bound in bounds)
    except TypeError:  # NumPy accepts floats that are whole numbers
        return None
    count = high - low + bool(endpoint)
    if dtype.kind == "b":
        return _draw_bits if count == 2 else None
    size = 4 if dtype.itemsize == 8 and count <= 1 << 32 else dtype.itemsize
    # Products of 64-bit words have 128 bits, which only NumPy's loop has.
    if count < 2 or (size == 8 and count & (count - 1)):
        return None
    first = dtype.type(low)

    def draw(generator: np.random.Generator, array: Array) -> None:
        flat, done = array.reshape(-1), 0
        while done < flat.size:
            words = _accepted(generator, flat.size - done, count, size)
            part = flat[done : done + len(words)]
            _scale(words[: len(part)], count, part)
            done += len(part)
        if low:
            flat += first

    return draw


def _words(generator: np.random.Generator, count: int, size: int) -> Array:
    """At least so many words of a size, in NumPy's order: the lowest of 64 bits first."""
    raw: Any = generator.bit_generator
    words: Array = raw.random_raw(-(-count * size // 8))
    return words.view(f"u{size}")


def _accepted(generator: np.random.Generator, wanted: int, count: int, size: int) -> Array:
    """About so many words, without those that NumPy rejects."""
    room = 1 << 8 * size
    refused = room % count
    if not refused:
        return _words(generator, wanted, size)
    expected = wanted * refused / (room - refused)
    spare = 3 * math.sqrt(expected) + expected  # rarely too few
    words = _words(generator, wanted + int(spare), size)
    lower = words * words.dtype.type(count)
    return words if lower.min() >= refused else words[lower >= refused]


def _scale(words: Array, count: int, into: Array) -> None:
    """The upper halves of the words' products with `count`, cast to integers of their size."""
    bits = 8 * words.dtype.itemsize
    if not count & (count - 1):
        shift = bits + 1 - count.bit_length()
        into[...] = words >> words.dtype.type(shift) if shift else words
    else:
        wide = np.dtype(f"u{bits // 4}")
        direct = into.itemsize == wide.itemsize
        products = into.view(wide) if direct else np.empty(into.shape, wide)
        np.multiply(words, wide.type(count), out=products)
        np.right_shift(products, wide.type(bits), out=products)
        if not direct:
            into[...] = products


def _draw_bits(generator: np.random.Generator, array: Array) -> None:
    """Draw truth values into an array."""
    words = _words(generator, -(-array.size // 8), 1)
    bits = np.unpackbits(words, count=array.size, bitorder="little")
    array[...] = bits.view(bool).reshape(array.shape)
