"""How figures grow with the number of ranks: exponents, and laws that are fitted to them."""

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
#: Terms of which laws of three are made.
_THREE = ("P²", "P", "1", "1/P")
#: Relative errors up to which a law of counts describes them: with few terms, and with three.
_EXACT, _VERY_EXACT = 5e-3, 1e-6
#: Misfits below this one are rounding.
_ROUNDING = 1e-9
#: Numbers of ranks from which on three terms need not be so exact.
_MANY = 6
#: What a law with one more term has to be better by.
_BETTER = 3.0
#: Squares that more terms may leave, in parts of what fewer leave: one, two, three terms.
_PARTS = (1.0, 1.0, 0.5, 0.1)
#: Ranks on which counts must not be negative.
_FAR = 1 << 20
#: Below this part of the largest value a deviation is none.
_SMALL = 1e-3
#: Exponents of seconds above this one, by twice their uncertainty, are growth.
_GROWS = 0.1


class Growth(NamedTuple):
    """An exponent, by least squares of logarithms, and its standard error.

    The error is NaN where there are only two values.
    """

    exponent: float
    error: float

    def __str__(self) -> str:
        sign = "" if isnan(self.error) else f" ± {self.error:.2f}"
        return f"P^{self.exponent:.2f}{sign}"


def growth(counts: Sequence[int], values: Sequence[float]) -> Growth | None:
    """With which power of the number of ranks values grow; None if that cannot be said.

    Parameters
    ----------
    counts : sequence of int
        Numbers of ranks.
    values : sequence of float
        What was found on them. Zeros, such as messages on one rank, are left out.
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
    """A sum of terms in the number of ranks.

    Attributes
    ----------
    terms : tuple of str
    factors : tuple of float
    covariance : tuple of tuple of float
        Of the factors; empty where there are no more values than factors.
    misfit : float
        The largest relative deviation from what it was fitted to.
    """

    terms: tuple[str, ...] = ()
    factors: tuple[float, ...] = ()
    covariance: tuple[tuple[float, ...], ...] = ()
    misfit: float = 0.0

    def __call__(self, ranks: int) -> float:
        """The value on a number of ranks, which is not negative."""
        return max(0.0, sum(f * TERMS[t](ranks) for t, f in zip(self.terms, self.factors)))

    def error(self, ranks: int) -> float:
        """The standard error of the value; NaN where it is not known."""
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
    """The law of bytes or messages, which are exact: the simplest that describes them.

    One rank has nobody to talk to; its value counts only if the same law holds for it.

    Parameters
    ----------
    counts : sequence of int
    values : sequence of float
    together : bool
        Whether they are of collectives, which all ranks take part in, but for one alone.
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
    """What laws are compared by; of those that are exact the first is the simplest."""
    return max(law.misfit, _ROUNDING)


def _lasts(law: Law) -> bool:
    """Whether a law stays above 0 on many ranks."""
    return sum(f * TERMS[t](_FAR) for t, f in zip(law.terms, law.factors)) >= 0


def _choices(number: int) -> Iterator[tuple[str, ...]]:
    yield from combinations(_THREE if number == 3 else TERMS, number)


def seconds_law(counts: Sequence[int], values: Sequence[float]) -> Law:
    """The law of seconds of computing: what all share and what each does anyway.

    Only if they clearly grow with the number of ranks there is a part that does.

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
    """The law of the memory of a rank: shared parts, what each has, and what is for each other.

    Parameters
    ----------
    counts : sequence of int
    values : sequence of float
    """
    terms = ("1/P", "1", "P") if len(counts) > 3 else ("1/P", "1")
    return _not_negative(list(zip(counts, values, strict=True)), terms)


def _not_negative(points: Sequence[tuple[int, float]], terms: Sequence[str]) -> Law:
    """Least squares with factors that are not negative; of few terms all subsets are tried."""
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
    """The sum of the squares of relative deviations."""
    largest = max(value for _, value in points)
    scales = [max(value, _SMALL * largest) for _, value in points]
    return sum([((law(c) - v) / s) ** 2 for (c, v), s in zip(points, scales, strict=True)])


def _fitted(points: Sequence[tuple[int, float]], terms: tuple[str, ...]) -> Law:
    """Least squares of relative deviations."""
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
