"""Redistribution of tensors between layouts, and of their gradients in the opposite direction.

A gradient has a layout, too. The gradient of a cut tensor is cut alike. Every contribution to a
pending sum has the gradient of the whole sum, replicated. For a replicated tensor there are two
cases. *Alike*: every rank does the same computation with it, and obtains the same gradient.
*Pending*: each rank does a different computation with it and obtains a contribution; the gradient
is the sum of the contributions. The border of tensor parallelism, which leaves a tensor unchanged
and sums its gradients, is thus the route from "replicated, gradient alike" to "replicated, gradient
pending".
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.utils.weak import WeakTensorKeyDictionary

from distarray.array.movement import moved, settled
from distarray.comm import DeviceMesh
from distarray.comm.devices import on_device
from distarray.layout import Cut, Fold, Layout, Partial, Replicate, Shard
from distarray.torch.bridge.transforms import Differentiable
from distarray.torch.collectives import conversations as talk
from distarray.torch.collectives.blocks import movable, moved_back
from distarray.torch.collectives.graphs import Like, conversation
from distarray.typing import Array

__all__ = ["Route", "border", "carried", "carry", "gradient_layout"]


_SUM = Partial()
#: Neutral elements of folds; any other fold of equal values returns that value.
_NEUTRAL = {Fold.SUM: 0, Fold.PROD: 1, Fold.BXOR: 0}


class Route(NamedTuple):
    """Source and destination layouts of a tensor, and of its gradient in the backward pass."""

    src: Layout
    dst: Layout
    grad_src: Layout
    grad_dst: Layout


@lru_cache(maxsize=1024)
def gradient_layout(layout: Layout, pending: tuple[int, ...] = ()) -> Layout:
    """Return the layout of the gradient of a tensor in this layout.

    Parameters
    ----------
    layout : Layout
        Layout of the tensor.
    pending : tuple of int
        The replicating mesh dimensions along which gradients are contributions to be summed.
    """
    others = {m: _SUM for m in pending if isinstance(layout.placements[m], Replicate)}
    return Layout.from_cuts(layout.cuts, layout.mesh_shape, others)


def carry(tensor: Tensor, mesh: DeviceMesh, route: Route) -> Tensor:
    """Redistribute this rank's part of a tensor; the backward pass redistributes the gradient.

    Collective if the tensor or the gradient moves.
    """
    if route.src is route.dst and route.grad_src is route.grad_dst:
        return tensor
    if not (tensor.requires_grad and torch.is_grad_enabled()):
        return carried(tensor, mesh, route.src, route.dst)
    return _carry(tensor, mesh, route)


def _forward(ctx: FunctionCtx, tensor: Tensor, mesh: DeviceMesh, route: Route) -> Tensor:
    ctx.mesh, ctx.route = mesh, route
    result = carried(tensor, mesh, route.src, route.dst)
    return tensor.view_as(tensor) if result is tensor else result


def _backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Any, ...]:
    src, dst, grad_src, grad_dst = ctx.route
    return carry(grad, ctx.mesh, Route(grad_dst, grad_src, dst, src)), None, None


_made: Any = type(
    "Carry",
    (Differentiable,),
    {"forward": staticmethod(_forward), "backward": staticmethod(_backward)},
)
_carry: Any = _made.apply


class _Border(NamedTuple):
    """Result of passing a border, with the tensor's version, the mesh and the route."""

    version: int
    mesh: DeviceMesh
    route: Route
    there: Tensor


#: The last border that each living tensor has passed.
_borders: Any = WeakTensorKeyDictionary()


def border(tensor: Tensor, mesh: DeviceMesh, route: Route) -> Tensor:
    """Redistribute like `carry`; a tensor of which only the gradient moves passes each border once.

    Layers that get the same tensor, as queries, keys and values do, share one border: their
    gradients are summed before they are sent, instead of being sent one by one.
    """
    records = tensor.requires_grad and torch.is_grad_enabled()
    if not records or route.src is not route.dst or route.grad_src is route.grad_dst:
        return carry(tensor, mesh, route)
    if tensor.is_leaf:  # the tensor and the result would keep each other alive
        return _carry(tensor, mesh, route)
    known: _Border | None = _borders.get(tensor)
    if known is None or known[:3] != (tensor._version, mesh, route):
        known = _Border(tensor._version, mesh, route, _across(tensor, mesh, route))
        _borders[tensor] = known
    return known.there


def _step_across(ctx: FunctionCtx, tensor: Tensor, mesh: DeviceMesh, route: Route) -> Tensor:
    ctx.mesh, ctx.route = mesh, route
    return tensor.detach()  # a view would keep the tensor alive


_crossing: Any = type(
    "Border",
    (Differentiable,),
    {"forward": staticmethod(_step_across), "backward": staticmethod(_backward)},
)
_across: Any = _crossing.apply


# -- without gradients ------------------------------------------------------------------------


def _like_carried(tensor: Tensor, mesh: DeviceMesh, src: Layout, dst: Layout) -> Like:
    shape = tensor.shape if mesh.coords is None else dst.local_shape(mesh.coords)
    return Like(shape, tensor.dtype)


@conversation(_like_carried)
def carried(tensor: Tensor, mesh: DeviceMesh, src: Layout, dst: Layout) -> Tensor:
    """Redistribute this rank's part of a tensor, without a gradient.

    Pending folds are carried out (allreduce, or reduce-scatter where the result is cut) or created.
    Elements that one coordinate alone holds are broadcast. The rest is one exchange.
    """
    if src is dst or mesh.coords is None:
        return tensor
    if tensor.is_meta:  # no values: torch asks only for shapes
        return tensor.new_empty(dst.local_shape(mesh.coords))
    if src.ats:
        tensor, src = _from_coordinate(tensor, mesh, src)
    if src.partials:
        tensor, src = _summed(tensor, mesh, src, dst)
    fresh = tuple([m for m in dst.partials if m not in src.partials])
    if fresh:
        return _contributed(tensor, mesh, src, dst, fresh)
    return _exchanged(tensor, mesh, src, dst)


def _from_coordinate(tensor: Tensor, mesh: DeviceMesh, src: Layout) -> tuple[Tensor, Layout]:
    """Broadcast elements that one coordinate alone holds; pending folds stay pending."""
    lone = {m: src.placements[m] for m in src.ats}
    here = Layout.from_cuts(src.cuts, src.mesh_shape, lone)
    block = movable(tensor, mesh.group)
    block, _ = settled(block, here, _mesh_of(block, mesh))
    others = {m: src.placements[m] for m in src.partials}
    return moved_back(block, tensor), Layout.from_cuts(src.cuts, src.mesh_shape, others)


def _exchanged(tensor: Tensor, mesh: DeviceMesh, src: Layout, dst: Layout) -> Tensor:
    if src is dst:
        return tensor
    block = movable(tensor, mesh.group)
    lead = (1,) * len(src.partials)
    whole = block.reshape(lead + block.shape)
    found = moved(whole, _apart(src), _apart(dst), _mesh_of(block, mesh))
    result = found.reshape(found.shape[len(lead) :])
    if np.may_share_memory(result, block):
        result = result.copy()
    return moved_back(result, tensor)


def _mesh_of(block: Array, mesh: DeviceMesh) -> DeviceMesh:
    """Return the mesh of the same ranks for blocks on this kind of device."""
    return mesh.on("cuda" if on_device(block) else "cpu")


@lru_cache(maxsize=1024)
def _apart(layout: Layout) -> Layout:
    """Return a layout of the contributions to pending sums as one array, with extra leading dims.

    The contributions differ between the ranks along those mesh dimensions, so each is moved
    separately.
    """
    if not layout.partials:
        return layout
    sizes = [(m, layout.mesh_shape[m]) for m in layout.partials]
    fronts = [Cut.chunked(size, (m,), (size,)) for m, size in sizes]
    return Layout.from_cuts([*fronts, *layout.cuts], layout.mesh_shape)


def _summed(tensor: Tensor, mesh: DeviceMesh, src: Layout, dst: Layout) -> tuple[Tensor, Layout]:
    """Carry out pending folds along the mesh dimensions where `dst` has none."""
    whole: dict[Fold, list[int]] = {}
    for m in src.partials:
        wanted, fold = dst.placements[m], src.placements[m].op  # type: ignore[attr-defined]
        if isinstance(wanted, Partial):
            continue
        if isinstance(wanted, Shard) and _cut_by(dst, m) and not src.cuts[wanted.dim].mesh_dims:
            tensor, src = _scattered(tensor, mesh, src, dst, m, wanted.dim)
        else:
            whole.setdefault(fold, []).append(m)
    for fold, dims in whole.items():
        tensor = talk.folded(tensor, mesh.subgroup(tuple(dims)), fold)
        others = {m: p for m, p in src.others.items() if m not in dims}
        src = Layout.from_cuts(src.cuts, src.mesh_shape, others)
    return tensor, src


def _cut_by(layout: Layout, m: int) -> bool:
    """Return True if mesh dimension `m` is the only one that cuts its array dimension."""
    return layout.cuts[layout.placements[m].dim].mesh_dims == (m,)  # type: ignore[attr-defined]


def _scattered(
    tensor: Tensor, mesh: DeviceMesh, src: Layout, dst: Layout, m: int, dim: int
) -> tuple[Tensor, Layout]:
    """Carry out one pending fold by a reduce-scatter: each rank gets its own part."""
    cut = dst.cuts[dim]
    parts = tuple([stop - start for start, stop in map(cut.interval, range(cut.parts))])
    fold = src.placements[m].op  # type: ignore[attr-defined]
    tensor = talk.scattered(tensor, mesh.subgroup((m,)), dim, parts, fold)
    cuts = list(src.cuts)
    cuts[dim] = cut
    others = {k: p for k, p in src.others.items() if k != m}
    return tensor, Layout.from_cuts(cuts, src.mesh_shape, others)


def _contributed(
    tensor: Tensor, mesh: DeviceMesh, src: Layout, dst: Layout, fresh: tuple[int, ...]
) -> Tensor:
    """Make contributions to a pending fold: one rank has the element, others a neutral element."""
    kept = {m: p for m, p in dst.others.items() if m not in fresh}
    neutral = _NEUTRAL.get(dst.placements[fresh[0]].op)  # type: ignore[attr-defined]
    if neutral is None:
        return _exchanged(tensor, mesh, src, Layout.from_cuts(dst.cuts, dst.mesh_shape, kept))
    lies_there = all(
        mine is theirs
        or mine == theirs
        or (set(mine.mesh_dims) <= set(fresh) and theirs.parts == 1)
        for mine, theirs in zip(src.cuts, dst.cuts, strict=True)
    )
    if lies_there and not dst.ats:
        here = src
    else:
        here = Layout.from_cuts(dst.cuts, dst.mesh_shape, kept)
        tensor = _exchanged(tensor, mesh, src, here)
    coords = mesh.coords
    assert coords is not None
    result = tensor.new_full(dst.local_shape(coords), neutral)
    if all(coords[m] == 0 for m in fresh if isinstance(here.placements[m], Replicate)):
        box = zip(here.section(coords), dst.section(coords), strict=True)
        result[tuple([slice(a - low, b - low) for (a, b), (low, _) in box])] = tensor
    return result
