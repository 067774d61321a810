"""Softmax and its logarithm: along a dimension that is cut they cost two small allreduces."""

from typing import Any

import torch
from torch import Tensor

from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.table import Decision, composed, rule

_NAMES = ("aten._softmax", "aten._log_softmax", "aten._safe_softmax")
_BACKWARD = ("aten._softmax_backward_data", "aten._log_softmax_backward_data")
_HALF = (torch.float16, torch.bfloat16)


@rule(*_NAMES, *_BACKWARD)
def _along_whole(call: Call) -> Decision | None:
    """Compute along a dimension that every rank has whole."""
    layout = call.operands[-1].layout
    if not layout.ndim:
        return None
    dim = call.dim()
    if layout.cuts[dim].parts > 1:
        return None
    return Decision([layout] * len(call.operands), [layout])


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in _HALF else x


def _apart(x: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Return the differences to the largest element, and the sum of their exponentials."""
    x = _wide(x)
    if not x.numel():
        return x, x.sum(dim, keepdim=True)
    apart = x - x.amax(dim, keepdim=True)
    return apart, apart.exp().sum(dim, keepdim=True)


@composed("aten._softmax")
def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    apart, total = _apart(x, dim)
    return (apart.exp() / total).to(torch.float32 if half_to_float else x.dtype)


@composed("aten._safe_softmax")
def _safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Return zeros for rows without any choice, such as rows of attention that are fully masked."""
    x = x if dtype is None else x.to(dtype)
    nothing = x.eq(-torch.inf).all(dim, keepdim=True)
    return torch.softmax(x, dim).masked_fill(nothing, 0)


@composed("aten._log_softmax")
def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    apart, total = _apart(x, dim)
    return (apart - total.log()).to(torch.float32 if half_to_float else x.dtype)


@composed("aten._softmax_backward_data")
def _softmax_backward(grad: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    grad, output = _wide(grad), _wide(output)
    product = grad * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)


@composed("aten._log_softmax_backward_data")
def _log_softmax_backward(grad: Tensor, output: Tensor, dim: int, input_dtype: Any) -> Tensor:
    grad, output = _wide(grad), _wide(output)
    return (grad - output.exp() * grad.sum(dim, keepdim=True)).to(input_dtype)
