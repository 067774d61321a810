"""Losses of classes: each rank computes the losses of its own classes and samples.

Where classes are cut, the class of a target is on one rank. The other ranks contribute nothing to
the sum, which is left pending. Targets that are plain tensors count as replicated.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.layout import Cut, Layout, Partial
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.table import Decision, composed, rule

_FORWARD = ("aten.nll_loss_forward", "aten.nll_loss2d_forward")
_BACKWARD = ("aten.nll_loss_backward", "aten.nll_loss2d_backward")
_NONE, _MEAN, _SUM = 0, 1, 2


def _without(layout: Layout, dim: int) -> Layout:
    """Return the layout of the samples: that of the scores without the classes."""
    return layout.with_cuts([cut for n, cut in enumerate(layout.cuts) if n != dim])


def _pending(layout: Layout, mesh_dims: tuple[int, ...]) -> Layout:
    others = {m: Partial() for m in mesh_dims if layout.mesh_shape[m] > 1}
    return Layout.from_cuts(layout.cuts, layout.mesh_shape, others)


@rule(*_FORWARD, plain=True)
def _forward(call: Call) -> Decision | None:
    if call["reduction"] == _MEAN:
        return None
    scores = call.first.layout
    dim = 1 if scores.ndim > 1 else 0
    samples, classes = _without(scores, dim), scores.cuts[dim]
    number = Layout.replicated((), call.mesh_shape)
    weights = [_whole(x.layout) for x in call.operands[2:]]
    losses = _pending(samples, classes.mesh_dims)
    total = number
    if call["reduction"] == _SUM:
        spread = tuple([m for cut in samples.cuts for m in cut.mesh_dims])
        losses = _pending(number, (*classes.mesh_dims, *spread))
        total = _pending(number, spread)
    run = partial(_losses, classes, dim, bool(samples.sharded_dims))
    return Decision([scores, samples, *weights], [losses, total], run=run, on_mesh=True)


def _whole(layout: Layout) -> Layout:
    return Layout.replicated(layout.shape, layout.mesh_shape)


def _losses(
    classes: Cut,
    dim: int,
    apart: bool,
    mesh: DeviceMesh,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
) -> tuple[Tensor, Tensor]:
    """Return the losses of a part, and the sum of their weights."""
    _check(target, classes.extent, ignore_index, mesh if apart else None)
    index, here = _places(classes, mesh, target, ignore_index)
    count = scores.shape[dim]
    found = scores.new_zeros(target.shape)
    if count:
        found = -scores.gather(dim, index.clamp_(0, count - 1).unsqueeze(dim)).squeeze(dim)
        found = found.masked_fill_(~here, 0)
    weights = _weights(target, weight, ignore_index, scores)
    found = torch.where(here, found * weights, 0)
    if reduction == _NONE:
        return found, scores.new_zeros(())
    return found.sum(), weights.sum()


def _places(
    classes: Cut, mesh: DeviceMesh, target: Tensor, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Return the targets relative to this rank's first class, and a mask of those on this rank."""
    coords = mesh.coords
    assert coords is not None
    start, stop = classes.interval(classes.part(coords))
    return target - start, (target >= start) & (target < stop) & (target != ignore_index)


def _weights(target: Tensor, weight: Tensor | None, ignore_index: int, like: Tensor) -> Tensor:
    kept = target != ignore_index
    if weight is None:
        return kept.to(like.dtype)
    return torch.where(kept, weight[torch.where(kept, target, 0)], 0)


def _check(target: Tensor, count: int, ignore_index: int, mesh: DeviceMesh | None) -> None:
    """Raise torch's error for a target that is not a class, on all ranks."""
    bad = target[(target != ignore_index) & ((target < 0) | (target >= count))]
    error = IndexError(f"Target {int(bad[0])} is out of bounds.") if bad.numel() else None
    if mesh is not None:
        agree(mesh.group, error)
    elif error is not None:
        raise error


@composed(*_FORWARD, plain=True)
def _mean(
    scores: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Compute a mean as the sum, divided by the sum of the weights."""
    aten = torch.ops.aten
    flat = scores.dim() <= 2
    forward = aten.nll_loss_forward.default if flat else aten.nll_loss2d_forward.default
    total, weights = forward(scores, target, weight, _SUM, ignore_index)
    return total / weights, weights


@rule(*_BACKWARD, plain=True)
def _backward(call: Call) -> Decision:
    """Compute the gradients of each rank's samples and classes."""
    scores = call.operands[1].layout
    dim = 1 if scores.ndim > 1 else 0
    samples, classes = _without(scores, dim), scores.cuts[dim]
    grad = samples if call["reduction"] == _NONE else _whole(call.first.layout)
    rest = [_whole(x.layout) for x in call.operands[3:]]
    run = partial(_gradients, classes, dim)
    return Decision([grad, scores, samples, *rest], [scores], run=run, on_mesh=True)


def _gradients(
    classes: Cut,
    dim: int,
    mesh: DeviceMesh,
    grad: Tensor,
    scores: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total: Any,
) -> Tensor:
    index, here = _places(classes, mesh, target, ignore_index)
    found = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    count = scores.shape[dim]
    if not count:
        return found
    grad = grad / total if reduction == _MEAN else grad
    values = torch.where(here, -grad * _weights(target, weight, ignore_index, scores), 0)
    place = index.clamp_(0, count - 1).unsqueeze(dim)
    return found.scatter_(dim, place, values.unsqueeze(dim).to(found.dtype))
