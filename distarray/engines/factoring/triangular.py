"""Small triangular systems: by BLAS if it can be called, else by halves and products."""

import numpy as np

from distarray.engines.factoring.lapack import solve_by_upper
from distarray.typing import Array

__all__ = ["inverse_of_lower", "solve_upper"]


#: Triangles of up to this many rows are not halved further.
_LEAF = 32


def inverse_of_lower(lower: Array) -> Array:
    """Compute the inverse of a lower triangular matrix.

    Parameters
    ----------
    lower : array, shape (n, n)
        The matrix; its elements above the diagonal are zero.
    """
    size = len(lower)
    if size <= _LEAF:
        return np.linalg.inv(lower)
    half = size // 2
    inverse = np.zeros_like(lower)
    inverse[:half, :half] = first = inverse_of_lower(lower[:half, :half])
    inverse[half:, half:] = second = inverse_of_lower(lower[half:, half:])
    inverse[half:, :half] = -(second @ (lower[half:, :half] @ first))
    return inverse


def solve_upper(upper: Array, sides: Array) -> Array:
    """Solve an upper triangular system, with backward stability.

    Parameters
    ----------
    upper : array, shape (n, n)
        The matrix; elements below the diagonal are not read.
    sides : array, shape (n, r)
        Right-hand sides.
    """
    size = len(upper)
    found = sides.copy()
    if solve_by_upper(upper, found):
        return found
    if size <= _LEAF:
        return np.linalg.solve(np.triu(upper), sides)
    half = size // 2
    below = solve_upper(upper[half:, half:], sides[half:])
    above = solve_upper(upper[:half, :half], sides[:half] - upper[:half, half:] @ below)
    return np.concatenate([above, below])
