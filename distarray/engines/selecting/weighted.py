"""Weighted quantiles: the least element at which the cumulative weight reaches a given share.

As in :mod:`distarray.engines.selecting.selection` a sample brackets the element, here by the
weights of the sample. The weights below, inside and at the ends of the bracket are summed exactly,
so that the result is the same for any number of ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import numpy as np

from distarray.comm.group import Group
from distarray.engines.selecting.exact_sums import exact_sum
from distarray.engines.selecting.selection import GATHERED, SAMPLED, SPREAD, each
from distarray.typing import Array

__all__ = ["Weighted", "select_weighted"]


@dataclass(slots=True)
class Weighted:
    """Elements with their weights: this rank's part of a line, or of a range of the sorted line."""

    values: Array
    weights: Array

    def where(self, chosen: Array) -> "Weighted":
        """Return the elements that a mask or indices select, with their weights."""
        return Weighted(self.values[chosen], self.weights[chosen])

    @property
    def weight(self) -> int:
        """Exact sum of the weights, see :func:`exact_sum`."""
        return exact_sum(self.weights)


class _Target(NamedTuple):
    """Quantile `share` of a line whose weights sum to `total`."""

    line: int
    number: int
    share: Any
    total: int

    def reached(self, weight: int) -> bool:
        """Return True if the cumulative weight reaches the share, with NumPy's rounding."""
        part = np.float64(weight / self.total)
        if self.share.dtype.kind == "f":
            part = part.astype(self.share.dtype)
        return bool(weight > 0 and part >= self.share)


@dataclass(slots=True)
class _Search:
    """Search for one quantile, in a range of a sorted line.

    Attributes
    ----------
    target : _Target
        The quantile.
    part : Weighted
        This rank's elements of the range.
    sizes : array of int
        Number of elements of the range on each rank.
    weight, below : int
        The weights of the range and of the elements before it.
    cap : scalar or None
        The element after the range: the result if no element of the range reaches the share.
    """

    target: _Target
    part: Weighted
    sizes: Array
    weight: int
    below: int
    cap: Any = None

    @property
    def share(self) -> float:
        """Approximate share of the range's weight at which the quantile is reached."""
        whole = self.target.total
        return (float(self.target.share) - self.below / whole) * (whole / max(1, self.weight))

    def answer(self, element: Any, found: list[Array]) -> None:
        """Store the element as the result for the quantile."""
        found[self.target.line][self.target.number] = element


def select_weighted(
    lines: Sequence[Weighted], sizes: Array, totals: Sequence[int], shares: Array, group: Group
) -> list[Array]:
    """Compute the weighted quantiles of lines that several ranks share.

    Parameters
    ----------
    lines : sequence of Weighted
        This rank's elements of each line, without NaN, in host memory.
    sizes : array of int
        Number of elements per rank and line: (ranks, lines). The result of an empty line is 0.
    totals : sequence of int
        The lines' sums of weights, see :func:`exact_sum`.
    shares : array
        The quantiles, 1-d, from 0 to 1.
    group : Group
        The ranks. The call is collective.

    Returns
    -------
    list of array
        For each line, the elements for the shares; on every rank.

    Cost
    ----
    That of :func:`distarray.engines.selecting.selection.select`; each share is a separate search,
    and weights are sent with their elements.
    """
    found = [np.zeros(shares.shape, line.values.dtype) for line in lines]
    searches = []
    for number, (line, total) in enumerate(zip(lines, totals, strict=True)):
        if sizes[:, number].any():
            searches += [
                _Search(_Target(number, i, share, total), line, sizes[:, number], total, 0)
                for i, share in enumerate(shares)
            ]
    rounds = 0
    while searches:
        limit = each(GATHERED, len(searches))
        few = [search for search in searches if search.sizes.sum() <= limit]
        many = [search for search in searches if search.sizes.sum() > limit]
        for search, whole in zip(few, _shared(few, None, group), strict=True):
            search.answer(_element(search, whole), found)
        searches = _narrow(many, found, group, rounds)
        rounds += 1
    return found


def _shared(
    searches: Sequence[_Search], chosen: Sequence[Array] | None, group: Group
) -> list[Weighted]:
    """Allgather and sort each search's chosen elements, or all if `chosen` is None."""
    if not searches:
        return []
    parts = [search.part for search in searches]
    counts = np.stack([search.sizes for search in searches], axis=1)
    if chosen is not None:
        parts = [part.where(index) for part, index in zip(parts, chosen, strict=True)]
        counts = np.stack([_shares(search, len(searches)) for search in searches], axis=1)
    lengths, cuts = counts.sum(1).tolist(), np.cumsum(counts, axis=1)[:, :-1]
    columns = []
    for name in ("values", "weights"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        received = group.allgather_varied(joined, lengths)
        pieces = [np.split(block, cut) for block, cut in zip(received, cuts, strict=True)]
        columns.append([np.concatenate(of_ranks) for of_ranks in zip(*pieces, strict=True)])
    wholes = [Weighted(*pair) for pair in zip(*columns, strict=True)]
    return [whole.where(np.argsort(whole.values, kind="stable")) for whole in wholes]


def _shares(search: _Search, searches: int) -> Array:
    """Return the number of elements that each rank contributes to a sample."""
    asked = each(SAMPLED, searches)
    shares: Array = -(-search.sizes * asked // search.sizes.sum())
    return shares


def _element(search: _Search, whole: Weighted) -> Any:
    """Return the first of the sorted candidates at which the share is reached."""
    count = len(whole.values)
    if not count:
        return search.cap
    place = _guess(search, whole.weights)
    while place and search.target.reached(search.below + exact_sum(whole.weights[:place])):
        place -= 1
    while not search.target.reached(search.below + exact_sum(whole.weights[: place + 1])):
        place += 1
        if place == count:
            return whole.values[-1] if search.cap is None else search.cap
    return whole.values[place]


def _guess(search: _Search, weights: Array) -> int:
    """Estimate the position at which the share is reached, up to rounding."""
    running = np.cumsum(weights)
    if not (search.weight and running[-1] > 0):
        return 0
    target = running[-1] * search.share
    return min(int(np.searchsorted(running, target)), len(weights) - 1)


def _narrow(
    searches: Sequence[_Search], found: list[Array], group: Group, rounds: int
) -> list[_Search]:
    """Run one round; return the remaining searches, each with fewer candidates."""
    if not searches:
        return []
    generator = np.random.default_rng((rounds, group.rank))
    chosen = [
        generator.integers(
            0, max(1, search.part.values.size), int(_shares(search, len(searches))[group.rank])
        )
        for search in searches
    ]
    samples = _shared(searches, chosen, group)
    brackets = [_bracket(s, sample, rounds) for s, sample in zip(searches, samples, strict=True)]
    own = [_measured(s.part, *ends) for s, ends in zip(searches, brackets, strict=True)]
    sizes = group.allgather(np.array([counts for counts, _ in own]))
    weights = group.allgather_object([sums for _, sums in own])
    remaining = []
    for number, (search, ends) in enumerate(zip(searches, brackets, strict=True)):
        sums = [sum(of_ranks) for of_ranks in zip(*[r[number] for r in weights], strict=True)]
        left = _continued(search, ends, sizes[:, number], sums, found)
        remaining += [] if left is None else [left]
    return remaining


def _bracket(search: _Search, sample: Weighted, rounds: int) -> tuple[Any, Any]:
    """Return two elements that probably bracket the quantile; None for an open end."""
    size = len(sample.values)
    weights = np.cumsum(sample.weights)
    middle = size // 2
    # Every other round halves the elements instead: the sample may lack a few heavy elements.
    if not rounds % 2 and weights[-1] > 0 and search.weight > 0:
        middle = int(np.searchsorted(weights, weights[-1] * search.share))
    width = min(int(SPREAD * sqrt(size) / 2) + 1, size // 4)
    low = sample.values[middle - width] if middle >= width else None
    high = sample.values[middle + width] if middle + width < size else None
    return low, high


def _measured(part: Weighted, low: Any, high: Any) -> tuple[list[int], list[int]]:
    """Return counts and weights of elements below, inside, and equal to the low and high end."""
    values = part.values
    nothing = np.zeros(values.shape, bool)
    under = nothing if low is None else values < low
    inside = ~under if high is None else ~under & (values <= high)
    ends = [nothing if end is None else values == end for end in (low, high)]
    if low is not None and high is not None and low == high:
        ends[1] = nothing
    found = [part.where(mask) for mask in (under, inside, *ends)]
    return [one.values.size for one in found], [one.weight for one in found]


def _continued(
    search: _Search, ends: tuple[Any, Any], sizes: Array, sums: Sequence[int], found: list[Array]
) -> _Search | None:
    """Return a search among fewer candidates; None if the quantile is found.

    Parameters
    ----------
    search : _Search
        The search before this round.
    ends : tuple of scalar or None
        The ends of the bracket.
    sizes, sums
        Counts and weights of all ranks, as :func:`_measured` returns them.
    found : list of array
        Receives the result.
    """
    (low, high), target = ends, search.target
    w_below, w_inside, w_low, w_high = sums
    before = search.below + w_below
    if low is not None and target.reached(before):
        under = search.part.where(search.part.values < low)
        return _Search(target, under, sizes[:, 0], w_below, search.below, low)
    if low is not None and target.reached(before + w_low):
        search.answer(low, found)
        return None
    if high is not None and not target.reached(before + w_inside - w_high):
        return _continued_above(search, high, sizes, sums, found)
    return _continued_inside(search, ends, sizes, sums, found)


def _continued_above(
    search: _Search, high: Any, sizes: Array, sums: Sequence[int], found: list[Array]
) -> _Search | None:
    """Continue the search from the high end of the bracket on."""
    w_below, w_inside, _, _ = sums
    below = search.below + w_below + w_inside
    rest = search.sizes - sizes[:, 0] - sizes[:, 1]
    if not rest.any() or search.target.reached(below):
        search.answer(high, found)
        return None
    over = search.part.where(search.part.values > high)
    weight = search.weight - w_below - w_inside
    return _Search(search.target, over, rest, weight, below, search.cap)


def _continued_inside(
    search: _Search, ends: tuple[Any, Any], sizes: Array, sums: Sequence[int], found: list[Array]
) -> _Search | None:
    """Continue the search strictly inside the bracket."""
    (low, high), part = ends, search.part
    w_below, w_inside, w_low, w_high = sums
    cap = search.cap if high is None else high
    rest = sizes[:, 1] - sizes[:, 2] - sizes[:, 3]
    if not rest.any():
        search.answer(low if cap is None else cap, found)
        return None
    within = np.ones(part.values.shape, bool) if low is None else part.values > low
    if high is not None:
        within &= part.values < high
    weight, below = w_inside - w_low - w_high, search.below + w_below + w_low
    return _Search(search.target, part.where(within), rest, weight, below, cap)
