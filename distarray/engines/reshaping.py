"""Reshaping of arrays: a view if every element stays on its rank, else one exchange."""

from collections.abc import Callable
from functools import lru_cache
from math import lcm, prod
from typing import Any, NamedTuple

import numpy as np

from distarray.array import DistArray, empty, wrap
from distarray.array.base import raw_block
from distarray.array.memory import is_shared
from distarray.array.recutting import recut
from distarray.array.sharing import ancestor, begun, derived, link
from distarray.array.storage import can_merge, is_contiguous, is_natural, natural, vacant
from distarray.layout import (
    Cut,
    Entries,
    Interval,
    Layout,
    ReshapeGroup,
    regrouped_cut,
    reshape_groups,
    view_layout,
)
from distarray.plan import Route
from distarray.plan.flat import FlatPiece, plan_reshape
from distarray.typing import Array, ArrayLike

__all__ = ["Groups", "Viewable", "in_line", "refitted", "reshaped", "reshaped_layout"]

#: Groups of adjacent dimensions before and after a reshape, as (old, new) pairs of intervals.
Groups = tuple[ReshapeGroup, ...]
#: ``viewable(x, groups)``: True if the blocks of an array allow a view; the same on all ranks.
Viewable = Callable[[DistArray, Groups], bool]


def _can_merge(x: DistArray, groups: Groups) -> bool:
    return can_merge(x, [old for old, _ in groups])


def in_line(x: ArrayLike) -> Any:
    """Return the elements in C order in one dimension; the result must not be written to."""
    return refitted(x, (x.size,)) if isinstance(x, DistArray) else np.ravel(x)


def refitted(x: DistArray, shape: tuple[int, ...]) -> DistArray:
    """Reshape `x` for reading only: each rank decides whether its block is a view."""
    if x.layout.partials:
        x.settle()
    return reshaped(x, shape, viewable=_on_each_rank)


def _on_each_rank(x: DistArray, groups: Groups) -> bool:
    """Allow a view; each rank's own reshape then views or copies its block."""
    return True


class _Reshape(NamedTuple):
    """Plan of a reshape from one layout to another shape.

    Attributes
    ----------
    before : Entries or None
        The view that drops dimensions of extent 1, if there are any.
    groups : tuple of ReshapeGroup
        The groups of the remaining dimensions.
    layout : Layout
        The layout of the result without its dimensions of extent 1.
    stays : bool
        True if every element stays on its rank.
    after : Entries or None
        The view that adds dimensions of extent 1, if there are any.
    """

    before: Entries | None
    groups: Groups
    layout: Layout
    stays: bool
    after: Entries | None


@lru_cache(maxsize=2048)
def _plan(layout: Layout, shape: tuple[int, ...]) -> _Reshape:
    before = tuple([0 if n == 1 else (0, 1, n) for n in layout.shape])
    after = tuple([None if n == 1 else (0, 1, n) for n in shape])
    core = view_layout(layout, before)
    extents = tuple([n for n in shape if n != 1])
    groups = reshape_groups(core.shape, extents)
    cuts: list[Cut] = []
    stays = True
    for old, new in groups:
        found = regrouped_cut(core.cuts[slice(*old)], extents[slice(*new)])
        if found is None:
            stays = False
            found = _recut(core, old, extents[slice(*new)])
        cuts += found
    return _Reshape(
        before if 0 in before else None,
        groups,
        core.with_cuts(cuts),
        stays,
        after if None in after else None,
    )


def reshaped_layout(layout: Layout, shape: tuple[int, ...]) -> tuple[Layout, bool]:
    """Return the layout after a reshape, and True if every element stays on its rank."""
    if not layout.size:
        return Layout.replicated(shape, layout.mesh_shape), True
    plan = _plan(layout, shape)
    result = plan.layout if plan.after is None else view_layout(plan.layout, plan.after)
    return result, plan.stays


def reshaped(
    x: DistArray,
    shape: tuple[int, ...],
    copy: bool | None = None,
    viewable: Viewable = _can_merge,
) -> DistArray:
    """Reshape `x`, with its elements in C order.

    Parameters
    ----------
    x : DistArray
        The array, without pending folds.
    shape : tuple of int
        A shape of equally many elements.
    copy : bool, optional
        As in :func:`numpy.reshape`.
    viewable : callable
        Returns True if the result can be a view when every element stays on its rank.

    Raises
    ------
    ValueError
        If `copy` is False and the result cannot be a view; on all ranks.

    Cost
    ----
    One exchange unless every element stays on its rank.
    """
    mesh = x.mesh
    if isinstance(x.block, np.generic):
        if not shape:
            return x
        x = x.like(mesh.asarray(x.block))
    if not x.size:
        return _of_nothing(x, shape, copy)
    plan, known = _plan(x.layout, shape), is_natural(x)
    if plan.before is not None:
        x = x.sliced(plan.before)
    viewed = _is_viewed(x, plan, copy, known, viewable)
    if viewed and plan.stays:
        return derived(x, lambda y: _viewed(y, plan, known))
    if viewed and viewable is not _on_each_rank:
        return _shared(x, plan, known)
    block = _copied(x, plan)
    result = _expanded(wrap(block, plan.layout, mesh), block, plan)
    # Ranks without elements may not know that the other ranks have copied.
    return natural(result) if known or copy or not plan.stays else result


def _shared(x: DistArray, plan: _Reshape, known: bool) -> DistArray:
    """Reshape with NumPy's view semantics, although elements change rank."""
    moved = _moved_cut(x, plan)
    if moved is not None:
        plan = plan._replace(stays=True, layout=moved)
        return derived(x, lambda y: _viewed(y, plan, known))
    begun(x)
    block = _copied(x, plan)
    result = wrap(block, plan.layout, x.mesh)
    link(x, result, Refitted(plan.groups), lambda y: _refitted(y, plan))
    result = _expanded(result, block, plan)
    return natural(result) if known else result


def _copied(x: DistArray, plan: _Reshape) -> Array:
    """Return this rank's block of a copying reshape, without the dimensions of extent 1."""
    if plan.stays:
        copied: Array = x.block.copy("C").reshape(plan.layout.local_shape(x.mesh.coords))
        return copied
    return _redistributed(x, plan.layout, plan.groups)


def _expanded(result: DistArray, block: Array, plan: _Reshape) -> DistArray:
    """Add the dimensions of extent 1 to the result."""
    if plan.after is not None:
        result = result.sliced(plan.after)
        if is_shared(result):
            return result
        if result.block.size == block.size:  # indexing makes strides of 0; NumPy's reshape does not
            result.block = block.reshape(result.block.shape)
    return result


def _viewed(x: DistArray, plan: _Reshape, known: bool) -> DistArray | None:
    """Reshape an array as a view by a plan; None if its own cut would make elements move."""
    layout = _regrouped(x.layout, plan)
    if layout is None:
        return None
    block = x.block.reshape(layout.local_shape(x.mesh.coords))
    result = _expanded(wrap(block, layout, x.mesh), block, plan)
    return natural(result) if known else result


def _refitted(x: DistArray, plan: _Reshape) -> DistArray:
    """Reshape an array that is whole on this rank, without the dimensions of extent 1."""
    shape = plan.layout.shape
    return wrap(x.block.reshape(shape), Layout.replicated(shape, x.layout.mesh_shape), x.mesh)


@lru_cache(maxsize=2048)
def _regrouped(layout: Layout, plan: _Reshape) -> Layout | None:
    """Return the layout of a view by a plan's groups; None if elements would have to move."""
    cuts: list[Cut] = []
    for old, new in plan.groups:
        found = regrouped_cut(layout.cuts[slice(*old)], plan.layout.shape[slice(*new)])
        if found is None:
            return None
        cuts += found
    return layout.with_cuts(cuts)


class Refitted:
    """Transfer between an array and its reshape, which hold elements on different ranks."""

    overlaps = False

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    def down(self, source: Any, target: Any) -> None:
        """Copy the array's elements to the reshape."""
        _exchange(source, target.layout, self._groups, target.block)

    def up(self, source: Any, target: Any) -> None:
        """Copy the reshape's elements back to the array."""
        _exchange_back(source.block, target, source.layout, self._groups)


def _moved_cut(x: DistArray, plan: _Reshape) -> Layout | None:
    """Move the cut of an array's memory to row ends of its reshape, if this makes a view possible.

    Returns
    -------
    Layout or None
        The layout of a view by the plan's groups; None if the cut has not moved.

    Cost
    ----
    That of :func:`~distarray.array.recutting.recut`, if the layouts allow the cut to move.
    """
    top = ancestor(x)
    source = top._storage.source
    for also in dict.fromkeys([source.grain, 1]):
        found = _row_layout(top.layout, x.layout, plan, also)
        if found is None:
            continue
        if not is_contiguous(top, "C"):
            return None
        layout, grain = found
        if recut(top, layout, lambda y: _regrouped(y.layout, plan) is not None, x):
            source.grain = grain
            return _regrouped(x.layout, plan)
    return None


@lru_cache(maxsize=1024)
def _row_layout(
    top: Layout, layout: Layout, plan: _Reshape, also: int
) -> tuple[Layout, int] | None:
    """Return a layout of an array whose block borders are row ends of the reshape of its view.

    Its blocks have equally many rows, like the blocks of a new array of the reshape's shape.

    Parameters
    ----------
    top, layout : Layout
        Layouts of the array and of its view.
    plan : _Reshape
        Reshape of the view.
    also : int
        Another number of elements that must divide the borders: that of rows of other arrays.

    Returns
    -------
    tuple or None
        The layout, and the number of elements that divides its borders; 1 if the view does not
        begin at the array's first element. None if the cuts do not allow it, if neither row length
        divides the other, or if at most half as many ranks would hold elements.
    """
    if not (_is_cut_in_rows(layout) and _is_cut_in_rows(top)):
        return None
    (_, last), (_, last_new) = plan.groups[0]
    cut, base = layout.cuts[0], top.cuts[0]
    line, row = prod(layout.shape[1:last]), prod(plan.layout.shape[1:last_new])
    outer, outer_of_top = prod(layout.shape[1:]), prod(top.shape[1:])
    is_same = cut.step == base.step == 1 and cut.mesh_dims == base.mesh_dims
    if not is_same or cut.base * outer != base.base * outer_of_top:
        return None
    grain = lcm(line, row) * (outer // line), outer_of_top
    start = cut.offset * outer - base.offset * outer_of_top
    if lcm(line, row) > max(line, row) or start % outer_of_top:
        return None
    unit = lcm(*grain, also if also > 1 and not start else 1) // outer_of_top
    moved = base.in_units(unit, -(start // outer_of_top) % unit)
    if 2 * _held(moved) <= _held(base):
        return None
    return top.replace(0, moved), 1 if start else unit * outer_of_top


def _is_cut_in_rows(layout: Layout) -> bool:
    """Return True if the first dimension is cut, and no other dimension."""
    return [dim for dim, cut in enumerate(layout.cuts) if cut.parts > 1] == [0]


def _held(cut: Cut) -> int:
    """Return the number of blocks that have elements."""
    return sum([start < stop for start, stop in map(cut.interval, range(cut.parts))])


def _is_viewed(
    x: DistArray, plan: _Reshape, copy: bool | None, known: bool, viewable: Viewable
) -> bool:
    """Return True if the result is a view; raise NumPy's ValueError if it must be and cannot.

    `known` is True if all blocks are known to be in C order, without gaps.
    """
    if not copy and (known or viewable(x, plan.groups)):
        return True
    if copy is False:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    return False


def _of_nothing(x: DistArray, shape: tuple[int, ...], copy: bool | None) -> DistArray:
    """Return an array without elements; a view of a read-only array is read-only, too."""
    layout = Layout.replicated(shape, x.mesh.shape)
    return (
        empty(layout, x.dtype, x.mesh)
        if copy
        else wrap(vacant(raw_block(x), layout, x.mesh), layout, x.mesh)
    )


def _recut(layout: Layout, old: Interval, extents: tuple[int, ...]) -> list[Cut]:
    """Cut one of a group's new dimensions by all mesh dimensions that cut the old ones."""
    mesh_dims = tuple(sorted([m for cut in layout.cuts[slice(*old)] for m in cut.mesh_dims]))
    radix = tuple([layout.mesh_shape[m] for m in mesh_dims])
    parts = prod(radix)
    chosen = 0
    for dim, extent in enumerate(extents):
        # The first dimension that gives work to more than half of the ranks, in few ranges each.
        if 2 * extent > parts * -(-extent // parts) and prod(extents[:dim]) <= 64:
            chosen = dim
            break
    cuts = [Cut.whole(extent) for extent in extents]
    cuts[chosen] = Cut.chunked(extents[chosen], mesh_dims, radix)
    return cuts


def _redistributed(x: DistArray, layout: Layout, groups: Groups) -> Array:
    """Exchange elements with other ranks; return this rank's block of the result."""
    target: Array = x.mesh.xp.empty(layout.local_shape(x.mesh.coords), x.dtype)
    _exchange(x, layout, groups, target)
    return target


def _exchange(x: DistArray, layout: Layout, groups: Groups, target: Array) -> None:
    """Copy an array's elements to the blocks of its reshape; collective."""
    mesh = x.mesh
    plan = plan_reshape(x.layout, layout, groups, mesh.coords)
    route = Route(x.layout, layout)
    if mesh.group.guarded:  # ranks without elements to send must raise too
        mesh.group.check_exchange(plan.elements_sent * x.itemsize, route)
    for turn in range(plan.rounds):
        mesh.group.exchange(
            [(peer, x.block[p[turn].slices]) for peer, p in plan.sends if turn < len(p)],
            [(peer, _landing(target, p[turn])) for peer, p in plan.receives if turn < len(p)],
            route,
        )
    for piece in plan.kept:
        landing = _landing(target, piece)
        landing[...] = x.block[piece.slices].reshape(landing.shape)


def _exchange_back(block: Array, x: DistArray, layout: Layout, groups: Groups) -> None:
    """Copy the elements of a reshape's blocks back to the array, by the same plan; collective."""
    mesh = x.mesh
    plan = plan_reshape(x.layout, layout, groups, mesh.coords)
    route = Route(layout, x.layout)
    if mesh.group.guarded:
        sent = sum([piece.size for _, pieces in plan.receives for piece in pieces])
        mesh.group.check_exchange(sent * x.itemsize, route)
    for turn in range(plan.rounds):
        mesh.group.exchange(
            [(peer, _landing(block, p[turn])) for peer, p in plan.receives if turn < len(p)],
            [(peer, x.block[p[turn].slices]) for peer, p in plan.sends if turn < len(p)],
            route,
        )
    for piece in plan.kept:
        place = x.block[piece.slices]
        place[...] = _landing(block, piece).reshape(place.shape)


def _landing(target: Array, piece: FlatPiece) -> Array:
    """Return the view of a contiguous target block that a piece fills."""
    where = piece.landing
    return target.reshape(where.flat_shape)[where.stretches].reshape(where.boxed)[where.slices]
