"""reshape and ravel: views where every element can stay on its rank, one redistribution else."""

from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, implements, wrap
from distarray.array.blocks import as_array
from distarray.comm.agree import agree
from distarray.layout import (
    Cut,
    Fold,
    Interval,
    Layout,
    ReshapeGroup,
    regrouped_cut,
    reshape_groups,
)
from distarray.ops.shape import permuted
from distarray.plan import Route
from distarray.plan.flat import FlatPiece, plan_reshape

__all__ = ["ravel", "reshape", "reshaped"]

Array = Any
_FLAG = np.empty((), np.bool_)


@implements(np.reshape, at=True)
def reshape(a: Any, /, shape: Any, order: Any = "C", *, copy: bool | None = None) -> DistArray:
    """The array's elements, in the same order, in another shape.

    Parameters
    ----------
    a : DistArray
        Any placement.
    shape : int or tuple of int
        The new shape; one extent may be -1 and follows from the others.
    order : {"C", "F", "A"}
        In which order elements are read and placed. "A" is "F" where the blocks are stored so.
    copy : bool, optional
        True copies always, False never. By default the result is a view where that is possible.

    Returns
    -------
    DistArray
        A view where every element can stay on its rank and NumPy can view the blocks: dimensions
        that are whole on every rank are split and merged freely; a sharded one together with those
        after it, as long as the boundaries between blocks fall between indices of the new leading
        dimension. Otherwise a copy; then the dimensions that could not keep their cut get the
        canonical one, along the first that gives most ranks a part.

    Cost
    ----
    None for a view. For a copy that moves, each rank sends what it holds of another's new block
    and nothing else, in up to 2 k - 1 messages a pair where k dimensions are merged; memory for
    source and result. ``copy=False`` and ``order="A"`` make the ranks agree by one small allreduce.

    Raises
    ------
    ValueError
        If the number of elements differs, or under ``copy=False`` if a copy is needed; on all
        ranks alike.
    """
    a = as_distarray(a)
    shape = _new_shape(a.size, shape, order)
    if order in ("A", "a"):
        order = "F" if _stored_in_reverse(a) else "C"
    if order in ("F", "f"):
        turned = reshaped(permuted(a, range(a.ndim)[::-1]), shape[::-1], copy)
        return permuted(turned, range(turned.ndim)[::-1])
    return reshaped(a, shape, copy)


@implements(np.ravel, at=True)
def ravel(a: Any, order: Any = "C") -> DistArray:
    """The array in one dimension; a view where :func:`reshape` gives one.

    Parameters
    ----------
    a : DistArray
        Any placement.
    order : {"C", "F", "A", "K"}
        As for :func:`reshape`; "K" reads the dimensions in the order in which the blocks store
        them.

    Returns
    -------
    DistArray

    Cost
    ----
    As :func:`reshape`.
    """
    a = as_distarray(a)
    _FLAG.ravel(order)  # raises for an order that is none
    if order in ("K", "k"):
        axes = _stored_order(a)
        return reshaped(permuted(a, axes), (a.size,), None)
    return reshape(a, (-1,), order) if a.size else reshape(a, (0,), "C")


def _new_shape(size: int, shape: Any, order: Any) -> tuple[int, ...]:
    """The new shape with -1 filled in; NumPy is asked, with an array that takes no memory."""
    found = np.broadcast_to(_FLAG, (size,)).reshape(shape, order=order)
    return tuple(found.shape)


def reshaped(x: DistArray, shape: tuple[int, ...], copy: bool | None = None) -> DistArray:
    """`x` in a shape of equally many elements, in C order."""
    if isinstance(x._block, np.generic):
        if not shape:
            return x
        x = x._like(as_array(x._block))
    if not x.size:
        layout = Layout.replicated(shape, x._mesh.shape)
        return wrap(x._mesh.xp.empty(layout.local_shape(x._mesh.coords), x.dtype), layout, x._mesh)
    core = _without_ones(x)
    extents = tuple([extent for extent in shape if extent != 1])
    result = _reshaped_core(core, extents, copy)
    if shape == extents:
        return result
    full = iter(result.shape)
    return result._view(tuple([None if extent == 1 else (0, 1, next(full)) for extent in shape]))


def _without_ones(x: DistArray) -> DistArray:
    if 1 not in x.shape:
        return x
    return x._view(tuple([0 if extent == 1 else (0, 1, extent) for extent in x.shape]))


def _reshaped_core(x: DistArray, shape: tuple[int, ...], copy: bool | None) -> DistArray:
    """The same between shapes whose extents are 2 or more."""
    groups = reshape_groups(x.shape, shape)
    layout, stays = _target(x._layout, shape, groups)
    viewed = stays and _viewable(x._block, groups)
    if copy is False:
        error = None if viewed else ValueError("Unable to avoid creating a copy while reshaping.")
        agree(x._mesh.group, error)
    coords = x._mesh.coords
    if not stays:
        return wrap(_redistributed(x, layout, groups), layout, x._mesh)
    block = x._block if viewed and not copy else x._block.copy("C")
    return wrap(block.reshape(layout.local_shape(coords)), layout, x._mesh)


def _target(
    layout: Layout, shape: tuple[int, ...], groups: tuple[ReshapeGroup, ...]
) -> tuple[Layout, bool]:
    """The layout of the result, and whether every element stays on its rank."""
    cuts: list[Cut] = []
    stays = True
    for old, new in groups:
        found = regrouped_cut(layout.cuts[slice(*old)], shape[slice(*new)])
        if found is None:
            stays = False
            found = _recut(layout, old, shape[slice(*new)])
        cuts += found
    return layout.with_cuts(cuts), stays


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


def _viewable(block: Array, groups: tuple[ReshapeGroup, ...]) -> bool:
    """Whether NumPy can merge the dimensions of each group without copying.

    Decided by the strides alone, also where a block has a single index or none along a dimension,
    so that ranks with blocks of different lengths decide alike.
    """
    for (first, last), _ in groups:
        for dim in range(first, last - 1):
            if block.strides[dim] != block.strides[dim + 1] * max(block.shape[dim + 1], 1):
                return False
    return True


def _redistributed(x: DistArray, layout: Layout, groups: tuple[ReshapeGroup, ...]) -> Array:
    mesh = x._mesh
    plan = plan_reshape(x._layout, layout, groups, mesh.coords)
    target = mesh.xp.empty(layout.local_shape(mesh.coords), x.dtype)
    for turn in range(plan.rounds):
        mesh.group.exchange(
            [(peer, x._block[p[turn].slices]) for peer, p in plan.sends if turn < len(p)],
            [(peer, _landing(target, p[turn])) for peer, p in plan.receives if turn < len(p)],
            Route(x._layout, layout),
        )
    for piece in plan.kept:
        landing = _landing(target, piece)
        landing[...] = x._block[piece.slices].reshape(landing.shape)
    return target


def _landing(target: Array, piece: FlatPiece) -> Array:
    """Where a piece belongs in a contiguous target block: a view of it."""
    where = piece.landing
    return target.reshape(where.flat_shape)[where.stretches].reshape(where.boxed)[where.slices]


# -- how the blocks are stored -------------------------------------------------------------------


def _stored_in_reverse(x: DistArray) -> bool:
    """Whether the blocks are stored in Fortran order and not in C order; the ranks agree."""
    return _stored_order(x, whole_only=True) == tuple(range(x.ndim))[::-1] and x.ndim > 1


def _stored_order(x: DistArray, whole_only: bool = False) -> tuple[int, ...]:
    """The dimensions from the farthest apart in memory to the nearest; the ranks agree.

    With `whole_only`, only contiguous blocks count, and others vote for C order. Ranks whose
    block leaves it open do not vote: a block with one index along all dimensions but one may be
    stored either way. It is C order if that is so on all ranks.
    """
    natural = tuple(range(x.ndim))
    if x.ndim < 2:
        return natural
    block = x.to_local()
    vote = -1
    long = sum([extent > 1 for extent in block.shape]) > 1
    if block.size and (long or len(set(block.strides)) == x.ndim):
        keys = [(-abs(stride), dim) for dim, stride in enumerate(block.strides)]
        order = tuple([dim for _, dim in sorted(keys)])
        if whole_only and not block.flags.f_contiguous:
            order = natural
        vote = sum([dim * x.ndim**place for place, dim in enumerate(order)])
    if not x._layout.is_replicated:
        vote = int(x._mesh.group.allreduce(np.array(vote), Fold.MAX, "storage order"))
    if vote < 0:
        return natural
    return tuple([vote // x.ndim**place % x.ndim for place in range(x.ndim)])
