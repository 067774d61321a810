"""Growth of figures with the number of ranks: exponents, and fitted laws."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, isnan, log2, nan, sqrt
from typing import NamedTuple

import numpy as np

__all__ = ["Growth", "Law", "count_law", "growth", "memory_law", "seconds_law"]

TERMS: dict[str, Callable[[float], float]] = {
    "1": lambda p: 1.0,
    "P": lambda p: p,
    "P²": lambda p: p * p,
    "1/P": lambda p: 1 / p,
    "log P": log2,
    "P log P": lambda p: p * log2(p),
    "√P": sqrt,
    "1/P²": lambda p: 1 / (p * p),
}
#: Terms used in laws of three terms.
_THREE = ("P²", "P", "1", "1/P")
#: Maximum relative errors of a law that describes counts: with few terms, and with three.
_EXACT, _VERY_EXACT = 5e-3, 1e-6
#: Misfits below this are rounding errors.
_ROUNDING = 1e-9
#: Number of measurements from which on laws of three terms need not be so exact.
_MANY = 6
#: Factor by which one more term must reduce the misfit.
_BETTER = 3.0
#: Maximum sum of squares relative to that of fewer terms, for one, two and three terms.
_PARTS = (1.0, 1.0, 0.5, 0.1)
#: Number of ranks on which counts must not be negative.
_FAR = 1 << 20
#: Minimum scale of a relative deviation, as a share of the largest value.
_SMALL = 1e-3
#: Exponent of seconds above which, after subtracting twice its error, they count as growing.
_GROWS = 0.1


class Growth(NamedTuple):
    """Exponent, by least squares of logarithms, and its standard error.

    The error is NaN for only two values.
    """

    exponent: float
    error: float

    def __str__(self) -> str:
        sign = "" if isnan(self.error) else f" ± {self.error:.2f}"
        return f"P^{self.exponent:.2f}{sign}"


def growth(counts: Sequence[int], values: Sequence[float]) -> Growth | None:
    """Fit the power of the number of ranks by which values grow; None with too few values.

    Parameters
    ----------
    counts : sequence of int
        Numbers of ranks.
    values : sequence of float
        The values measured on them. Zeros, such as messages on one rank, are omitted.
    """
    points = [(log2(c), log2(v)) for c, v in zip(counts, values, strict=True) if v > 0]
    if len(points) < 2:
        return None
    x, y = np.array(points).T
    x = x - x.mean()
    square = float(x @ x)
    slope = float(x @ y) / square
    rest = y - y.mean() - slope * x
    error = sqrt(float(rest @ rest) / (len(x) - 2) / square) if len(x) > 2 else nan
    return Growth(slope, error)


@dataclass(frozen=True)
class Law:
    """Sum of terms in the number of ranks.

    Attributes
    ----------
    terms : tuple of str
    factors : tuple of float
    covariance : tuple of tuple of float
        Of the factors; empty if there are no more values than factors.
    misfit : float
        Largest relative deviation from the fitted values.
    """

    terms: tuple[str, ...] = ()
    factors: tuple[float, ...] = ()
    covariance: tuple[tuple[float, ...], ...] = ()
    misfit: float = 0.0

    def __call__(self, ranks: int) -> float:
        """Return the value on a number of ranks, at least 0."""
        return max(0.0, sum(f * TERMS[t](ranks) for t, f in zip(self.terms, self.factors)))

    def error(self, ranks: int) -> float:
        """Return the standard error of the value; NaN if it is unknown."""
        if not self.terms:
            return 0.0
        if not self.covariance:
            return nan
        at = np.array([TERMS[term](ranks) for term in self.terms])
        return sqrt(max(0.0, float(at @ np.array(self.covariance) @ at)))

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        parts = [
            f"{factor:+.4g}" + ("" if term == "1" else f"·{term}")
            for term, factor in zip(self.terms, self.factors)
        ]
        return " ".join(parts).removeprefix("+")


def count_law(counts: Sequence[int], values: Sequence[float], together: bool = False) -> Law:
    """Fit the simplest law that describes counts of bytes or messages, which are exact.

    One rank has no peer to send to; its value is used only if the same law describes it.

    Parameters
    ----------
    counts : sequence of int
    values : sequence of float
    together : bool
        True if the values are of collectives, which all ranks take part in, except one rank alone.
    """
    several = [(c, v) for c, v in zip(counts, values, strict=True) if c > 1]
    if not any(v for _, v in several):
        return Law()
    everything = list(zip(counts, values, strict=True))
    best = Law(misfit=inf)
    for points in (several,) if together or len(several) == len(counts) else (everything, several):
        best = _simplest(points)
        if best.misfit <= _EXACT:
            break
    return best


def _simplest(points: Sequence[tuple[int, float]]) -> Law:
    best, wanted = Law(misfit=inf), inf
    for number in (1, 2, 3):
        if number >= len(points) > 1 or number > len(points):
            break
        laws = [_fitted(points, terms) for terms in _choices(number)]
        found = min([law for law in laws if _lasts(law)], key=_misfit, default=best)
        limit = _VERY_EXACT if number == 3 and len(points) < _MANY else inf
        if found.misfit < wanted and found.misfit <= limit:
            best, wanted = found, found.misfit / _BETTER
        if best.misfit <= _EXACT / 10:
            break
    return best


def _misfit(law: Law) -> float:
    """Return the misfit for comparisons; exact laws tie, and the first of them is the simplest."""
    return max(law.misfit, _ROUNDING)


def _lasts(law: Law) -> bool:
    """Return True if a law is not negative on many ranks."""
    return sum(f * TERMS[t](_FAR) for t, f in zip(law.terms, law.factors)) >= 0


def _choices(number: int) -> Iterator[tuple[str, ...]]:
    yield from combinations(_THREE if number == 3 else TERMS, number)


def seconds_law(counts: Sequence[int], values: Sequence[float]) -> Law:
    """Fit the law of computing seconds: shared work (1/P) and work that each rank repeats (1).

    If the seconds clearly grow with the number of ranks, the terms are 1 and P instead.

    Parameters
    ----------
    counts : sequence of int
    values : sequence of float
    """
    slope = growth(counts, values)
    grows = slope is not None and slope.exponent - 2 * slope.error > _GROWS
    terms = ("1", "P") if grows else ("1/P", "1")
    return _not_negative(list(zip(counts, values, strict=True)), terms)


def memory_law(counts: Sequence[int], values: Sequence[float]) -> Law:
    """Fit the law of a rank's memory: shared data, data of every rank, and data per other rank.

    Parameters
    ----------
    counts : sequence of int
    values : sequence of float
    """
    terms = ("1/P", "1", "P") if len(counts) > 3 else ("1/P", "1")
    return _not_negative(list(zip(counts, values, strict=True)), terms)


def _not_negative(points: Sequence[tuple[int, float]], terms: Sequence[str]) -> Law:
    """Fit non-negative factors by least squares; the terms are few, so all subsets are tried."""
    if not any(value for _, value in points):
        return Law()
    best, least = Law(misfit=inf), inf
    for number in range(1, min(len(terms), len(points)) + 1):
        laws = [_fitted(points, chosen) for chosen in combinations(terms, number)]
        laws = [law for law in laws if min(law.factors) >= 0]
        found = min(laws, key=lambda law: _squares(law, points), default=best)
        rest = _squares(found, points)
        if rest < _PARTS[number] * least:
            best, least = found, rest
    return best


def _squares(law: Law, points: Sequence[tuple[int, float]]) -> float:
    """Return the sum of the squares of relative deviations."""
    largest = max(value for _, value in points)
    scales = [max(value, _SMALL * largest) for _, value in points]
    return sum([((law(c) - v) / s) ** 2 for (c, v), s in zip(points, scales, strict=True)])


def _fitted(points: Sequence[tuple[int, float]], terms: tuple[str, ...]) -> Law:
    """Fit by least squares of relative deviations."""
    largest = max(value for _, value in points) or 1.0
    scale = np.array([max(value, _SMALL * largest) for _, value in points])
    matrix = np.array([[TERMS[term](count) for term in terms] for count, _ in points])
    wanted = np.array([value for _, value in points]) / scale
    matrix = matrix / scale[:, None]
    factors, *_ = np.linalg.lstsq(matrix, wanted, rcond=None)
    rest = matrix @ factors - wanted
    free = len(points) - len(terms)
    covariance: tuple[tuple[float, ...], ...] = ()
    if free > 0:
        inverse = np.linalg.pinv(matrix.T @ matrix) * float(rest @ rest) / free
        covariance = tuple([tuple(map(float, row)) for row in inverse])
    return Law(terms, tuple(map(float, factors)), covariance, float(np.abs(rest).max()))
