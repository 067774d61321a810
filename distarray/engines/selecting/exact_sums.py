"""Sums without rounding, which do not depend on the ranks that hold the addends."""

import numpy as np

from distarray.typing import Array

__all__ = ["exact_sum"]

#: Sums are integers in units of 2**-UNIT, of which every float64 is a multiple.
UNIT = 1126
#: Bits of the lower halves of significands, and how many halves have an exact sum in float64.
HALF, MOST = 27, 1 << 26


def exact_sum(values: Array) -> int:
    """The sum of finite float64 numbers, not negative, in units of ``2**-UNIT``."""
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
