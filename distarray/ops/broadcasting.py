"""broadcast_to and broadcast_arrays: read-only views that store no element twice."""

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
    """Broadcast the array to a shape, as a read-only view.

    Parameters
    ----------
    array : DistArray
        Any placement. Sharded dimensions that keep their extent stay as they are.
    shape : tuple of int
        The new shape.
    subok : bool
        Has no effect.

    Returns
    -------
    DistArray
        If `array` is replicated and the result is large, the result is sharded like a new array
        of its shape: each rank then accesses its own block only.

    Cost
    ----
    None, unless a sharded dimension of extent 1 is broadcast: the rank that holds the index then
    sends it along the mesh dimensions that shard this dimension.

    Raises
    ------
    ValueError
        If the shapes do not broadcast.
    """
    array = as_distarray(array)
    target = tuple([index(n) for n in shape]) if np.iterable(shape) else (index(shape),)
    _check_broadcast(array.shape, target)
    return _shared(array, target)


def _shared(x: DistArray, shape: tuple[int, ...]) -> DistArray:
    """Broadcast as :func:`stretched`; elements sent to other ranks stay linked to those of `x`."""
    wide = _stretched_cuts(x, shape)
    if not wide or 0 in shape or x.layout.partials:
        return stretched(x, shape)
    everywhere = Layout.from_cuts(x.layout.without_cut(wide).cuts, x.mesh.shape)
    spread, lead = to_layout(x, everywhere), len(shape) - x.ndim
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
    """Link that copies an array to one that ranks hold equal elements of; never back."""

    overlaps = False

    def __init__(self, spread: DistArray) -> None:
        self._spread = spread

    def down(self, source: Any, target: Any) -> None:
        """Copy all elements."""
        spread = self._spread
        movement.assign(spread.block, spread.layout, source.block, source.layout, source.mesh)

    def up(self, source: Any, target: Any) -> None:
        """Do nothing: the broadcast array is read-only."""


def _check_broadcast(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Raise NumPy's exception for shapes that do not broadcast."""
    lead = len(target) - len(shape)
    fits = lead >= 0 and all(n >= 0 for n in target)
    if not fits or any(n not in (1, want) for n, want in zip(shape, target[lead:])):
        np.broadcast_to(hollow(shape, np.dtype(bool)), target)


def stretched(x: DistArray, shape: tuple[int, ...]) -> DistArray:
    """Broadcast `x` to a shape that it is known to fit."""
    wide = _stretched_cuts(x, shape)
    if wide:
        x = to_layout(x, x.layout.without_cut(wide))
    lead, grows = len(shape) - x.ndim, x.layout.is_replicated
    return derived(x, lambda y: _stretched(y, shape, lead, grows))


def _stretched_cuts(x: DistArray, shape: tuple[int, ...]) -> list[int]:
    """Return the dimensions of extent 1 that are cut and that are longer in `shape`."""
    lead = len(shape) - x.ndim
    cuts = enumerate(x.layout.cuts)
    return [dim for dim, cut in cuts if cut.parts > 1 and cut.extent != shape[lead + dim]]


def _stretched(x: DistArray, shape: tuple[int, ...], lead: int, grows: bool) -> DistArray:
    layout = _stretched_layout(x, shape) if grows else _kept_layout(x.layout, shape)
    source = _part_of_stretched(x, layout, lead)
    block = x.mesh.xp.broadcast_to(source, layout.local_shape(x.mesh.coords))
    return wrap(block, layout, x.mesh)


def _stretched_layout(x: DistArray, shape: tuple[int, ...]) -> Layout:
    """Return the result's layout: that of `x`, or cut for a large result of a replicated `x`."""
    if x.layout.is_replicated:
        return grown_layout(shape, x.itemsize, x.mesh, [x])
    return _kept_layout(x.layout, shape)


@lru_cache(maxsize=2048)
def _kept_layout(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """Return the layout in which new dimensions and those that change their extent are whole."""
    lead = len(shape) - layout.ndim
    cuts = [Cut.whole(extent) for extent in shape[:lead]]
    for cut, extent in zip(layout.cuts, shape[lead:], strict=True):
        cuts.append(cut if cut.extent == extent else Cut.whole(extent))
    return layout.with_cuts(cuts)


def _part_of_stretched(x: DistArray, layout: Layout, lead: int) -> Any:
    """Return this rank's block of `x`; if only the result is cut, the section this rank needs."""
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
    """Return views of all arrays with their common shape. See :func:`numpy.broadcast_arrays`.

    Costs as :func:`broadcast_to` for each array.
    """
    mesh = common_mesh(*args)
    arrays = [as_distarray(x, mesh) for x in args]
    shape = _common_shape([x.shape for x in arrays])
    return tuple([x if x.shape == shape else _shared(x, shape) for x in arrays])


def _common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        return np.broadcast_shapes(*shapes)  # raises broadcast_arrays' own error
