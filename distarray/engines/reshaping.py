"""Elements in the same order in another shape: a view where every element can stay on its rank."""

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from distarray.array import DistArray, empty, wrap
from distarray.array.storage import (
    can_merge,
    is_natural,
    natural,
    vacant,
)
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
from distarray.typing import Array

__all__ = ["Array", "Groups", "in_line", "refitted", "reshaped"]


Groups = tuple[ReshapeGroup, ...]


def _can_merge(x: DistArray, groups: Groups, everywhere: bool) -> bool:
    return can_merge(x, [old for old, _ in groups], everywhere)


def in_line(x: Any) -> Any:
    """The elements in C order in one dimension, only to be read."""
    return refitted(x, (x.size,)) if isinstance(x, DistArray) else np.ravel(x)


def refitted(x: DistArray, shape: tuple[int, ...]) -> DistArray:
    """`x` in another shape, only to be read: whether that is a view is left to each rank."""
    if x.layout.partials:
        x.settle()
    return reshaped(x, shape, viewable=_whatever)


def _whatever(x: DistArray, groups: Groups, everywhere: bool) -> bool:
    return True


class _Reshape(NamedTuple):
    """How arrays of a layout get another shape.

    Attributes
    ----------
    before : Entries or None
        The view without dimensions of extent 1, if there are any.
    groups : tuple of ReshapeGroup
        Of what is left, old and new.
    layout : Layout
        Of the result, still without dimensions of extent 1.
    stays : bool
        Whether every element stays on its rank.
    after : Entries or None
        The view that adds dimensions of extent 1, if there are any.
    """

    before: Entries | None
    groups: tuple[ReshapeGroup, ...]
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


def reshaped(
    x: DistArray,
    shape: tuple[int, ...],
    copy: bool | None = None,
    viewable: Callable[[DistArray, Groups, bool], bool] = _can_merge,
) -> DistArray:
    """`x` in a shape of equally many elements, in C order.

    `viewable` says, on all ranks alike, whether it can be a view where every element stays.
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
    viewed = plan.stays and not copy and (known or viewable(x, plan.groups, copy is False))
    if copy is False and not viewed:
        raise ValueError("Unable to avoid creating a copy while reshaping.")
    if plan.stays:
        block = x.block if viewed else x.block.copy("C")
        block = block.reshape(plan.layout.local_shape(mesh.coords))
    else:
        block = _redistributed(x, plan.layout, plan.groups)
    result = wrap(block, plan.layout, mesh)
    if plan.after is not None:
        result = result.sliced(plan.after)
    # Ranks without elements may not know that the others have copied.
    return natural(result) if known or copy or not plan.stays else result


def _of_nothing(x: DistArray, shape: tuple[int, ...], copy: bool | None) -> DistArray:
    """An array without elements; a view of one that is read-only is read-only, too."""
    layout = Layout.replicated(shape, x.mesh.shape)
    return empty(layout, x.dtype, x.mesh) if copy else wrap(vacant(x, layout), layout, x.mesh)


def _recut(layout: Layout, old: Interval, extents: tuple[int, ...]) -> list[Cut]:
    """A canonical cut of one dimension of a group by all mesh dimensions that cut it before."""
    mesh_dims = tuple(sorted([m for cut in layout.cuts[slice(*old)] for m in cut.mesh_dims]))
    radix = tuple([layout.mesh_shape[m] for m in mesh_dims])
    parts = prod(radix)
    chosen = 0
    for dim, extent in enumerate(extents):
        # The first that keeps more than half of the ranks busy, but few stretches a rank.
        if 2 * extent > parts * -(-extent // parts) and prod(extents[:dim]) <= 64:
            chosen = dim
            break
    cuts = [Cut.whole(extent) for extent in extents]
    cuts[chosen] = Cut.chunked(extents[chosen], mesh_dims, radix)
    return cuts


def _redistributed(x: DistArray, layout: Layout, groups: tuple[ReshapeGroup, ...]) -> Array:
    mesh = x.mesh
    plan = plan_reshape(x.layout, layout, groups, mesh.coords)
    route = Route(x.layout, layout)
    if mesh.group.guarded:  # ranks that have nothing to send must refuse too
        mesh.group.check_exchange(plan.elements_sent * x.itemsize, route)
    target = mesh.xp.empty(layout.local_shape(mesh.coords), x.dtype)
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
    """Where a piece belongs in a contiguous target block: a view of it."""
    where = piece.landing
    return target.reshape(where.flat_shape)[where.stretches].reshape(where.boxed)[where.slices]
