"""Order statistics of distributed lines by selection: no line is sorted or gathered whole.

In each round, the ranks draw a sample of the candidates. Two elements of the sample bracket the
wanted element. The ranks count the elements below and inside the bracket, and keep those inside
(Floyd and Rivest, Expected time bounds for selection, Commun. ACM 18, 1975). Elements equal to an
end of the bracket are counted separately, so that every round leaves fewer candidates, however many
elements are equal. The last few candidates are gathered and sorted. All searches, of several order
statistics in several lines, share their rounds.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt
from typing import Any, Literal

import numpy as np

from distarray.array import faults
from distarray.array.portable import beside
from distarray.comm.group import Group
from distarray.engines.tiles import TILE
from distarray.layout import Fold
from distarray.typing import Array

__all__ = ["each", "select"]

#: Number of candidates of a search up to which every rank gathers and sorts them; less if there
#: are many searches.
GATHERED = 1 << 14
#: Lower bound, per search, of the limits GATHERED and SAMPLED when many searches share them.
FEW = 256
#: Number of elements of a sample; less if there are many searches.
SAMPLED = 1 << 12
#: Half width of a bracket in standard deviations of the sampled position: one in 2000 misses.
SPREAD = 3.5
#: Number of brackets in one line above which a rank sorts its candidates once.
SORTED_ABOVE = 8


@dataclass(slots=True)
class _Search:
    """Search for the elements at some positions, in a range of one sorted line.

    Attributes
    ----------
    line : int
        Number of the line.
    values : array
        This rank's elements of the range, in any order.
    sizes : array of int
        Number of elements of the range on each rank.
    below : int
        Number of elements of the line before the range.
    wanted : list of int
        Positions in the sorted line, in ascending order.
    ordered : bool
        True if `values` is sorted.
    """

    line: int
    values: Array
    sizes: Array
    below: int
    wanted: list[int]
    ordered: bool = False

    @property
    def total(self) -> int:
        """Number of elements of the range, on all ranks."""
        return int(self.sizes.sum())


@dataclass(slots=True)
class _Bracket:
    """Bracket of some wanted positions: two elements; None for an open end."""

    search: _Search
    low: Any
    high: Any
    wanted: list[int]


@dataclass(slots=True)
class _Parts:
    """This rank's elements inside a bracket, and counts of its elements relative to the bracket."""

    inside: Array
    #: Counts of elements: below, inside, equal to the low end, equal to the high end.
    counts: tuple[int, int, int, int]


def select(
    lines: Sequence[Array],
    sizes: Array,
    wanted: Sequence[Sequence[int]],
    group: Group,
    to_host: Callable[[Array], Array],
) -> list[dict[int, Any]]:
    """Find the elements at given positions of the sorted lines.

    Parameters
    ----------
    lines : sequence of array
        This rank's elements of each line, 1-d, without NaN; not modified.
    sizes : array of int
        Number of elements per rank and line: (ranks, lines).
    wanted : sequence of sequence of int
        For each line the positions of the wanted elements, each within the line's global length.
    group : Group
        The ranks that share the lines. The call is collective. A line may be empty on some ranks.
    to_host : callable
        Copies a block to host memory.

    Returns
    -------
    list of dict
        For each line, the elements by their positions; on every rank.

    Cost
    ----
    Two small allgathers per round, of a sample and of the counts, and one of at most `GATHERED`
    candidates at the end. Usually two rounds, and about as many passes over the block.
    """
    found: list[dict[int, Any]] = [{} for _ in lines]
    searches = [
        _Search(number, line, sizes[:, number], 0, sorted(set(positions)))
        for number, (line, positions) in enumerate(zip(lines, wanted, strict=True))
        if positions
    ]
    rounds = 0
    while searches:
        limit = each(GATHERED, len(searches))
        few = [search for search in searches if search.total <= limit]
        many = [search for search in searches if search.total > limit]
        _gather(few, found, group, to_host)
        searches = _narrow(many, found, group, to_host, rounds)
        rounds += 1
    _sign_zeros(lines, found, group)
    return found


def each(few: int, searches: int) -> int:
    """Return the limit of elements per search: `few` for up to 7 searches, else less, >= FEW."""
    return max(FEW, few // max(1, searches // 4))


def _shared(parts: Sequence[Array], counts: Array, group: Group) -> list[Array]:
    """Allgather and sort each search's parts; `counts` are their lengths (ranks, searches)."""
    received = group.allgather_varied(np.concatenate(parts), counts.sum(1).tolist())
    cuts = np.cumsum(counts, axis=1)[:, :-1]
    pieces = [np.split(block, cut) for block, cut in zip(received, cuts, strict=True)]
    return [_sorted(np.concatenate(of_ranks)) for of_ranks in zip(*pieces, strict=True)]


def _sorted(values: Array) -> Array:
    return np.sort(values, kind=faults.sort_kind(values.dtype))


def _gather(
    searches: Sequence[_Search],
    found: list[dict[int, Any]],
    group: Group,
    to_host: Callable[[Array], Array],
) -> None:
    """Finish searches with few candidates: gather and sort them, and store the results."""
    if not searches:
        return
    counts = np.stack([search.sizes for search in searches], axis=1)
    parts = [to_host(search.values) for search in searches]
    for search, values in zip(searches, _shared(parts, counts, group), strict=True):
        for position in search.wanted:
            found[search.line][position] = values[position - search.below]


def _narrow(
    searches: Sequence[_Search],
    found: list[dict[int, Any]],
    group: Group,
    to_host: Callable[[Array], Array],
    rounds: int,
) -> list[_Search]:
    """Run one round; return the remaining searches, each with fewer candidates."""
    if not searches:
        return []
    brackets = []
    for search, sample in zip(searches, _samples(searches, group, to_host, rounds), strict=True):
        own = _brackets(search, sample)
        if len(own) > SORTED_ABOVE and not search.ordered:
            search.values, search.ordered = _sorted(search.values), True
        brackets += own
    parts = [_parted(bracket) for bracket in brackets]
    counts = group.allgather(np.array([part.counts for part in parts], np.int64))
    remaining = []
    for number, (bracket, part) in enumerate(zip(brackets, parts, strict=True)):
        remaining += _continued(bracket, part, counts[:, number], found[bracket.search.line])
    return remaining


def _samples(
    searches: Sequence[_Search], group: Group, to_host: Callable[[Array], Array], rounds: int
) -> list[Array]:
    """Draw a sorted sample of each search's candidates, in proportion to the ranks' counts."""
    generator = np.random.default_rng((rounds, group.rank))
    counts, parts = [], []
    for search in searches:
        asked = each(SAMPLED, len(searches)) + 32 * len(search.wanted)
        shares = -(-search.sizes * asked // search.total)
        counts.append(shares)
        chosen = generator.integers(0, max(1, search.values.size), int(shares[group.rank]))
        parts.append(to_host(search.values[beside(chosen, search.values)]))
    return _shared(parts, np.stack(counts, axis=1), group)


def _brackets(search: _Search, sample: Array) -> list[_Bracket]:
    """Return brackets from sample elements that almost certainly enclose the wanted positions."""
    size, total = len(sample), search.total
    spans: list[tuple[int, int, list[int]]] = []
    for position in search.wanted:
        share = (position - search.below + 0.5) / total
        # At most a quarter of the sample on either side, so that one end of the bracket exists.
        width = min(SPREAD * sqrt(size * share * (1 - share)) + 1, size / 4)
        low, high = floor(share * size - width), ceil(share * size + width)
        # A joint bracket of more than half of the sample would not narrow the search enough.
        if spans and low <= spans[-1][1] and high - spans[-1][0] < size // 2:
            spans[-1] = (spans[-1][0], high, [*spans[-1][2], position])
        else:
            spans.append((low, high, [position]))
    return [
        _Bracket(
            search,
            sample[low] if low >= 0 else None,
            sample[high] if high < size else None,
            positions,
        )
        for low, high, positions in spans
    ]


def _parted(bracket: _Bracket) -> _Parts:
    low, high = bracket.low, bracket.high
    values = bracket.search.values
    if bracket.search.ordered:
        return _parted_in_order(values, low, high)
    below, inside = 0, []
    for start in range(0, values.size, TILE):
        tile = values[start : start + TILE]
        chosen = None if low is None else tile >= low
        if chosen is not None:
            below += tile.size - int(np.count_nonzero(chosen))
        if high is not None:
            chosen = tile <= high if chosen is None else np.logical_and(chosen, tile <= high)
        inside.append(tile[chosen])
    kept = np.concatenate(inside) if inside else values
    equal_low = 0 if low is None else int(np.count_nonzero(kept == low))
    equal_high = 0 if high is None or high == low else int(np.count_nonzero(kept == high))
    return _Parts(kept, (below, kept.size, equal_low, equal_high))


def _parted_in_order(values: Array, low: Any, high: Any) -> _Parts:
    def place(value: Any, side: Literal["left", "right"]) -> int:
        return int(np.searchsorted(values, np.asarray(value, values.dtype, like=values), side))

    start = 0 if low is None else place(low, "left")
    stop = values.size if high is None else place(high, "right")
    equal_low = 0 if low is None else place(low, "right") - start
    equal_high = 0 if high is None or high == low else stop - place(high, "left")
    return _Parts(values[start:stop], (start, stop - start, equal_low, equal_high))


def _continued(
    bracket: _Bracket, parts: _Parts, counts: Array, found: dict[int, Any]
) -> list[_Search]:
    """Store the elements that equal an end of the bracket; return searches for the others."""
    search = bracket.search
    below, inside, equal_low, equal_high = counts.sum(0).tolist()
    first = search.below + below
    bounds = (first, first + equal_low, first + inside - equal_high, first + inside)
    groups: list[list[int]] = [[], [], [], [], []]
    for position in bracket.wanted:
        groups[bisect_right(bounds, position)].append(position)
    under, at_low, between, at_high, over = groups
    found.update(dict.fromkeys(at_low, bracket.low) | dict.fromkeys(at_high, bracket.high))
    ordered, line = search.ordered, search.line
    left = []
    if under:
        values = search.values[search.values < bracket.low]
        left.append(_Search(line, values, counts[:, 0], search.below, under, ordered))
    if between:
        sizes = counts[:, 1] - counts[:, 2] - counts[:, 3]
        values = _without_ends(parts, bracket)
        left.append(_Search(line, values, sizes, first + equal_low, between, ordered))
    if over:
        sizes = search.sizes - counts[:, 0] - counts[:, 1]
        values = search.values[search.values > bracket.high]
        left.append(_Search(line, values, sizes, first + inside, over, ordered))
    return left


def _without_ends(parts: _Parts, bracket: _Bracket) -> Array:
    """Return the elements strictly inside the bracket."""
    values, (_, size, equal_low, equal_high) = parts.inside, parts.counts
    if bracket.search.ordered:
        return values[equal_low : size - equal_high]
    if equal_low:
        values = values[values != bracket.low]
    return values[values != bracket.high] if equal_high else values


def _sign_zeros(lines: Sequence[Array], found: list[dict[int, Any]], group: Group) -> None:
    """Order -0.0 before 0.0, so that the sign of a zero does not depend on the distribution."""
    touched = [
        number
        for number, answers in enumerate(found)
        if lines[number].dtype.kind == "f" and any(value == 0 for value in answers.values())
    ]
    if not touched:
        return
    own = [int(np.count_nonzero(np.signbit(lines[number]))) for number in touched]
    totals = group.allreduce(np.array(own, np.int64), Fold.SUM)
    for number, signed in zip(touched, totals.tolist(), strict=True):
        for position, value in found[number].items():
            if value == 0:
                found[number][position] = (
                    np.negative(abs(value)) if position < signed else abs(value)
                )
