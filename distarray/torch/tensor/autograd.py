"""Differentiable conversions between plain and distributed tensors, and between layouts.

A distributed gradient has global meaning: it is the gradient of the global tensor, in any layout.
So the backward pass of a conversion passes it on, in the layout of its tensor.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.layout.layout import normalize_placements
from distarray.torch.bridge.transforms import Differentiable, is_wrapped, refuse_wrapped
from distarray.torch.collectives.carrying import gradient_layout
from distarray.torch.tensor.from_parts import listed
from distarray.torch.tensor.ladder import made
from distarray.torch.tensor.moved_views import current
from distarray.torch.tensor.moving import moved
from distarray.torch.tensor.spec import Spec, contiguous_strides
from distarray.typing import Placements

__all__ = ["entered", "entered_as", "left", "redistributed", "returned", "watch"]


def _function(name: str, forward: Any, backward: Any) -> Any:
    functions = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    kind: Any = type(name, (Differentiable,), functions)
    return kind.apply


# -- from layout to layout ------------------------------------------------------------------------


def redistributed(x: Any, layout: Layout) -> Any:
    """Return the tensor in another layout; its gradient gets the layout of `x`."""
    if layout is x._spec.layout:
        return x
    return _redistribute(x, layout)


def _to_layout(ctx: FunctionCtx, x: Any, layout: Layout) -> Any:
    spec = x._spec
    ctx.kind, ctx.mesh, ctx.layout = type(x), spec.mesh, spec.layout.settled()
    part = moved(current(x), spec.mesh, spec.layout, layout, x)
    return made(type(x), part, spec.laid_out(layout))


def _back_to_layout(ctx: FunctionCtx, grad: Any) -> Any:
    return returned(grad, ctx.kind, ctx.mesh, ctx.layout), None


def returned(grad: Any, cls: Any, mesh: DeviceMesh, layout: Layout) -> Any:
    """Return a gradient of the backward pass in the layout that is needed.

    A plain gradient is that of values written to a plain tensor, which is whole on every rank.
    """
    if type(grad) is not cls:
        refuse_wrapped([grad])
        whole = Layout.replicated(tuple(grad.shape), mesh.shape)
        grad = entered(cls, grad, mesh, whole)
    return redistributed(grad, layout)


_redistribute = _function("Redistribute", _to_layout, _back_to_layout)


# -- from and to plain tensors --------------------------------------------------------------------


def entered(
    cls: Any, local: Tensor, mesh: DeviceMesh, layout: Layout, grads: Placements | None = None
) -> Any:
    """Return the distributed tensor of this rank's part, which gets its part of the gradient."""
    # The order in memory may differ between ranks, and no rank knows the others' order.
    local = local.resolve_conj().resolve_neg().contiguous()
    strides = contiguous_strides(layout.shape)
    spec = Spec(mesh, layout, strides, local.dtype, local.device)
    return entered_as(cls, local, spec, _grad_layout(spec, grads))


def entered_as(cls: Any, local: Tensor, spec: Spec, grads: Layout) -> Any:
    """Do as `entered` for a part that is known to fit; `grads` is the layout of its gradient."""
    if not (local.requires_grad and torch.is_grad_enabled()):
        return made(cls, local.detach() if local.requires_grad else local, spec)
    return _enter(local, cls, spec, grads)


def _enter_forward(ctx: FunctionCtx, local: Tensor, cls: Any, spec: Spec, grads: Layout) -> Any:
    ctx.kind, ctx.mesh, ctx.grads = cls, spec.mesh, grads
    return made(cls, local.detach(), spec)


def _enter_backward(ctx: FunctionCtx, grad: Any) -> Any:
    return left(returned(grad, ctx.kind, ctx.mesh, ctx.grads)), None, None, None


_enter = _function("FromLocal", _enter_forward, _enter_backward)


def left(x: Any, grads: Placements | None = None) -> Tensor:
    """Return this rank's part as a plain tensor; the part's gradient is a part of `x`'s."""
    part = current(x)
    if not (x.requires_grad and torch.is_grad_enabled()):
        return part
    return _leave(x, _grad_layout(x._spec, grads))


def _leave_forward(ctx: FunctionCtx, x: Any, grads: Layout) -> Tensor:
    ctx.kind, ctx.spec = type(x), x._spec.laid_out(grads)
    return x._part.view_as(x._part)


def _leave_backward(ctx: FunctionCtx, grad: Tensor) -> Any:
    return entered(ctx.kind, grad, ctx.spec.mesh, ctx.spec.layout), None


_leave = _function("ToLocal", _leave_forward, _leave_backward)


def _grad_layout(spec: Spec, grads: Placements | None) -> Layout:
    """Return the layout of gradients: `grads`, else the tensor's with nothing pending."""
    if grads is None:
        return gradient_layout(spec.layout)
    placed = normalize_placements(listed(grads), len(spec.shape), spec.mesh.shape)
    if placed == spec.layout.placements:
        return spec.layout
    pending = {m: p for m, p in enumerate(placed) if p != spec.layout.placements[m]}
    layout = Layout.from_cuts(spec.layout.cuts, spec.layout.mesh_shape, pending)
    if layout.placements == placed:
        return layout
    return Layout.chunked(tuple(spec.shape), spec.mesh.shape, placed)


# -- leaves ---------------------------------------------------------------------------------------


def watch(x: Any) -> None:
    """Add a hook that gives the gradients of a leaf the layout of the leaf."""
    if x.requires_grad and x.is_leaf and not getattr(x, "_watched", None):
        x._watched = _LaysOut(type(x), x._spec)
        x.register_hook(x._watched)


class _LaysOut:
    """Hook on a leaf that moves its gradient to the layout of the leaf."""

    __slots__ = ("kind", "spec")

    def __init__(self, kind: Any, spec: Spec) -> None:
        self.kind, self.spec = kind, spec  # no reference to the tensor, which owns this hook

    def __call__(self, grad: Any) -> Any:
        if grad is None or grad.layout is not torch.strided:  # no gradient, or a sparse one
            return grad
        if is_wrapped(grad):  # a batch of gradients, which no leaf keeps
            return grad
        return returned(grad, self.kind, self.spec.mesh, gradient_layout(self.spec.layout))
