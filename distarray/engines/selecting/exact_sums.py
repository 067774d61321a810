"""Exact sums without rounding, independent of the distribution of the addends over the ranks."""

import numpy as np

from distarray.typing import Array

__all__ = ["exact_sum"]

#: Exponent of the unit 2**-UNIT of sums, which are integers; every float64 is a multiple of it.
UNIT = 1126
#: Bits of the lower half of a significand, and number of halves with an exact sum in float64.
HALF, MOST = 27, 1 << 26


def exact_sum(values: Array) -> int:
    """Return the exact sum of finite nonnegative float64 numbers, in units of ``2**-UNIT``."""
    total = 0
    for start in range(0, values.size, MOST):
        total += _exact_sum(values[start : start + MOST])
    return total


def _exact_sum(values: Array) -> int:
    significands, exponents = np.frexp(values)
    whole = np.ldexp(significands, 53).astype(np.int64)
    lowest = int(exponents.min())
    exponents = exponents - lowest
    lower = np.bincount(exponents, whole & ((1 << HALF) - 1))
    upper = np.bincount(exponents, whole >> HALF)
    total = 0
    for place in np.flatnonzero(lower + upper).tolist():
        units = (int(upper[place]) << HALF) + int(lower[place])
        total += units << (place + lowest - 53 + UNIT)
    return total
