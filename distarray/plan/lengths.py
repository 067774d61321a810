"""Lengths of Fourier transforms: their cost, and the division of a long one among ranks."""

from functools import lru_cache
from math import log2
from typing import NamedTuple

__all__ = ["Split", "effort", "good_length", "split_length"]

#: Largest prime factor of lengths that are never transformed by Bluestein's algorithm.
_LARGEST_PRIME = 50
#: Largest work of a rank, relative to an even share, that a split may have.
_IDLE_MOST = 2.0


class Split(NamedTuple):
    """Factors of a length: `rows` lines of `columns` elements each, and their cost.

    Attributes
    ----------
    rows, columns : int
        The two factors; each is at least the number of parts where possible.
    effort : float
        Operations per element, scaled up for the time that ranks are idle.
    """

    rows: int
    columns: int
    effort: float


@lru_cache(maxsize=4096)
def _primes(n: int) -> tuple[int, ...]:
    """Return the prime factors of a number, the smallest first."""
    found = []
    divisor = 2
    while divisor * divisor <= n:
        while n % divisor == 0:
            found.append(divisor)
            n //= divisor
        divisor += 1 + (divisor > 2)
    if n > 1:
        found.append(n)
    return tuple(found)


@lru_cache(maxsize=4096)
def effort(n: int) -> float:
    """Return the operations per element of a transform of length `n`, in radix-2 steps."""
    primes = _primes(n)
    direct = sum([log2(p) if p <= 5 else 0.6 * p for p in primes])
    if not primes or primes[-1] <= _LARGEST_PRIME:
        return direct
    # Bluestein's algorithm: three transforms of more than twice the length.
    return min(direct, 3 * 2.5 * log2(2 * n))


@lru_cache(maxsize=1024)
def split_length(n: int, parts: int) -> Split | None:
    """Find the best split of a transform of length `n` into shorter ones on `parts` ranks.

    Return None if ranks would be idle too long: `n` is prime, for example, or has no two factors
    that are both large enough.
    """
    best: Split | None = None
    for divisor in _divisors(n):
        rows, columns = divisor, n // divisor
        idle = _idle(rows, parts) * _idle(columns, parts)
        if idle > _IDLE_MOST or min(rows, columns) == 1:
            continue
        # If one factor is much larger than the other, its lines are too long for the caches.
        uneven = 0.1 * abs(log2(rows / columns))
        # If the array's blocks consist of whole rows, no element has to be shifted first.
        shifted = 0.0 if rows % parts == 0 else 1.0
        cost = (effort(rows) + effort(columns) + uneven + shifted) * idle
        if best is None or cost < best.effort:
            best = Split(rows, columns, cost)
    return best


def _divisors(n: int) -> list[int]:
    """Return all divisors except `n` itself, in ascending order."""
    found = {1}
    for prime in _primes(n):
        found |= {divisor * prime for divisor in found}
    return sorted(found)[:-1]


def _idle(n: int, parts: int) -> float:
    """Return the busiest rank's work, relative to an even division of `n` by `parts`."""
    return parts * -(-n // parts) / n


@lru_cache(maxsize=1024)
def good_length(least: int, parts: int) -> int:
    """Return a length of at least `least` that `parts` ranks transform fast.

    The length is the product of `parts` squared, unless that is above `least`, and a number whose
    only prime factors are 2, 3 and 5.
    """
    unit = parts * parts if parts * parts <= least else 1
    return unit * _smooth(-(-least // unit))


def _smooth(least: int) -> int:
    """Return the smallest number without prime factors above 5 that is at least `least`."""
    best = 1 << max(least - 1, 0).bit_length()
    power5 = 1
    while power5 < best:
        power35 = power5
        while power35 < best:
            twos = -(-least // power35)
            best = min(best, power35 << max(twos - 1, 0).bit_length())
            power35 *= 3
        power5 *= 5
    return best
