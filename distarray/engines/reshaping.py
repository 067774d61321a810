"""Arrays in another shape: a view where every element stays on its rank, else one exchange."""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.array import DistArray, empty, wrap
from distarray.array.storage import can_merge, is_natural, natural, vacant
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

#: Neighbouring dimensions that become one or more others, as (old, new) pairs of intervals.
Groups = tuple[ReshapeGroup, ...]
#: ``viewable(x, groups, everywhere)``: whether the blocks of an array allow a view. The answer is
#: the same on all ranks; on those that hold nothing only with `everywhere`.
Viewable = Callable[[DistArray, Groups, bool], bool]


def _can_merge(x: DistArray, groups: Groups, everywhere: bool) -> bool:
    return can_merge(x, [old for old, _ in groups], everywhere)


def in_line(x: ArrayLike) -> Any:
    """The elements in C order in one dimension, to be read only."""
    return refitted(x, (x.size,)) if isinstance(x, DistArray) else np.ravel(x)


def refitted(x: DistArray, shape: tuple[int, ...]) -> DistArray:
    """`x` in another shape, to be read only: each rank decides whether that is a view."""
    if x.layout.partials:
        x.settle()
    return reshaped(x, shape, viewable=_on_each_rank)


def _on_each_rank(x: DistArray, groups: Groups, everywhere: bool) -> bool:
    """Let each rank's block decide, as its own reshape does."""
    return True


class _Reshape(NamedTuple):
    """The steps from arrays of a layout to another shape.

    Attributes
    ----------
    before : Entries or None
        The view that drops dimensions of extent 1, if there are any.
    groups : tuple of ReshapeGroup
        The groups of the other dimensions.
    layout : Layout
        The layout of the result without its dimensions of extent 1.
    stays : bool
        Whether every element stays on its rank.
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
    """The layout of an array in another shape, and whether every element stays on its rank."""
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
    """`x` in another shape, its elements in C order.

    Parameters
    ----------
    x : DistArray
        The array, without pending folds.
    shape : tuple of int
        A shape of equally many elements.
    copy : bool, optional
        As in :func:`numpy.reshape`.
    viewable : callable
        Whether the result can be a view where every element stays on its rank.

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
    if plan.stays:
        block = x.block if viewed else x.block.copy("C")
        block = block.reshape(plan.layout.local_shape(mesh.coords))
    else:
        block = _redistributed(x, plan.layout, plan.groups)
    result = wrap(block, plan.layout, mesh)
    if plan.after is not None:
        result = result.sliced(plan.after)
        if result.block.size == block.size:  # steps of 0, which indexing gives, are not NumPy's
            result.block = block.reshape(result.block.shape)
    # Ranks without elements may not know that the others have copied.
    return natural(result) if known or copy or not plan.stays else result


def _is_viewed(
    x: DistArray, plan: _Reshape, copy: bool | None, known: bool, viewable: Viewable
) -> bool:
    """Whether the result is a view; NumPy's ValueError if it has to be one and cannot.

    `known` says that all blocks are known to be in C order, without gaps.
    """
    if plan.stays and not copy and (known or viewable(x, plan.groups, copy is False)):
        return True
    if copy is False:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    return False


def _of_nothing(x: DistArray, shape: tuple[int, ...], copy: bool | None) -> DistArray:
    """An array without elements; a view of a read-only one is read-only, too."""
    layout = Layout.replicated(shape, x.mesh.shape)
    return (
        empty(layout, x.dtype, x.mesh)
        if copy
        else wrap(vacant(x.block, layout, x.mesh), layout, x.mesh)
    )


def _recut(layout: Layout, old: Interval, extents: tuple[int, ...]) -> list[Cut]:
    """The cuts of a group's new dimensions: one by all mesh dimensions that cut the old ones."""
    mesh_dims = tuple(sorted([m for cut in layout.cuts[slice(*old)] for m in cut.mesh_dims]))
    radix = tuple([layout.mesh_shape[m] for m in mesh_dims])
    parts = prod(radix)
    chosen = 0
    for dim, extent in enumerate(extents):
        # The first dimension that keeps more than half of the ranks busy, in few stretches each.
        if 2 * extent > parts * -(-extent // parts) and prod(extents[:dim]) <= 64:
            chosen = dim
            break
    cuts = [Cut.whole(extent) for extent in extents]
    cuts[chosen] = Cut.chunked(extents[chosen], mesh_dims, radix)
    return cuts


def _redistributed(x: DistArray, layout: Layout, groups: Groups) -> Array:
    """This rank's block of the result, of which elements come from other ranks."""
    mesh = x.mesh
    plan = plan_reshape(x.layout, layout, groups, mesh.coords)
    route = Route(x.layout, layout)
    if mesh.group.guarded:  # ranks that have nothing to send must refuse too
        mesh.group.check_exchange(plan.elements_sent * x.itemsize, route)
    target: Array = mesh.xp.empty(layout.local_shape(mesh.coords), x.dtype)
    for turn in range(plan.rounds):
        mesh.group.exchange(
            [(peer, x.block[p[turn].slices]) for peer, p in plan.sends if turn < len(p)],
            [(peer, _landing(target, p[turn])) for peer, p in plan.receives if turn < len(p)],
            route,
        )
    for piece in plan.kept:
        landing = _landing(target, piece)
        landing[...] = x.block[piece.slices].reshape(landing.shape)
    return target


def _landing(target: Array, piece: FlatPiece) -> Array:
    """The part of a contiguous target block that a piece fills, as a view."""
    where = piece.landing
    return target.reshape(where.flat_shape)[where.stretches].reshape(where.boxed)[where.slices]
