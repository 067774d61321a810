"""Parts of parameters as plain tensors.

A part has a class of its own, so that torch's functions do not take it for the whole
(:mod:`distarray.torch.parameters.parts`). What moves memory wants the tensor that it is.
"""

from typing import Any

import torch
from torch import Tensor

__all__ = ["local_of", "plainly"]


#: A context in which torch's functions take parts as plain tensors.
plainly: Any = torch._C.DisableTorchFunctionSubclass


def local_of(tensor: Tensor) -> Tensor:
    """A part as a plain tensor, through which gradients flow; others as they are."""
    if getattr(type(tensor), "plain_class", None) is None:
        return tensor
    with plainly():
        return tensor.as_subclass(torch.Tensor)
