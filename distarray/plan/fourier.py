"""Plan of a Fourier transform along several dimensions: their order, and the redistributions.

A rank transforms a dimension when it has the dimension whole. So the whole dimensions are
transformed first. Then cuts are moved from the remaining dimensions to finished dimensions, and so
on: one redistribution for a slab, one or two for a pencil (Dalcin, Mortensen, Keyes, Fast parallel
multidimensional FFT using advanced MPI, JPDC 128, 2019). If no other dimension is long enough to be
cut instead, a dimension is transformed although it is cut, in steps (:class:`Line`). The chosen
plan is that in which the busiest rank finishes first, by the constants below.
"""

from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from itertools import combinations, product
from math import prod
from typing import NamedTuple

from distarray.layout import Cut, Layout
from distarray.plan.lengths import Split, effort, good_length, split_length

__all__ = ["Kind", "Line", "Local", "Move", "Pass", "Step", "plan_transform"]

#: Seconds for a redistribution, and additional seconds for each rank that takes part in it.
_LATENCY, _LATENCY_EACH = 3e-5, 3e-6
#: Seconds per byte that a rank receives, and seconds per element and unit of effort.
_PER_BYTE, _PER_ELEMENT = 4e-10, 1.2e-9
#: Seconds for the bookkeeping of a transform in steps.
_LINE = 6e-4
#: Arrays of this many bytes or more are never replicated, unless NumPy's order is kept.
_REPLICATED = 1 << 21


class Kind(Enum):
    """Transforms along one dimension, by the names of NumPy's functions."""

    FFT = "fft"
    IFFT = "ifft"
    RFFT = "rfft"
    IRFFT = "irfft"
    HFFT = "hfft"
    IHFFT = "ihfft"

    @property
    def takes_half(self) -> bool:
        """True if the operand is half of a spectrum, and the result is real."""
        return self in (Kind.IRFFT, Kind.HFFT)

    @property
    def gives_half(self) -> bool:
        """True if the operand is real, and the result is half of a spectrum."""
        return self in (Kind.RFFT, Kind.IHFFT)


class Pass(NamedTuple):
    """Transform along one dimension.

    Attributes
    ----------
    kind : Kind
        The kind of transform.
    axis : int
        The dimension, counted from the front.
    length : int
        The argument `n` of NumPy: number of points of the real side, or of both sides.
    """

    kind: Kind
    axis: int
    length: int

    @property
    def taken(self) -> int:
        """Extent to which the operand is cropped or padded."""
        return self.length // 2 + 1 if self.kind.takes_half else self.length

    @property
    def given(self) -> int:
        """Extent of the result."""
        return self.length // 2 + 1 if self.kind.gives_half else self.length


class Local(NamedTuple):
    """Step in which each rank transforms its block; the result has `layout`."""

    step: Pass
    layout: Layout


class Move(NamedTuple):
    """Step that redistributes the array to `layout`."""

    layout: Layout


class Line(NamedTuple):
    """Step that transforms a cut dimension; the result is cut by the same ranks (`layout`).

    Attributes
    ----------
    split : Split or None
        Factors of the length; None if it cannot be divided, and Bluestein's algorithm is needed.
    """

    step: Pass
    layout: Layout
    split: Split | None


Step = Local | Move | Line
_Plan = tuple[float, tuple[Step, ...]]


@lru_cache(maxsize=1024)
def plan_transform(
    layout: Layout, passes: tuple[Pass, ...], sizes: tuple[int, int, int], in_order: bool = False
) -> tuple[Step, ...]:
    """Plan the steps of a Fourier transform.

    Parameters
    ----------
    layout : Layout
        Layout of the operand. It may have pending folds or lone coordinates if all dimensions to be
        transformed are whole.
    passes : tuple of Pass
        The passes in NumPy's order.
    sizes : tuple of int
        Bytes per element of the operand, of intermediate results, and of the result.
    in_order : bool
        Keep NumPy's order, and transform every line on one rank, so that the result has NumPy's
        bits. An array with no other dimension to cut is then replicated.
    """
    return _Search(sizes, in_order).best(layout, passes, True)[1]


def _whole(cut: Cut) -> bool:
    """Return True if each rank has all indices of a dimension."""
    return cut.parts == 1


class _Search:
    """Exhaustive search for the cheapest steps that do some passes."""

    def __init__(self, sizes: tuple[int, int, int], in_order: bool) -> None:
        self._sizes = sizes
        self._in_order = in_order
        self._known: dict[tuple[Layout, tuple[Pass, ...], bool], _Plan] = {}

    def best(self, layout: Layout, todo: tuple[Pass, ...], fresh: bool) -> _Plan:
        """Return the cheapest plan from this layout on; `fresh` is True before the first pass."""
        key = layout, todo, fresh
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._cheapest(layout, todo, fresh)
        return found

    def _cheapest(self, layout: Layout, todo: tuple[Pass, ...], fresh: bool) -> _Plan:
        cost, steps = self._local(layout, todo)
        for done in steps:
            layout, todo = done.layout, _without(todo, done.step)
        if not todo:
            return cost, steps
        best: _Plan | None = None
        fresh = fresh and not steps
        for toll, step in self._ways_on(layout, todo, fresh):
            moves = isinstance(step, Move)
            left = todo if isinstance(step, Move) else _without(todo, step.step)
            if best is not None and toll + self._at_least(step.layout, left) >= best[0]:
                continue
            after, rest = self.best(step.layout, left, fresh and moves)
            if best is None or toll + after < best[0]:
                best = toll + after, (step, *rest)
        if best is None:
            raise ValueError(f"{layout} cannot be transformed by {todo}")
        return cost + best[0], (*steps, *best[1])

    def _local(self, layout: Layout, todo: tuple[Pass, ...]) -> tuple[float, tuple[Local, ...]]:
        """Return cost and steps of the passes along whole dimensions that can come next."""
        cost = 0.0
        steps: list[Local] = []
        while True:
            here = [p for p in _allowed(todo, self._in_order) if _whole(layout.cuts[p.axis])]
            if not here:
                return cost, tuple(steps)
            chosen = here[0]
            todo = _without(todo, chosen)
            layout = _after(layout, chosen, Cut.whole(chosen.given))
            cost += _PER_ELEMENT * _block(layout) * effort(chosen.length)
            steps.append(Local(chosen, layout))

    def _at_least(self, layout: Layout, todo: tuple[Pass, ...]) -> float:
        """Return a lower bound of the remaining cost; it prunes most of the search."""
        elements = layout.size / prod(layout.mesh_shape)
        elements *= prod([min(1.0, p.given / max(layout.shape[p.axis], 1)) for p in todo])
        cost = _PER_ELEMENT * elements * sum([effort(p.length) for p in todo])
        if not all(_whole(layout.cuts[p.axis]) for p in todo):
            cost += _LATENCY + elements * min(self._sizes) * 0.5 * _PER_BYTE
        return cost

    def _ways_on(
        self, layout: Layout, todo: tuple[Pass, ...], fresh: bool
    ) -> Iterator[tuple[float, Move | Line]]:
        """Yield (cost, next step) if no remaining dimension is whole.

        A step moves cuts, or transforms a dimension along its cut.
        """
        size = self._sizes[0] if fresh else self._sizes[1]
        allowed = _allowed(todo, self._in_order)
        for count in range(len(allowed), 0, -1):
            for freed in combinations([p.axis for p in allowed], count):
                small = self._in_order or layout.size * size < _REPLICATED
                for target, ranks in _moved(layout, freed, small):
                    received = _block(target) * size * (1.0 - 1.0 / ranks)
                    yield _LATENCY + _LATENCY_EACH * ranks + received * _PER_BYTE, Move(target)
        if not self._in_order:
            for step in allowed:
                line = _line(layout, step)
                yield _line_cost(line, self._sizes[1]), line


def _allowed(todo: tuple[Pass, ...], in_order: bool) -> list[Pass]:
    """Return the passes that can come next.

    A pass from real numbers goes first, a pass to real numbers last.
    """
    if in_order or (todo and todo[0].kind.gives_half):
        return list(todo[:1])
    found: dict[int, Pass] = {}
    for step in todo:
        if step.kind.takes_half and len(todo) > 1:
            break
        found.setdefault(step.axis, step)
    return list(found.values())


def _without(todo: tuple[Pass, ...], done: Pass) -> tuple[Pass, ...]:
    place = todo.index(done)
    return todo[:place] + todo[place + 1 :]


def _after(layout: Layout, done: Pass, cut: Cut) -> Layout:
    """Return the layout with another cut of the dimension of a pass."""
    idle = layout.cuts[done.axis]
    if not cut.mesh_dims and idle.mesh_dims:  # mesh dimensions of size 1: kept
        cut = Cut.chunked(cut.extent, idle.mesh_dims, idle.radix)
    return layout.replace(done.axis, cut)


def _moved(layout: Layout, freed: tuple[int, ...], replicate: bool) -> Iterator[tuple[Layout, int]]:
    """Yield layouts in which some dimensions are whole, each with the number of ranks involved.

    With `replicate`, also those in which mesh dimensions no longer cut anything.
    """
    if layout.others:
        raise ValueError(f"{layout} has to be settled before dimensions {freed} can be whole")
    movers = [
        (m, size)
        for axis in freed
        for m, size in zip(layout.cuts[axis].mesh_dims, layout.cuts[axis].radix, strict=True)
        if size > 1
    ]
    ranks = prod([size for _, size in movers])
    targets = [d for d in range(layout.ndim) if d not in freed and layout.shape[d] > 1]
    choices = product([*targets, *[None] * replicate], repeat=len(movers))
    # Different dimensions come before the same dimension twice: an inverse transform then returns
    # to the original cuts.
    for places in sorted(choices, key=lambda places: len(places) - len(set(places))):
        owners: dict[int, list[int]] = {}
        for (mesh_dim, _), place in zip(movers, places, strict=True):
            if place is not None:
                owners.setdefault(place, []).append(mesh_dim)
        cuts = list(layout.cuts)
        for axis in freed:
            cuts[axis] = _recut(layout, axis, [], [m for m, _ in movers])
        for axis, added in owners.items():
            cuts[axis] = _recut(layout, axis, added, [])
        yield Layout.from_cuts(cuts, layout.mesh_shape), ranks


def _recut(layout: Layout, axis: int, added: list[int], dropped: list[int]) -> Cut:
    cut = layout.cuts[axis]
    mesh_dims = tuple(sorted([m for m in (*cut.mesh_dims, *added) if m not in dropped]))
    return Cut.chunked(cut.extent, mesh_dims, tuple([layout.mesh_shape[m] for m in mesh_dims]))


def _line(layout: Layout, step: Pass) -> Line:
    cut = layout.cuts[step.axis]
    result = Cut.chunked(step.given, cut.mesh_dims, cut.radix)
    return Line(step, _after(layout, step, result), split_length(step.length, cut.parts))


def _line_cost(line: Line, size: int) -> float:
    """Estimate the seconds of a `Line`: three redistributions and two transforms, or more."""
    cut = line.layout.cuts[line.step.axis]
    others = _block(line.layout) / max(_largest(cut), 1)
    moves, transforms, length, split = 3, 1, line.step.length, line.split
    if split is None:
        length = good_length(2 * length - 1, cut.parts)
        moves, transforms, split = 6, 3, split_length(length, cut.parts)
    work = effort(length) * 2.0 if split is None else split.effort
    block = others * length / cut.parts
    if line.step.kind.takes_half or line.step.kind.gives_half:
        block *= 1.0 if line.split is None else 0.6
    cost = _LINE * transforms + moves * (_LATENCY + _LATENCY_EACH * cut.parts)
    return cost + block * (moves * size * _PER_BYTE + transforms * work * _PER_ELEMENT)


def _block(layout: Layout) -> int:
    """Return the number of elements of the largest block."""
    return prod([_largest(cut) for cut in layout.cuts])


def _largest(cut: Cut) -> int:
    """Return the largest number of indices that a rank has; for views, an upper bound."""
    if cut.parts == 1:
        return cut.extent
    if cut.bounds is not None:
        longest = max([b - a for a, b in zip(cut.bounds[:-1], cut.bounds[1:], strict=True)])
    else:
        longest = cut.base
        for size in cut.radix:
            longest = -(-longest // size)
    return min(cut.extent, -(-longest // abs(cut.step)))
