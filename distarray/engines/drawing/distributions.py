"""Properties of NumPy's distributions: valid parameters, and standard forms.

NumPy checks parameters while it draws. Here each rank draws another part, so parameters are checked
first: arrays within the bounds below are surely valid, and only others are checked by NumPy as a
whole.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from distarray.typing import Array, DTypeLike

__all__ = ["Distribution", "distribution", "surely_valid"]

_INF = float("inf")
_LEAST = 5e-324
_Bounds = tuple[float, float]  # or int, which is exact

_ANY = (-_INF, _INF)
_FINITE = (-1e307, 1e307)
_NOT_NEGATIVE = (0.0, _INF)
_POSITIVE = (_LEAST, _INF)
_UNIT = (0.0, 1.0)
_PROBABILITY = (_LEAST, 1.0)


class Distribution(NamedTuple):
    """One method of NumPy's Generator.

    Attributes
    ----------
    bounds : tuple of (float, float)
        For each parameter the least and the greatest value that is surely valid.
    related : callable or None
        Another condition that the parameters have to fulfil together.
    steady : bool
        Whether the parameters of an element do not change how many numbers it takes from the
        stream. Elements of other ranks in a tile can then be drawn with any parameters.
    standard : str or None
        The method that draws the standard form into `out`, if there is one.
    made : callable or None
        ``made(numbers, *parameters)`` transforms the standard form in place. It rounds as NumPy
        does, unless NumPy's compiler has fused a product with a sum.
    """

    bounds: tuple[_Bounds, ...]
    steady: bool = False
    related: Callable[..., Any] | None = None
    standard: str | None = None
    made: Callable[..., None] | None = None


def _scaled(numbers: Array, scale: Array) -> None:
    numbers *= scale


def _located(numbers: Array, loc: Array, scale: Array) -> None:
    numbers *= scale
    numbers += loc


def _between(numbers: Array, low: Array, high: Array) -> None:
    _located(numbers, low, high - low)


def _radius(numbers: Array, scale: Array) -> None:
    numbers *= 2.0
    np.sqrt(numbers, out=numbers)
    numbers *= scale


def _ordered(left: Array, mode: Array, right: Array) -> Any:
    return (left <= mode) & (mode <= right) & (left < right)


def _enough(ngood: Array, nbad: Array, nsample: Array) -> Any:
    return ngood + nbad >= nsample


def _location(scale: _Bounds = _NOT_NEGATIVE) -> Distribution:
    """A distribution of a location and a scale."""
    return Distribution((_ANY, scale), steady=True)


_COUNT = (0.0, 5e8)

DISTRIBUTIONS: dict[str, Distribution] = {
    "beta": Distribution((_POSITIVE, _POSITIVE)),
    "binomial": Distribution((_COUNT, _UNIT)),
    "chisquare": Distribution((_POSITIVE,)),
    "exponential": Distribution(
        (_NOT_NEGATIVE,), steady=True, standard="standard_exponential", made=_scaled
    ),
    "f": Distribution((_POSITIVE, _POSITIVE)),
    "gamma": Distribution((_NOT_NEGATIVE, _NOT_NEGATIVE)),
    "geometric": Distribution((_PROBABILITY,)),
    "gumbel": _location(),
    "hypergeometric": Distribution((_COUNT, _COUNT, _COUNT), related=_enough),
    "laplace": _location(),
    "logistic": _location(),
    "lognormal": _location(),
    "logseries": Distribution(((0.0, 0.999999),)),
    "negative_binomial": Distribution(((_LEAST, 1e9), (1e-6, 1.0))),
    "noncentral_chisquare": Distribution((_POSITIVE, _NOT_NEGATIVE)),
    "noncentral_f": Distribution((_POSITIVE, _POSITIVE, _NOT_NEGATIVE)),
    "normal": _location()._replace(standard="standard_normal", made=_located),
    "pareto": Distribution((_POSITIVE,), steady=True),
    "poisson": Distribution(((0.0, 1e18),)),
    "power": Distribution((_POSITIVE,), steady=True),
    "rayleigh": Distribution(
        (_NOT_NEGATIVE,), steady=True, standard="standard_exponential", made=_radius
    ),
    "standard_cauchy": Distribution(()),
    "standard_gamma": Distribution((_NOT_NEGATIVE,)),
    "standard_t": Distribution((_POSITIVE,)),
    "triangular": Distribution((_FINITE, _FINITE, _FINITE), steady=True, related=_ordered),
    "uniform": Distribution(
        (_FINITE, _FINITE), steady=True, related=np.less_equal, standard="random", made=_between
    ),
    "vonmises": Distribution((_ANY, _NOT_NEGATIVE)),
    "wald": Distribution((_POSITIVE, _POSITIVE), steady=True),
    "weibull": Distribution((_POSITIVE,)),
    "zipf": Distribution(((1.0000001, _INF),)),
}


def distribution(name: str, dtype: DTypeLike = None, endpoint: bool = False) -> Distribution:
    """The properties of a method; the bounds of integers depend on the data type."""
    if name != "integers":
        return DISTRIBUTIONS[name]
    if np.dtype(dtype).kind == "b":
        return Distribution(((0, 1), (0, 1)), related=np.less_equal if endpoint else np.less)
    info: Any = np.iinfo(np.dtype(dtype))
    bounds = (info.min, info.max)
    return Distribution((bounds, bounds), related=np.less_equal if endpoint else np.less)


def surely_valid(row: Distribution, values: list[Any]) -> bool:
    """Whether NumPy is known to accept these parameters, which broadcast."""
    for value, (low, high) in zip(values, row.bounds, strict=True):
        if np.asarray(value).dtype.kind not in "biuf":
            return False  # some methods convert None and bytes to numbers
        if np.size(value) and not (np.min(value) >= low and np.max(value) <= high):
            return False  # also for NaN
    return row.related is None or bool(np.all(row.related(*values)))
