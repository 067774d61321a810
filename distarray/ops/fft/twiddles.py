"""Roots of unity: the factors between the two halves of a transform in steps."""

from typing import Any

import numpy as np

__all__ = ["Twiddles", "roots"]

Array = Any


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
    angles = centred * (2 * np.arccos(real(-1)) / real(n))
    found = np.empty_like(angles, dtype=dtype)
    found.real[...] = np.cos(angles)
    found.imag[...] = np.sin(angles)
    return found


class Twiddles:
    """The factors ``exp(sign * 2j * pi * row * column / n)`` of consecutive rows.

    Each is made of two: one of the first row of a tile, one of the distance from it, which is the
    same for all tiles. So a tile of them costs one row of sines and cosines, and a product.

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
        self._n, self._sign, self._dtype = n, sign, dtype
        self._columns = xp.arange(columns)
        self._within = self._roots(xp.arange(height)[:, None] * self._columns % n)

    def _roots(self, numerators: Array) -> Array:
        found = roots(numerators, self._n, self._dtype)
        return np.conjugate(found) if self._sign < 0 else found

    def multiply(self, tile: Array, row: int) -> None:
        """Multiply rows from number `row` on by their factors, in place."""
        tile *= self._within[: tile.shape[-2]]
        tile *= self._roots(row * self._columns)
