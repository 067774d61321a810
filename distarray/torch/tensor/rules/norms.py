"""Normalization of layers, groups and batches.

Where normalized dimensions are cut, each rank computes sums over its part, and small allreduces
combine these to statistics. Everything else stays in place.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.layout import Coords, Cut, Layout
from distarray.torch.tensor.aligning import elsewhere, guarded, is_spread, pending, with_lead
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.filling import fill
from distarray.torch.tensor.table import Decision, composed, instead, rule

_HALF = (torch.float16, torch.bfloat16)


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in _HALF else x


def _moments(x: Tensor, dims: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the deviations from the mean, the mean, and the variance."""
    mean = x.mean(dims, keepdim=True)
    apart = x - mean
    return apart, mean, (apart * apart).mean(dims, keepdim=True)


def _mesh_dims(cuts: Sequence[Cut]) -> list[int]:
    return [m for cut in cuts for m in cut.mesh_dims]


def _replicated(shape: Sequence[int], call: Call) -> Layout:
    return Layout.replicated(tuple(shape), call.mesh_shape)


# -- weights --------------------------------------------------------------------------------------


def _but(x: Tensor, dim: int) -> list[int]:
    return [d for d in range(x.dim()) if d != dim % x.dim()]


@composed("aten._weight_norm_interface")
def _weights(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Scale slices to given lengths: the length times the slice of length one."""
    lengths = (v * v).sum(_but(v, dim), keepdim=True).sqrt()
    return v * (g / lengths), lengths


@composed("aten._weight_norm_interface_backward")
def _weights_backward(
    grad: Tensor, v: Tensor, g: Tensor, lengths: Tensor, dim: int
) -> tuple[Tensor, Tensor]:
    along = (grad * v).sum(_but(v, dim), keepdim=True) / lengths
    return (g / lengths) * (grad - v * (along / lengths)), along


# -- layers ---------------------------------------------------------------------------------------


@rule("aten.native_layer_norm")
def _layers(call: Call) -> Decision | None:
    """Return a decision if the normalized dimensions are whole."""
    x, *others = call.operands
    layout, count = x.layout, len(call["normalized_shape"])
    lead = layout.cuts[: layout.ndim - count]
    if call.results is None or any(is_spread(c) for c in layout.cuts[len(lead) :]):
        return None
    wanted = [
        with_lead(lead, x.shape, call.mesh_shape),
        *[_replicated(o.shape, call) for o in others],
    ]
    return Decision(wanted, [with_lead(lead, r.shape, call.mesh_shape) for r in call.results])


@composed("aten.native_layer_norm")
def _layers_cut(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    dims = list(range(x.dim() - len(normalized_shape), x.dim()))
    apart, mean, variance = _moments(_wide(x), dims)
    scale = (variance + eps).rsqrt()
    return _scaled(apart * scale, weight, bias).to(x.dtype), mean, scale


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


@rule("aten.native_layer_norm_backward.default")
def _layers_backward(call: Call) -> Decision | None:
    grad, x, mean, scale, *others = call.operands
    count = len(call["normalized_shape"])
    layout = x.layout
    lead = layout.cuts[: layout.ndim - count]
    if any(is_spread(c) for c in layout.cuts[len(lead) :]):
        return None
    wanted = [with_lead(lead, o.shape, call.mesh_shape) for o in (grad, x, mean, scale)]
    wanted += [_replicated(o.shape, call) for o in others]
    shared = pending(_replicated(call["normalized_shape"], call), _mesh_dims(lead))
    results = [wanted[1], shared, shared]
    return Decision(wanted, [r for r, is_asked in zip(results, call["output_mask"]) if is_asked])


@composed("aten.native_layer_norm_backward.default")
def _layers_cut_backward(
    grad: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    mean: Tensor,
    scale: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    count = len(normalized_shape)
    ahead, dims = list(range(x.dim() - count)), list(range(x.dim() - count, x.dim()))
    wide = _wide(grad)
    normal = (_wide(x) - mean) * scale
    inner = wide if weight is None else wide * weight
    dx = inner - inner.mean(dims, keepdim=True)
    dx = (dx - normal * (inner * normal).mean(dims, keepdim=True)) * scale
    product = wide * normal
    return _masked(
        mask,
        dx.to(x.dtype),
        (product.sum(ahead) if ahead else product).to(x.dtype),
        (wide.sum(ahead) if ahead else wide).to(x.dtype),
    )


def _masked(mask: Sequence[bool], *found: Tensor) -> tuple[Tensor | None, ...]:
    return tuple([x if is_asked else None for x, is_asked in zip(found, mask, strict=True)])


# -- groups ---------------------------------------------------------------------------------------


@rule("aten.native_group_norm")
def _groups(call: Call) -> Decision | None:
    """Cut the batch, and keep each sample whole."""
    x, *others = call.operands
    batch = elsewhere(x.layout, range(1, x.layout.ndim)).cuts[0]
    if call.results is None or not is_spread(batch):
        return None
    wanted = [with_lead([batch], x.shape, call.mesh_shape)]
    wanted += [_replicated(o.shape, call) for o in others]
    results = [with_lead([batch], r.shape, call.mesh_shape) for r in call.results]
    return guarded(call, wanted, results)._replace(changed=partial(_samples, batch))


def _samples(batch: Cut, coords: Coords | None) -> dict[str, int]:
    """Return the number of samples of a rank."""
    start, stop = (0, 0) if coords is None else batch.interval(batch.part(coords))
    return {"N": stop - start}


@rule("aten.native_group_norm_backward.default")
def _groups_backward(call: Call) -> Decision | None:
    grad, x, mean, scale, *others = call.operands
    batch = elsewhere(x.layout, range(1, x.layout.ndim)).cuts[0]
    if call.results is None or not is_spread(batch):
        return None
    wanted = [with_lead([batch], o.shape, call.mesh_shape) for o in (grad, x, mean, scale)]
    wanted += [_replicated(o.shape, call) for o in others]
    shared = pending(_replicated((x.shape[1],), call), batch.mesh_dims)
    results = [wanted[1], shared, shared]
    decision = guarded(call, wanted, results, call["output_mask"])
    return decision._replace(changed=partial(_samples, batch))


# -- batches --------------------------------------------------------------------------------------


def _along(x: Tensor, like: Tensor) -> Tensor:
    """Reshape one number per channel to broadcast along the tensor."""
    return x.reshape([1, -1, *[1] * (like.dim() - 2)])


def _others(x: Tensor) -> list[int]:
    return [0, *range(2, x.dim())]


@composed("aten.native_batch_norm.default", "aten._native_batch_norm_legit.default")
def _batches(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Normalize with statistics of the global batch; update the running ones like any tensor."""
    wide = _wide(x)
    if training or running_mean is None or running_var is None:
        apart, mean, variance = _moments(wide, _others(x))
        scale = (variance + eps).rsqrt()
        kept = mean.reshape(-1), scale.reshape(-1)
        if running_mean is not None and running_var is not None:
            count = x.numel() // x.shape[1]
            variance = variance.reshape(-1) * (count / max(count - 1, 1))
            running_mean.mul_(1 - momentum).add_(kept[0].to(running_mean.dtype), alpha=momentum)
            running_var.mul_(1 - momentum).add_(variance.to(running_var.dtype), alpha=momentum)
    else:
        apart = wide - _along(running_mean, x)
        scale = _along((running_var + eps).rsqrt(), x)
        kept = wide.new_empty((0,)), wide.new_empty((0,))
    found = _scaled(apart * scale, *[None if p is None else _along(p, x) for p in (weight, bias)])
    return found.to(x.dtype), *kept


@instead("aten._native_batch_norm_legit.out")
def _batches_into(
    x: Tensor, *args: Any, out: Tensor, save_mean: Tensor, save_invstd: Tensor
) -> tuple[Tensor, ...]:
    found = torch.ops.aten._native_batch_norm_legit.default(x, *args)
    for target, result in zip((out, save_mean, save_invstd), found, strict=True):
        fill(target, result)
    return out, save_mean, save_invstd


@composed("aten.native_batch_norm_backward.default")
def _batches_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor | None,
    scale: Tensor | None,
    train: bool,
    eps: float,
    mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    if not train:
        assert running_mean is not None
        assert running_var is not None
        mean, scale = running_mean, (running_var + eps).rsqrt()
    assert mean is not None
    assert scale is not None
    wide, dims = _wide(grad), _others(x)
    normal = (_wide(x) - _along(mean, x)) * _along(scale, x)
    along = (wide * normal).sum(dims)
    total = wide.sum(dims)
    dx = wide
    if train:
        count = max(x.numel() // x.shape[1], 1)
        dx = wide - _along(total / count, x) - normal * _along(along / count, x)
    dx = dx * _along(scale if weight is None else scale * weight, x)
    kind = x.dtype if weight is None else weight.dtype
    return _masked(mask, dx.to(x.dtype), along.to(kind), total.to(kind))


# -- dropout --------------------------------------------------------------------------------------


@composed("aten.native_dropout")
def _dropout(x: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Draw the mask as one process draws it, whatever the layout."""
    if train is False or not x.numel():
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    mask = torch.empty_like(x).bernoulli_(1 - p)
    return x * mask * (0.0 if p == 1 else 1 / (1 - p)), mask.bool()
