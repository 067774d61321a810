"""Roots of unity: the factors between the two halves of a transform in steps."""

from functools import lru_cache
from typing import Any

import numpy as np

from distarray.typing import Array

__all__ = ["Twiddles", "progression", "roots"]

#: Roots that are computed one by one for each `_FINE` that are products.
_FINE = 64


def roots(numerators: Array, n: int, dtype: np.dtype[Any]) -> Array:
    """``exp(2j * pi * numerators / n)`` of numerators from 0 to n - 1, to the last bits.

    Parameters
    ----------
    numerators : array of int
        Where the result is to be.
    n : int
        The order of the roots.
    dtype : dtype
        Complex; of the result.
    """
    real = np.longdouble if dtype.char == "G" else np.float64
    # Angles from -pi to pi are half as wrong as those from 0 to 2 pi.
    centred = np.where(2 * numerators > n, numerators - n, numerators).astype(real)
    centred *= 2 * np.arccos(real(-1)) / real(n)
    found = np.empty_like(centred, dtype=dtype)
    found.real[...] = np.cos(centred)
    found.imag[...] = np.sin(centred)
    return found


def progression(step: int, count: int, n: int, dtype: np.dtype[Any], xp: Any) -> Array:
    """``exp(2j * pi * step * i / n)`` for i below `count`: evenly spaced angles.

    Few are computed as such, and the rest are products of two of them.
    """
    step %= n
    fine = roots(xp.arange(_FINE) * step % n, n, dtype)
    coarse = roots(xp.arange(-(-count // _FINE)) * (step * _FINE % n) % n, n, dtype)
    return (coarse[:, None] * fine).reshape(-1)[:count]


class Twiddles:
    """The factors ``exp(sign * 2j * pi * row * column / n)`` of consecutive rows.

    Each is made of two: one of the first row of a tile, and one of the distance from it, which is
    the same for all tiles. So a tile of them costs one row, and a product.

    Parameters
    ----------
    n : int
        The length that is transformed; rows times columns are less.
    columns : int
        Number of columns.
    height : int
        Rows in a tile, at most.
    sign : int
        -1 for a transform, 1 for its inverse.
    dtype : dtype
        Complex.
    xp : module
        Where they are to be.
    """

    def __init__(
        self, n: int, columns: int, height: int, sign: int, dtype: np.dtype[Any], xp: Any
    ) -> None:
        self._n, self._columns, self._sign, self._dtype = n, columns, sign, dtype
        self._xp = xp
        table = _table if xp is np else _table.__wrapped__
        self._within = table(n, columns, height, sign, dtype, xp)

    def multiply(self, tile: Array, row: int) -> None:
        """Multiply rows from number `row` on by their factors, in place."""
        tile *= self._within[: tile.shape[-2]]
        tile *= progression(self._sign * row, self._columns, self._n, self._dtype, self._xp)


@lru_cache(maxsize=8)
def _table(n: int, columns: int, height: int, sign: int, dtype: np.dtype[Any], xp: Any) -> Array:
    """The factors of the first rows; a program uses the same ones time and again."""
    found = roots(xp.arange(height)[:, None] * xp.arange(columns) % n, n, dtype)
    return np.conjugate(found) if sign < 0 else found
