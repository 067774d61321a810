"""Distributed tensors between modules, and the activations with which modules compute.

In its forward pass a distributed module computes with an `Activation`: autograd records its local
tensor itself, which is faster than a tensor with dispatch. The module returns a `DistTensor`. That
keeps a reference to its activation, with which the next module continues.
"""

from typing import Any

import torch

from distarray.layout import Fold, Layout
from distarray.torch.bridge.plain import is_part
from distarray.torch.tensor import autograd
from distarray.torch.tensor.activations import Activation, laid_out
from distarray.torch.tensor.dist_tensor import DistTensor
from distarray.torch.tensor.spec import Spec, contiguous_strides

__all__ = ["given", "is_distributed", "taken"]


def is_distributed(x: Any) -> bool:
    """Return True for a distributed tensor, or this rank's part of a parameter."""
    return type(x) is DistTensor or is_part(x)


def given(x: Any) -> Any:
    """Convert a module's result: an activation to a `DistTensor`; other objects are unchanged."""
    if type(x) is not Activation:
        return x
    part, layout = x.local, x.layout
    spec = Spec(x.mesh, layout, contiguous_strides(layout.shape), part.dtype, part.device)
    result = autograd.entered_as(DistTensor, part, spec, x.grads)
    result._light = (x, result._version)
    return result


def taken(x: Any) -> Any:
    """Convert a module's input: a distributed tensor to an `Activation`; others are unchanged."""
    if type(x) is not DistTensor:
        return taken(x.to_dist_tensor()) if is_part(x) else x
    light = getattr(x, "_light", None)
    if light is not None and light[1] == x._version and _stands_for(light[0], x):
        return light[0]
    layout = _plain(x._spec.layout)
    if layout is not x._spec.layout:
        x = autograd.redistributed(x, layout)
    found = laid_out(x.to_local(), x.mesh, layout)
    x._light = (found, x._version)
    return found


def _stands_for(light: Activation, x: DistTensor) -> bool:
    """Return True if the activation can replace the tensor, whose own gradient nobody waits for."""
    wanted = x.requires_grad and torch.is_grad_enabled()
    if wanted and (x._backward_hooks or x.retains_grad or not light.requires_grad):
        return False
    return x._spec.layout is light.layout


def _plain(layout: Layout) -> Layout:
    """Return the layout if pending sums are all it has pending, else the settled layout."""
    sums = all(layout.placements[m].op is Fold.SUM for m in layout.partials)  # type: ignore[attr-defined]
    return layout if sums and not layout.ats else layout.settled()
