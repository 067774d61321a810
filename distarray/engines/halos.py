"""Halos: this rank's block of a cut dimension, extended by elements that its neighbours own.

In a layout every index has one owner. An operation that moves a window over a cut dimension needs
some elements on several ranks; each rank receives them directly into one array.
"""

from collections.abc import Callable, Iterable

import numpy as np

from distarray.array import DistArray
from distarray.layout import Cut
from distarray.layout.cut import Interval
from distarray.typing import Array

__all__ = ["extended", "returned", "spanning"]

#: A block of the cut, and a view to send to it or to receive from it.
_Pair = tuple[int, Array]


def spanning(
    x: DistArray,
    dim: int,
    needs: Callable[[int], Interval],
    askers: Callable[[int, int], Iterable[int]],
) -> Array:
    """Return the elements that this rank needs along a cut dimension, whichever ranks hold them.

    Parameters
    ----------
    x : DistArray
        The array, in a plain layout.
    dim : int
        The dimension.
    needs : callable
        Maps the number of a block of the cut to the start and stop of the indices that it needs;
        ``0 <= start <= stop <= extent``.
    askers : callable
        Maps the start and stop of a range of indices to the blocks that may need any of them.

    Returns
    -------
    array
        The block itself or a view of it if the dimension is not cut.

    Cost
    ----
    One message per pair of ranks, with the elements that one rank needs and the other owns.
    """
    cut, mesh = x.layout.cuts[dim], x.mesh
    block: Array = x.block
    if mesh.coords is None:
        return block
    part = cut.part(mesh.coords)
    own = cut.interval(part)
    low, high = needs(part)
    if cut.parts == 1:
        return block[_along(dim, low - own[0], high - own[0])]
    sends: list[_Pair] = []
    for peer in askers(*own):
        shared = _common(needs(peer), own)
        if peer != part and shared is not None:
            sends.append((peer, block[_along(dim, shared[0] - own[0], shared[1] - own[0])]))
    shape = list(block.shape)
    shape[dim] = high - low
    target: Array = mesh.xp.empty(tuple(shape), block.dtype)
    receives: list[_Pair] = []
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


def extended(x: DistArray, dim: int, windows: Cut, beyond: int) -> Array:
    """Return the block, extended by the elements after it that its windows along `dim` cover.

    `windows` is the cut of the window positions, at the same places as the cut of `x`. There are
    `beyond` fewer positions than elements.

    Cost
    ----
    That of :func:`spanning`.
    """

    def needs(part: int) -> Interval:
        start, stop = windows.interval(part)
        return (start, stop + beyond) if start < stop else (0, 0)

    def askers(start: int, stop: int) -> range:
        return windows.owners(max(0, start - beyond), min(stop, windows.extent))

    return spanning(x, dim, needs, askers)


def returned(
    stretch: Array,
    written: Array | None,
    x: DistArray,
    needs: Callable[[int], Interval],
    askers: Callable[[int, int], Iterable[int]],
    backwards: bool = False,
) -> None:
    """Copy elements from :func:`spanning`, changed by the program, back to a 1-d array.

    Parameters
    ----------
    stretch : array
        This rank's elements, possibly changed.
    written : array or None
        A flag for each byte of these elements, 1 if it was written, if several ranks hold the same
        elements. If several ranks have written an element, the value of the last rank is stored.
    x, needs, askers
        The arguments of :func:`spanning`.
    backwards : bool
        True if instead the value of the first rank is stored.

    Cost
    ----
    One message per pair of ranks, with the elements that one rank holds and the other owns.
    """
    cut, mesh = x.layout.cuts[0], x.mesh
    if mesh.coords is None:
        return
    part = cut.part(mesh.coords)
    own, (low, high) = cut.interval(part), needs(part)
    owed = [(p, _common((low, high), cut.interval(p))) for p in cut.owners(low, high)]
    holders = sorted(askers(*own), key=needs, reverse=backwards)
    due = [(p, _common(needs(p), own)) for p in holders]
    packed = stretch if written is None else _marked(stretch, written)
    sends = [(p, packed[_along(0, c[0] - low, c[1] - low)]) for p, c in owed if c and p != part]
    receives: list[_Pair] = []
    landings: list[tuple[Array, Array]] = []
    for peer, shared in due:
        if shared is None:
            continue
        place = x.block[_along(0, shared[0] - own[0], shared[1] - own[0])]
        found = packed[_along(0, shared[0] - low, shared[1] - low)]
        if peer != part:
            shape = (len(place), *packed.shape[1:])
            found = place if written is None else mesh.xp.empty(shape, packed.dtype)
            receives.append((peer, found))
        landings.append((place, found))
    _exchange(x, cut, sends, receives)
    for place, found in landings:
        if written is not None:
            _unmark(place, found)
        elif found is not place:
            place[...] = found


def _marked(stretch: Array, written: Array) -> Array:
    """Stack the bytes of each element and the flags of its bytes."""
    shape = len(stretch), stretch.itemsize
    return np.stack([stretch.view("u1").reshape(shape), written.reshape(shape)], axis=1)


def _unmark(block: Array, marked: Array) -> None:
    """Write the flagged bytes to the block."""
    own = block.view("u1").reshape(len(block), block.itemsize)
    np.copyto(own, marked[:, 0], where=marked[:, 1].astype(bool))


def _exchange(x: DistArray, cut: Cut, sends: list[_Pair], receives: list[_Pair]) -> None:
    """Send and receive views along the cut."""
    group = x.mesh.subgroup(cut.mesh_dims)  # rank i of this group holds block i of the cut
    if x.mesh.device_type != "cpu":
        group.meet_devices(x.mesh.xp)
    full = [(peer, view) for peer, view in sends if view.size]
    group.exchange(full, [(peer, view) for peer, view in receives if view.size], "halo")


def _along(dim: int, start: int, stop: int) -> tuple[slice, ...]:
    """Return the key that selects indices `start` to `stop` of a dimension."""
    return (*(slice(None),) * dim, slice(start, stop))


def _common(first: Interval, second: Interval) -> Interval | None:
    """Return the indices that two ranges share; None if there are none."""
    start, stop = max(first[0], second[0]), min(first[1], second[1])
    return (start, stop) if start < stop else None
