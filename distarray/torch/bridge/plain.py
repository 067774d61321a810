"""Parts of parameters as plain tensors.

A part, which is this rank's block of a parameter, has a class of its own, so that torch's functions
do not take it for the whole (:mod:`distarray.torch.parameters.parts`). Functions that move memory
need the plain tensor.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["is_part", "local_of", "plainly"]


#: Context in which torch's functions take parts as plain tensors.
plainly: Any = torch._C.DisableTorchFunctionSubclass


def is_part(x: Any) -> bool:
    """Return True for this rank's part of a parameter, or of a like tensor such as its gradient."""
    return getattr(type(x), "plain_class", None) is not None


def local_of(tensor: Tensor) -> Tensor:
    """Return a part as a plain tensor, through which gradients flow; other tensors unchanged."""
    if not is_part(tensor):
        return tensor
    with plainly():
        return tensor.as_subclass(torch.Tensor)
