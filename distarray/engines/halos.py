"""Overlapping sections of a dimension: this rank's block with what its neighbours hold beside it.

A layout gives every index one owner. What moves a window over a cut dimension needs some indices
on two ranks or more; they are brought here, directly into one array.
"""

from collections.abc import Callable
from typing import Any

from distarray.array import DistArray
from distarray.layout import Cut
from distarray.layout.cut import Interval
from distarray.typing import Array

__all__ = ["spanning"]


def spanning(
    x: DistArray,
    dim: int,
    needs: Callable[[int], Interval],
    askers: Callable[[int, int], range],
) -> Array:
    """The elements that this rank needs along a cut dimension, whoever holds them.

    Parameters
    ----------
    x : DistArray
        In a plain layout.
    dim : int
        The dimension.
    needs : callable
        Number of a block of the dimension's cut -> start and stop of the indices it needs; the
        start is not above the stop, and both lie within the extent.
    askers : callable
        Start and stop of some indices -> the blocks that may need any of them.

    Returns
    -------
    array
        The block itself, or a view of it, if nothing has to be received.

    Cost
    ----
    One message a pair of ranks, of what one lacks and the other holds.
    """
    cut, mesh, block = x.layout.cuts[dim], x.mesh, x.block
    if mesh.coords is None:
        return block
    part = cut.part(mesh.coords)
    own = cut.interval(part)
    low, high = needs(part)
    if cut.parts == 1:
        return block[_along(dim, low - own[0], high - own[0])]
    sends = []
    for peer in askers(*own):
        shared = _common(needs(peer), own)
        if peer != part and shared is not None:
            sends.append((peer, block[_along(dim, shared[0] - own[0], shared[1] - own[0])]))
    shape = list(block.shape)
    shape[dim] = high - low
    target = mesh.xp.empty(tuple(shape), block.dtype)
    receives = []
    for peer in cut.owners(low, high):
        shared = _common((low, high), cut.interval(peer))
        if shared is None:
            continue
        view = target[_along(dim, shared[0] - low, shared[1] - low)]
        if peer == part:
            view[...] = block[_along(dim, shared[0] - own[0], shared[1] - own[0])]
        else:
            receives.append((peer, view))
    _exchange(x, cut, sends, receives)
    return target


def _exchange(x: DistArray, cut: Cut, sends: list[Any], receives: list[Any]) -> None:
    """Blocks of the cut are ranks of the group along its mesh dimensions, in this order."""
    group = x.mesh.subgroup(cut.mesh_dims)
    full = [(peer, view) for peer, view in sends if view.size]
    group.exchange(full, [(peer, view) for peer, view in receives if view.size], "halo")


def _along(dim: int, start: int, stop: int) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, slice(start, stop))


def _common(first: Interval, second: Interval) -> Interval | None:
    """What two ranges of indices share; None if nothing."""
    start, stop = max(first[0], second[0]), min(first[1], second[1])
    return (start, stop) if start < stop else None
