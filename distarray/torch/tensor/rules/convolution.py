"""Convolutions, pooling and resizing: each rank computes its images or its channels."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from distarray.layout import Coords, Cut, Layout
from distarray.torch.tensor.aligning import (
    batched,
    elsewhere,
    guarded,
    is_spread,
    pending,
    with_lead,
)
from distarray.torch.tensor.calls import Call, Operand
from distarray.torch.tensor.table import Decision, rule

# -- convolution ----------------------------------------------------------------------------------


def _divided(call: Call, images: Sequence[Operand], weight: Operand) -> tuple[Cut, Cut, int] | None:
    """Return the cuts of batch and output channels, and the channel dimension of the weight."""
    place = 1 if call["transposed"] else 0
    batch = _natural(images, 0)
    channels = Cut.whole(weight.shape[place])
    if call["groups"] == 1:
        layout = weight.layout.settled()
        channels = elsewhere(layout, [d for d in range(layout.ndim) if d != place]).cuts[place]
    if set(batch.mesh_dims) & set(channels.mesh_dims):
        image = images[-1]
        if image.layout.size * image.itemsize >= weight.layout.size * weight.itemsize:
            channels = Cut.whole(channels.extent)
        else:
            batch = Cut.whole(batch.extent)
    if not (is_spread(batch) or is_spread(channels)):
        return None
    return batch, channels, place


def _natural(operands: Sequence[Operand], dim: int) -> Cut:
    """Return the cut of a dimension: of the first operand that cuts it, or could cut it alone."""
    for x in operands:
        if is_spread(x.layout.cuts[dim]):
            return _alone(x.layout, dim).cuts[dim]
    for x in operands:
        cut = _alone(x.layout, dim).cuts[dim]
        if is_spread(cut):
            return cut
    return Cut.whole(operands[0].shape[dim])


def _alone(layout: Layout, dim: int) -> Layout:
    layout = layout.settled()
    return elsewhere(layout, [d for d in range(layout.ndim) if d != dim])


def _at(place: int, cut: Cut, shape: Sequence[int], mesh_shape: tuple[int, ...]) -> Layout:
    return Layout.replicated(tuple(shape), mesh_shape).replace(place, cut)


@rule("aten.convolution")
def _convolution(call: Call) -> Decision | None:
    image, weight, *bias = call.operands
    found = _divided(call, [image], weight)
    if found is None:
        return None
    batch, channels, place = found
    mesh_shape = call.mesh_shape
    wanted = [
        with_lead([batch], image.shape, mesh_shape),
        _at(place, channels, weight.shape, mesh_shape),
        *[with_lead([channels], x.shape, mesh_shape) for x in bias],
    ]
    result = with_lead([batch, channels], call.shape, mesh_shape)
    return guarded(call, wanted, [result])


@rule("aten.convolution_backward.default")
def _convolution_backward(call: Call) -> Decision | None:
    """Compute on each rank's images; gradients of weights are pending sums over the ranks."""
    grad, image, weight = call.operands
    found = _divided(call, [grad, image], weight)
    if found is None:
        return None
    batch, channels, place = found
    mesh_shape = call.mesh_shape
    wanted = [
        with_lead([batch, channels], grad.shape, mesh_shape),
        with_lead([batch], image.shape, mesh_shape),
        _at(place, channels, weight.shape, mesh_shape),
    ]
    results = [
        pending(wanted[1], channels.mesh_dims),
        pending(wanted[2], batch.mesh_dims),
        pending(with_lead([channels], (channels.extent,), mesh_shape), batch.mesh_dims),
    ]
    decision = guarded(call, wanted, results, call["output_mask"])
    return decision._replace(changed=partial(_sizes, call["bias_sizes"], channels))


def _sizes(sizes: Sequence[int] | None, channels: Cut, coords: Coords | None) -> dict[str, Any]:
    if not sizes or coords is None:
        return {}
    start, stop = channels.interval(channels.part(coords))
    return {"bias_sizes": [stop - start]}


# -- pooling and resizing -------------------------------------------------------------------------

_BY_DIMENSIONS = {
    1: ("reflection_pad1d", "replication_pad1d", "upsample_nearest1d", "upsample_linear1d"),
    2: (
        *("max_pool2d_with_indices", "avg_pool2d", "_adaptive_avg_pool2d", "adaptive_max_pool2d"),
        *("reflection_pad2d", "replication_pad2d", "upsample_nearest2d", "upsample_bilinear2d"),
        *("upsample_bicubic2d", "_upsample_nearest_exact2d"),
    ),
    3: (
        *("max_pool3d_with_indices", "avg_pool3d", "_adaptive_avg_pool3d", "adaptive_max_pool3d"),
        *("reflection_pad3d", "replication_pad3d", "upsample_nearest3d", "upsample_trilinear3d"),
        *("pixel_shuffle", "pixel_unshuffle"),
    ),
}
_TRAILING = {
    f"aten.{name}{suffix}": count
    for count, names in _BY_DIMENSIONS.items()
    for name in names
    for suffix in ("", "_backward")
    if hasattr(torch.ops.aten, f"{name}{suffix}")
}


@rule(*_TRAILING)
def _pooled(call: Call) -> Decision | None:
    """Cut images or channels, and keep each of them whole."""
    trailing = [_TRAILING[call.name]] * len(call.operands)
    return batched(call, trailing, _resized if call.get("input_size") is not None else None)


def _resized(result: Layout, coords: Coords | None) -> dict[str, Any]:
    return {"input_size": list(result.local_shape(coords))}
