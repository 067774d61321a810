"""Roots of unity: the factors between the two transforms of the four steps."""

from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from distarray.typing import Array

__all__ = ["Twiddles", "progression", "roots"]

#: Roots in a row; each root is the product of its row's first root and a root of the first row.
_FINE = 64


def roots(numerators: Array, n: int, dtype: np.dtype[Any]) -> Array:
    """Compute ``exp(2j * pi * numerators / n)``, 0 <= numerators < n, to the last bits.

    Parameters
    ----------
    numerators : array of int
        The numerators, on the device of the result.
    n : int
        The order of the roots.
    dtype : dtype
        The data type of the result; complex.
    """
    real = np.longdouble if dtype.char == "G" else np.float64
    # Angles from -pi to pi have half the error of angles from 0 to 2 pi.
    centred: Array = np.where(2 * numerators > n, numerators - n, numerators).astype(real)
    centred *= 2 * np.arccos(real(-1)) / real(n)
    found: Array = np.empty_like(centred, dtype=dtype)
    found.real[...] = np.cos(centred)
    found.imag[...] = np.sin(centred)
    return found


def progression(step: int, count: int, n: int, dtype: np.dtype[Any], xp: ModuleType) -> Array:
    """Compute ``exp(2j * pi * step * i / n)`` for i below `count`: evenly spaced angles.

    A few roots are computed directly; the others are products of two of these roots.
    """
    step %= n
    fine = roots(xp.arange(_FINE) * step % n, n, dtype)
    coarse = roots(xp.arange(-(-count // _FINE)) * (step * _FINE % n) % n, n, dtype)
    return (coarse[:, None] * fine).reshape(-1)[:count]


class Twiddles:
    """Factors ``exp(sign * 2j * pi * row * column / n)`` of consecutive rows.

    Each factor is the product of the factor of the tile's first row, and of a factor for the
    distance from that row, which is the same for all tiles. So the factors of a tile cost one row
    and a product.

    Parameters
    ----------
    n : int
        The length of the transform, at least rows times columns.
    columns : int
        The number of columns.
    height : int
        The most rows in a tile.
    sign : int
        -1 for a transform, 1 for its inverse.
    dtype : dtype
        The data type of the factors; complex.
    xp : module
        The array module of the blocks.
    """

    def __init__(
        self, n: int, columns: int, height: int, sign: int, dtype: np.dtype[Any], xp: ModuleType
    ) -> None:
        self._n, self._columns, self._sign, self._dtype = n, columns, sign, dtype
        self._xp = xp
        table = _table if xp is np else _table.__wrapped__
        self._within = table(n, columns, height, sign, dtype, xp)

    def multiply(self, tile: Array, row: int) -> None:
        """Multiply a tile by its factors in place; `row` is the number of its first row."""
        tile *= self._within[: tile.shape[-2]]
        tile *= progression(self._sign * row, self._columns, self._n, self._dtype, self._xp)


@lru_cache(maxsize=8)
def _table(
    n: int, columns: int, height: int, sign: int, dtype: np.dtype[Any], xp: ModuleType
) -> Array:
    """Compute the factors of the first rows, which a program uses again and again."""
    found = roots(xp.arange(height)[:, None] * xp.arange(columns) % n, n, dtype)
    return np.conjugate(found) if sign < 0 else found
