"""broadcast_to and broadcast_arrays: read-only views, which store no element twice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import index
from typing import Any

import numpy as np

from distarray.array import (
    DistArray,
    as_distarray,
    common_mesh,
    grown_layout,
    implements,
    movement,
    to_layout,
    wrap,
)
from distarray.array.probes import hollow
from distarray.array.sharing import derived, link
from distarray.layout import Cut, Layout
from distarray.plan import broadcast_shapes
from distarray.typing import ArrayLike, ShapeLike

__all__ = ["broadcast_arrays", "broadcast_to", "stretched"]


@implements(np.broadcast_to, at=True, computes=False)
def broadcast_to(array: ArrayLike, shape: ShapeLike, subok: bool = False) -> DistArray:
    """The array stretched to a shape; a read-only view.

    Parameters
    ----------
    array : DistArray
        Any placement. Sharded dimensions that keep their extent stay as they are.
    shape : tuple of int
        The shape wanted.
    subok : bool
        Has no effect.

    Returns
    -------
    DistArray
        If `array` is replicated and the result large, the result is sharded as a new array of
        its shape would be: each rank then sees its own part only.

    Cost
    ----
    None, unless a sharded dimension of extent 1 is stretched: the rank that holds the index then
    sends it along the mesh dimensions that shard it.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    array = as_distarray(array)
    target = tuple([index(n) for n in shape]) if np.iterable(shape) else (index(shape),)
    _check_broadcast(array.shape, target)
    return _shared(array, target)


def _shared(x: DistArray, shape: tuple[int, ...]) -> DistArray:
    """As :func:`stretched`; what has to be sent for it shares the memory of `x`."""
    wide = _stretched_cuts(x, shape)
    if not wide or 0 in shape or not x.layout.is_plain:
        return stretched(x, shape)
    spread, lead = to_layout(x, x.layout.without_cut(wide)), len(shape) - x.ndim
    cuts = list(_kept_layout(spread.layout, shape).cuts)
    for dim in wide:
        cut = x.layout.cuts[dim]
        cuts[lead + dim] = Cut.chunked(shape[lead + dim], cut.mesh_dims, cut.radix)
    layout = Layout.from_cuts(cuts, x.mesh.shape)
    block = x.mesh.xp.broadcast_to(spread.block, layout.local_shape(x.mesh.coords))
    found = wrap(block, layout, x.mesh)
    link(x, found, _Spread(spread), lambda y: _stretched(y, shape, lead, grows=False))
    return found


class _Spread:
    """Copies an array to one of which ranks have the same elements; never back."""

    overlaps = False

    def __init__(self, spread: DistArray) -> None:
        self._spread = spread

    def down(self, source: Any, target: Any) -> None:
        """Copy all elements."""
        spread = self._spread
        movement.assign(spread.block, spread.layout, source.block, source.layout, source.mesh)

    def up(self, source: Any, target: Any) -> None:
        """Do nothing: what is broadcast is read-only."""


def _check_broadcast(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Raise what NumPy raises for shapes that do not broadcast."""
    lead = len(target) - len(shape)
    fits = lead >= 0 and all(n >= 0 for n in target)
    if not fits or any(n not in (1, want) for n, want in zip(shape, target[lead:])):
        np.broadcast_to(hollow(shape, np.dtype(bool)), target)


def stretched(x: DistArray, shape: tuple[int, ...]) -> DistArray:
    """`x` broadcast to a shape that it is known to fit."""
    wide = _stretched_cuts(x, shape)
    if wide:
        x = to_layout(x, x.layout.without_cut(wide))
    lead, grows = len(shape) - x.ndim, x.layout.is_replicated
    return derived(x, lambda y: _stretched(y, shape, lead, grows))


def _stretched_cuts(x: DistArray, shape: tuple[int, ...]) -> list[int]:
    """The dimensions of extent 1 that are cut, and longer in a shape."""
    lead = len(shape) - x.ndim
    cuts = enumerate(x.layout.cuts)
    return [dim for dim, cut in cuts if cut.parts > 1 and cut.extent != shape[lead + dim]]


def _stretched(x: DistArray, shape: tuple[int, ...], lead: int, grows: bool) -> DistArray:
    layout = _stretched_layout(x, shape) if grows else _kept_layout(x.layout, shape)
    source = _part_of_stretched(x, layout, lead)
    block = x.mesh.xp.broadcast_to(source, layout.local_shape(x.mesh.coords))
    return wrap(block, layout, x.mesh)


def _stretched_layout(x: DistArray, shape: tuple[int, ...]) -> Layout:
    """The layout of the result: that of `x`, unless `x` is replicated and only the result large."""
    if x.layout.is_replicated:
        return grown_layout(shape, x.itemsize, x.mesh, [x])
    return _kept_layout(x.layout, shape)


@lru_cache(maxsize=2048)
def _kept_layout(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """The layout, in which new dimensions and those that change their extent are whole."""
    lead = len(shape) - layout.ndim
    cuts = [Cut.whole(extent) for extent in shape[:lead]]
    for cut, extent in zip(layout.cuts, shape[lead:], strict=True):
        cuts.append(cut if cut.extent == extent else Cut.whole(extent))
    return layout.with_cuts(cuts)


def _part_of_stretched(x: DistArray, layout: Layout, lead: int) -> Any:
    """This rank's block of `x`; if only the result is cut, the part that this rank needs."""
    if not layout.holds(x.mesh.coords):
        return x.mesh.xp.empty((), x.dtype)
    if not x.layout.is_replicated:
        return x.block
    section = layout.section(x.mesh.coords)[lead:]
    key = []
    for extent, (start, stop) in zip(x.shape, section, strict=True):
        key.append(slice(None) if extent == 1 else slice(start, stop))
    return x.block[tuple(key)] if key else x.block


@implements(np.broadcast_arrays, at=True, computes=False)
def broadcast_arrays(*args: ArrayLike, subok: bool = False) -> tuple[DistArray, ...]:
    """Views of all arrays with their common shape. See :func:`numpy.broadcast_arrays`.

    Costs what :func:`broadcast_to` costs for each.
    """
    mesh = common_mesh(*args)
    arrays = [as_distarray(x, mesh) for x in args]
    shape = _common_shape([x.shape for x in arrays])
    return tuple([x if x.shape == shape else _shared(x, shape) for x in arrays])


def _common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        return np.broadcast_shapes(*shapes)  # raises the error of broadcast_arrays
