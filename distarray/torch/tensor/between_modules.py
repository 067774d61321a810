"""Distributed tensors that modules hand to one another, and how modules compute with them.

Inside of its forward a distributed module works on an `Activation`: its local tensor takes part in
autograd itself, which is faster than a tensor that dispatches. What leaves the module is a
`DistTensor`. It remembers the activation that it was made of, so that the next module goes on with
that.
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
    """Whether an object is a distributed tensor, or this rank's part of a parameter."""
    return type(x) is DistTensor or is_part(x)


def given(x: Any) -> Any:
    """What a module hands out: a `DistTensor` for an activation, others as they are."""
    if type(x) is not Activation:
        return x
    part, layout = x.local, x.layout
    spec = Spec(x.mesh, layout, contiguous_strides(layout.shape), part.dtype, part.device)
    result = autograd.entered_as(DistTensor, part, spec, x.grads)
    result._light = (x, result._version)
    return result


def taken(x: Any) -> Any:
    """What a module computes with: an `Activation` for a distributed tensor, others as they are."""
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
    """Whether gradients may go the short way: nobody waits for them at the tensor itself."""
    wanted = x.requires_grad and torch.is_grad_enabled()
    if wanted and (x._backward_hooks or x.retains_grad or not light.requires_grad):
        return False
    return x._spec.layout is light.layout


def _plain(layout: Layout) -> Layout:
    """The layout with nothing but pending sums left to do."""
    sums = all(layout.placements[m].op is Fold.SUM for m in layout.partials)  # type: ignore[attr-defined]
    return layout if sums and not layout.ats else layout.settled()
