"""Widths of histogram bins of a distributed array, by NumPy's rules.

Every rule needs a few statistics of the whole array: size, minimum, maximum, moments, quartiles.
Quartiles are exact, by selection; moments agree with NumPy's up to rounding.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike as HostArrayLike

from distarray.array import DistArray
from distarray.engines.reshaping import in_line
from distarray.typing import ArrayLike

__all__ = ["bin_count"]

#: (first edge, last edge)
Limits = tuple[Any, Any]


def _number(x: ArrayLike) -> Any:
    """Convert a 0-d result to a NumPy scalar."""
    return x.full()[()] if isinstance(x, DistArray) else x


def _difference(high: HostArrayLike, low: HostArrayLike) -> Any:
    """Return ``high - low``, unsigned for integers, so that the difference cannot overflow."""
    kind = np.result_type(high, low)
    if kind.kind != "i":
        return np.subtract(high, low, dtype=kind)
    unsigned = np.dtype(kind.str.replace("i", "u"))
    high, low = np.asarray(high, kind), np.asarray(low, kind)
    return np.subtract(high, low, casting="unsafe", dtype=unsigned)


def _spread(x: DistArray) -> Any:
    return _difference(_number(np.max(x)), _number(np.min(x)))


def _sqrt(x: DistArray, limits: Limits) -> Any:
    return _spread(x) / np.sqrt(x.size)


def _sturges(x: DistArray, limits: Limits) -> Any:
    return _spread(x) / (np.log2(x.size) + 1.0)


def _rice(x: DistArray, limits: Limits) -> Any:
    return _spread(x) / (2.0 * x.size ** (1.0 / 3))


def _scott(x: DistArray, limits: Limits) -> Any:
    return (24.0 * np.pi**0.5 / x.size) ** (1.0 / 3.0) * _number(np.std(x))


def _stone(x: DistArray, limits: Limits) -> Any:
    """Choose the width by cross-validation over 1, 2, ... bins, up to NumPy's limit."""
    n, spread = x.size, _spread(x)
    if n <= 1 or spread == 0:
        return 0
    most = max(100, int(np.sqrt(n)))

    def error(bins: int) -> Any:
        share = np.histogram(x, bins, limits)[0].full() / n  # type: ignore[attr-defined]
        return (2 - (n + 1) * share.dot(share)) / (spread / bins)

    best = min(range(1, most + 1), key=error)
    if best == most:
        warnings.warn(
            "The number of bins estimated may be suboptimal.", RuntimeWarning, stacklevel=1
        )
    return spread / best


def _doane(x: DistArray, limits: Limits) -> Any:
    if x.size <= 2:
        return 0.0
    sigma = _number(np.std(x))
    if not sigma > 0.0:
        return 0.0
    error = np.sqrt(6.0 * (x.size - 2) / ((x.size + 1.0) * (x.size + 3)))
    skew = _number(np.mean(((x - np.mean(x)) / sigma) ** 3))
    return _spread(x) / (1.0 + np.log2(x.size) + np.log2(1.0 + np.absolute(skew) / error))


def _fd(x: DistArray, limits: Limits) -> Any:
    high, low = np.percentile(x, [75, 25]).full()  # type: ignore[attr-defined]
    return 2.0 * np.subtract(high, low) * x.size ** (-1.0 / 3.0)


def _auto(x: DistArray, limits: Limits) -> Any:
    return min(max(_fd(x, limits), _sqrt(x, limits) / 2), _sturges(x, limits))


#: Name of a rule -> function(array, limits) that returns the width.
_RULES: dict[str, Callable[[DistArray, Limits], Any]] = {
    "stone": _stone,
    "auto": _auto,
    "doane": _doane,
    "fd": _fd,
    "rice": _rice,
    "scott": _scott,
    "sqrt": _sqrt,
    "sturges": _sturges,
}


def bin_count(name: str, a: DistArray, limits: Limits, given: bool) -> int:
    """Return the number of bins by a rule.

    Parameters
    ----------
    name : str
        Name of the rule.
    a : DistArray
        The elements.
    limits : tuple
        The outer edges.
    given : bool
        True if the caller chose the edges; elements outside of them are then ignored.
    """
    low, high = limits
    x = in_line(a)
    if given:
        kept = (x >= low) & (x <= high)
        if not bool(np.all(kept)):
            x = x[kept]
    if not x.size or x.mesh.coords is None:
        return 1
    width = _RULES[name](x, limits)
    if not width:
        return 1
    if x.dtype.kind in "iu" and width < 1:
        width = 1
    return int(np.ceil(_difference(high, low) / width))
