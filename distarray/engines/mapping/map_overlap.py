"""map_overlap: a function of blocks that are extended into adjacent blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import index
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, movement, wrap
from distarray.array.divergence import verify
from distarray.comm import DeviceMesh, alone
from distarray.engines.mapping.loops import attempted, own_block
from distarray.engines.mapping.results import common_dtype
from distarray.layout import Layout
from distarray.plan import Halo, Patch, Reach, plan_halo
from distarray.plan.halo import IMAGED
from distarray.typing import Array, ArrayLike, DTypeLike, Shape

__all__ = ["map_overlap"]

_NAMES = (*IMAGED, "nearest", "none")
T = TypeVar("T")
#: Number of elements by which blocks grow along a dimension: at both ends, or one number each.
_Depth: TypeAlias = int | tuple[int, int]
#: Elements beyond the ends of a dimension: the name of a rule, or their value.
_Boundary: TypeAlias = str | complex | None


def map_overlap(
    function: Callable[..., Any],
    x: ArrayLike,
    depth: _Depth | Sequence[_Depth] | Mapping[int, _Depth],
    boundary: _Boundary | Sequence[_Boundary] | Mapping[int, _Boundary] = "none",
    *,
    dtype: DTypeLike = None,
    **kwargs: Any,
) -> DistArray:
    """Call a function on every block, grown by the elements around it.

    Parameters
    ----------
    function : callable
        Called once on every rank that holds elements, with its grown block as NumPy (or CuPy)
        array, which it may change. It returns an array of the grown shape, whose margins are
        dropped, or of the shape of the block without margins. It must not communicate.
    x : DistArray
        Array of any placements. It need not be cut along the dimensions that grow.
    depth : int, tuple or dict
        Numbers of elements: one for all dimensions, or one per dimension, or ``{axis: number}``
        with 0 for the rest. A number may be a pair, (before, after).
    boundary : str, scalar, tuple or dict
        The elements beyond the ends of the array, for all dimensions or one per dimension, as for
        `depth`:

        - "none": no elements, the blocks at the ends grow inwards only;
        - "periodic": the elements at the other end;
        - "reflect": the array reflected, ``b a | a b c``, as in :mod:`scipy.ndimage`;
        - "mirror": the same without repeating the last element, ``c b | a b c``;
        - "nearest": the last element;
        - a number: that number.
    dtype : dtype, optional
        Data type of the result; by default the common type of the arrays that `function` returns.
    **kwargs
        Keyword arguments of `function`.

    Returns
    -------
    DistArray
        An array in the layout of `x`.

    Raises
    ------
    ValueError
        If `depth` or `boundary` is invalid, or a result has neither shape; on all ranks.
    Exception
        Any exception of `function`, on all ranks.

    Cost
    ----
    One message to each rank that needs elements of this rank, with exactly those elements: in one
    dimension to the two neighbors, unless their blocks are thinner than `depth`. Then one allreduce
    of a few integers. A copy of the block in memory.

    Examples
    --------
    >>> import numpy, distarray
    >>> x = distarray.distribute(numpy.arange(6.0), placements=[distarray.Shard(0)])
    >>> def rise(block):
    ...     return block[1:-1] - block[:-2]
    >>> distarray.map_overlap(rise, x, 1, "periodic").full()
    array([-5.,  1.,  1.,  1.,  1.,  1.])
    """
    verify(map_overlap, (x, depth, boundary), kwargs)
    array: DistArray = as_distarray(x).plain()
    wanted: list[_Depth] = _per_axis(depth, array.ndim, 0, "depth")
    depths = [_pair(pair) for pair in wanted]
    beyond: list[_Boundary] = _per_axis(boundary, array.ndim, "none", "boundary")
    reaches = tuple([_reach(d, b) for d, b in zip(depths, beyond, strict=True)])
    _check_reaches(reaches, array.shape)
    mesh = array.mesh
    plan = plan_halo(array.layout, reaches, mesh.coords)
    grown = _grown(array, plan, _communicates(array.layout, reaches))
    _fill(grown, plan, beyond)
    held = mesh.coords is not None and bool(array.block.size)
    runs = held or (not array.size and mesh.coords is not None)

    def call() -> Any:
        with alone(mesh):
            return _trimmed(mesh, function(grown, **kwargs), grown.shape, plan, array.block.shape)

    value, error = attempted(call) if runs else (None, None)
    if dtype is not None and value is not None:
        value = value.astype(dtype, copy=False)
    found, _ = common_dtype(mesh, error, None if value is None else value.dtype)
    if value is None:
        value = mesh.xp.empty(array.block.shape, found if dtype is None else dtype)
    return wrap(value.astype(found, copy=False) if dtype is None else value, array.layout, mesh)


def _per_axis(value: Any, ndim: int, default: T, name: str) -> list[T]:
    """Return one entry per dimension, from any form that a caller may pass."""
    if isinstance(value, Mapping):
        entries = [default] * ndim
        for axis, entry in value.items():
            entries[normalize_axis_index(index(axis), ndim)] = entry
        return entries
    if isinstance(value, (tuple, list)):
        if len(value) != ndim:
            raise ValueError(
                f"map_overlap: {name} has {len(value)} entries, the array {ndim} dimension(s); "
                "give one a dimension, or a dict {axis: entry}"
            )
        return list(value)
    return [value] * ndim


def _pair(depth: _Depth) -> tuple[int, int]:
    before, after = depth if isinstance(depth, (tuple, list)) else (depth, depth)
    pair = index(before), index(after)
    if min(pair) < 0:
        raise ValueError(f"map_overlap: depth {depth} is negative")
    return pair


def _reach(depth: tuple[int, int], boundary: _Boundary) -> Reach:
    if boundary is None:
        return Reach(*depth, "none")
    if isinstance(boundary, str):
        if boundary not in _NAMES:
            raise ValueError(
                f"map_overlap: boundary {boundary!r} is not one of {', '.join(map(repr, _NAMES))}, "
                "or a number"
            )
        return Reach(*depth, "fill" if boundary == "nearest" else boundary)
    if np.ndim(boundary):
        raise ValueError(f"map_overlap: boundary {boundary!r} is no single number")
    return Reach(*depth, "fill")


def _check_reaches(reaches: tuple[Reach, ...], shape: Shape) -> None:
    for axis, (reach, extent) in enumerate(zip(reaches, shape, strict=True)):
        if not extent and reach.boundary != "none" and (reach.before or reach.after):
            raise ValueError(f"map_overlap: axis {axis} is empty, there is nothing to continue")


def _communicates(layout: Layout, reaches: tuple[Reach, ...]) -> bool:
    """Return True if any rank needs elements of another rank."""
    return any(
        (reach.before or reach.after) and len(cut.owners(0, cut.extent)) > 1
        for cut, reach in zip(layout.cuts, reaches, strict=True)
    )


def _grown(x: DistArray, plan: Halo, communicates: bool) -> Array:
    """Send and receive the margins; return the grown block, without elements beyond the array."""
    block, mesh = x.block, x.mesh
    grown: Array = mesh.xp.empty(plan.shape, block.dtype)
    sends = [(peer, _packed(block, patches, mesh)) for peer, patches in plan.sends]
    receives = [(peer, _landing(grown, patches, mesh)) for peer, patches in plan.receives]
    if communicates and mesh.group.guarded:  # ranks without elements to send must raise too
        mesh.group.check_exchange(sum([view.nbytes for _, view in sends]), "halo")
    if sends or receives:
        mesh.group.exchange(sends, receives, "halo")
    for patch in plan.kept:
        movement.part_of(grown, patch.target)[patch.reverse] = block[patch.source]
    for (_, patches), (_, landed) in zip(plan.receives, receives, strict=True):
        if not _is_direct(patches):
            _unpack(grown, patches, landed)
    return grown


def _is_direct(patches: tuple[Patch, ...]) -> bool:
    """Return True if a message is one box of the grown block, in the same element order."""
    return len(patches) == 1 and all(part.step == 1 for part in patches[0].reverse)


def _packed(block: Array, patches: tuple[Patch, ...], mesh: DeviceMesh) -> Array:
    if len(patches) == 1:
        return block[patches[0].source]
    packed: Array = mesh.xp.concatenate([block[patch.source].ravel() for patch in patches])
    return packed


def _landing(grown: Array, patches: tuple[Patch, ...], mesh: DeviceMesh) -> Array:
    if _is_direct(patches):
        return grown[patches[0].target]
    landing: Array = mesh.xp.empty(sum([prod(patch.shape) for patch in patches]), grown.dtype)
    return landing


def _unpack(grown: Array, patches: tuple[Patch, ...], landed: Array) -> None:
    start = 0
    for patch in patches:
        stop = start + prod(patch.shape)
        grown[patch.target][patch.reverse] = landed[start:stop].reshape(patch.shape)
        start = stop


def _fill(grown: Array, plan: Halo, beyond: Sequence[_Boundary]) -> None:
    """Set the elements beyond the array, axis by axis, as :func:`numpy.pad` does."""
    for axis, ((before, after), value) in enumerate(zip(plan.fills, beyond, strict=True)):
        if not before and not after:
            continue
        lines = np.moveaxis(grown, axis, 0)
        high = len(lines) - after
        if before:
            lines[:before] = lines[before] if isinstance(value, str) else value
        if after:
            lines[high:] = lines[high - 1] if isinstance(value, str) else value


def _trimmed(mesh: DeviceMesh, value: Any, grown: Shape, plan: Halo, shape: Shape) -> Array:
    """Remove the margins from a result of the function."""
    block: Array = mesh.asarray(own_block(value))
    if block.shape == shape:
        return block
    if block.shape == grown:
        return block[plan.own].copy()
    raise ValueError(
        f"map_overlap: the function gave an array of shape {block.shape} for a block of shape "
        f"{shape}, grown to {grown}; it must give one of these shapes"
    )
