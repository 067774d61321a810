"""Positions of the order statistics of a quantile, and interpolation between them.

The operations and their order are NumPy's, so that the results are bitwise equal to NumPy's.

References
----------
R. J. Hyndman, Y. Fan, Sample quantiles in statistical packages, The American Statistician 50,
1996.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from distarray.typing import Array

__all__ = ["Places", "interpolated", "places"]


class Places(NamedTuple):
    """Positions, in a sorted line, of the two neighbors of each quantile.

    Attributes
    ----------
    previous, following : array of int
        One position per quantile; equal if there is no interpolation.
    gamma : array or float or None
        Weight of the following neighbor; None if there is no interpolation.
    """

    previous: Array
    following: Array
    gamma: Any = None

    @property
    def wanted(self) -> list[int]:
        """All positions, without repetitions."""
        return sorted({*self.previous.ravel().tolist(), *self.following.ravel().tolist()})


def _between(alpha: float, beta: float) -> Callable[[int, Array], Array]:
    return lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1


def _midpoint(n: int, q: Array) -> Array:
    place = (n - 1) * q
    middle: Array = 0.5 * (np.floor(place) + np.ceil(place))
    return middle


#: Interpolating methods: functions (n, q) -> real position in a line of n elements.
_CONTINUOUS: dict[str, Callable[[int, Array], Array]] = {
    "averaged_inverted_cdf": lambda n, q: (n * q) - 1,
    "interpolated_inverted_cdf": _between(0, 1),
    "hazen": _between(0.5, 0.5),
    "weibull": _between(0, 0),
    "linear": lambda n, q: (n - 1) * q,
    "median_unbiased": _between(1 / 3.0, 1 / 3.0),
    "normal_unbiased": _between(3 / 8.0, 3 / 8.0),
    "midpoint": _midpoint,
}


def _observed(place: Array, stays: Callable[[Array], Array]) -> Array:
    """Return the next integer position, or the current one if `stays` is true for the fraction."""
    previous = np.floor(place)
    index = np.asarray(np.where(stays(place - previous), previous, previous + 1)).astype(np.intp)
    return np.maximum(index, 0)


def _closest(n: int, q: Array) -> Array:
    place = (n * q) - 1 - 0.5
    return _observed(place, lambda gamma: (gamma == 0) & (np.floor(place) % 2 == 1))


#: Methods that select one element: functions (n, q) -> its position.
_DISCRETE: dict[str, Callable[[int, Array], Array]] = {
    "inverted_cdf": lambda n, q: _observed((n * q) - 1, lambda gamma: gamma == 0),
    "closest_observation": _closest,
    "lower": lambda n, q: np.floor((n - 1) * q).astype(np.intp),
    "higher": lambda n, q: np.ceil((n - 1) * q).astype(np.intp),
    "nearest": lambda n, q: np.around((n - 1) * q).astype(np.intp),
}


def places(method: str, n: int, q: Array, weak: bool) -> Places:
    """Return the positions of quantiles in a sorted line.

    Parameters
    ----------
    method : str
        Name of a method of :func:`numpy.quantile`.
    n : int
        Length of the line, at least 1.
    q : array
        The quantiles, from 0 to 1.
    weak : bool
        True if `q` was a Python number, which does not affect data types.
    """
    if method in _DISCRETE:
        index = np.asanyarray(_DISCRETE[method](n, q))
        return Places(index, index)
    place = np.asanyarray(_CONTINUOUS[method](n, q))
    if method == "linear" and place.dtype.kind in "iu":
        return Places(place, place)
    previous = np.floor(place, out=...)
    over, under = place >= n - 1, place < 0
    previous = np.where(over, -1, np.where(under, 0, previous)).astype(np.intp)
    gamma = place - previous
    following = np.where(over | under, previous, previous + 1) % n
    previous = previous % n
    if method == "averaged_inverted_cdf":
        gamma = np.where(gamma == 0, 0.5, 1.0)
    elif method == "midpoint":
        gamma = np.where(place % 1 == 0, 0.0, 0.5)
    gamma = np.asanyarray(gamma, dtype=place.dtype)
    return Places(previous, following, float(gamma) if weak else gamma)


def interpolated(previous: Any, following: Any, gamma: Any) -> Any:
    """Interpolate quantiles between pairs of order statistics; scalars for scalars, as in NumPy.

    Interpolation starts from the nearer neighbor. A weight of 1 therefore yields the following
    neighbor exactly, and the results ascend with the weight.
    """
    distance = following - previous
    value = np.add(previous, distance * gamma, out=...)
    np.subtract(
        following,
        distance * (1 - gamma),
        out=value,
        where=np.greater_equal(gamma, 0.5),
        casting="unsafe",
        dtype=type(value.dtype),
    )
    return value[()] if value.ndim == 0 else value
