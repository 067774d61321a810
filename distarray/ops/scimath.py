"""Functions whose results turn complex where real ones do not exist (`numpy.emath`)."""

from typing import Any

import numpy as np
from numpy.lib import scimath

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.typing import ArrayLike

__all__ = ["arccos", "arcsin", "arctanh", "log", "log10", "log2", "logn", "power", "sqrt"]

_TO_SINGLE = frozenset("fbhBHF")


def _complex_if(x: DistArray, outside: DistArray) -> DistArray:
    """Make `x` complex if any of its elements is outside of the function's real domain."""
    if x.dtype.kind == "c" or not bool(np.any(outside)):
        return x
    return x.astype(np.complex64 if x.dtype.char in _TO_SINGLE else np.complex128)


def _unless_negative(x: ArrayLike) -> DistArray:
    x = as_distarray(x)
    return x if x.dtype.kind == "c" else _complex_if(x, x < 0)


def _unless_beyond_one(x: ArrayLike) -> DistArray:
    x = as_distarray(x)
    return x if x.dtype.kind == "c" else _complex_if(x, abs(x) > 1)


@implements(scimath.sqrt)
def sqrt(x: ArrayLike) -> Any:
    """Compute the square root, complex if any element is negative.

    Cost
    ----
    One allreduce of a truth value, as for all functions of this file.
    """
    return np.sqrt(_unless_negative(x))


@implements(scimath.log)
def log(x: ArrayLike) -> Any:
    """Compute the natural logarithm, complex if any element is negative."""
    return np.log(_unless_negative(x))


@implements(scimath.log10)
def log10(x: ArrayLike) -> Any:
    """Compute the logarithm of base 10, complex if any element is negative."""
    return np.log10(_unless_negative(x))


@implements(scimath.log2)
def log2(x: ArrayLike) -> Any:
    """Compute the logarithm of base 2, complex if any element is negative."""
    return np.log2(_unless_negative(x))


@implements(scimath.logn)
def logn(n: ArrayLike, x: ArrayLike) -> Any:
    """Compute the logarithm of base n, complex if any element is negative."""
    mesh = common_mesh(n, x)
    return log(as_distarray(x, mesh)) / log(as_distarray(n, mesh))


@implements(scimath.power)
def power(x: ArrayLike, p: ArrayLike) -> Any:
    """Compute powers, complex if any base is negative; in floats for negative integer exponents."""
    mesh = common_mesh(x, p)
    base, exponent = _unless_negative(as_distarray(x, mesh)), as_distarray(p, mesh)
    if exponent.dtype.kind in "iu" and bool(np.any(exponent < 0)):
        exponent = exponent * 1.0
    return np.power(base, exponent)


@implements(scimath.arccos)
def arccos(x: ArrayLike) -> Any:
    """Compute the inverse cosine, complex if any element is beyond 1 or -1."""
    return np.arccos(_unless_beyond_one(x))


@implements(scimath.arcsin)
def arcsin(x: ArrayLike) -> Any:
    """Compute the inverse sine, complex if any element is beyond 1 or -1."""
    return np.arcsin(_unless_beyond_one(x))


@implements(scimath.arctanh)
def arctanh(x: ArrayLike) -> Any:
    """Compute the inverse hyperbolic tangent, complex if any element is beyond 1 or -1."""
    return np.arctanh(_unless_beyond_one(x))
