"""Parts of parameters as plain tensors.

A part has a class of its own, so that torch's functions do not take it for the whole
(:mod:`distarray.torch.parameters.parts`). What moves memory wants the tensor that it is.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["is_part", "local_of", "plainly"]


#: A context in which torch's functions take parts as plain tensors.
plainly: Any = torch._C.DisableTorchFunctionSubclass


def is_part(x: Any) -> bool:
    """Whether an object is this rank's part of a parameter, or of what belongs to one."""
    return getattr(type(x), "plain_class", None) is not None


def local_of(tensor: Tensor) -> Tensor:
    """A part as a plain tensor, through which gradients flow; others as they are."""
    if not is_part(tensor):
        return tensor
    with plainly():
        return tensor.as_subclass(torch.Tensor)
