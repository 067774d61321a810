"""Conversion of tensors to the arrays that a group's collective calls take, and back.

MPI reads host memory and folds the number types that NumPy knows. A tensor on a device is copied to
the host, unless the group's GPUs exchange messages by NCCL. bfloat16, float16 and float8 are folded
in float32 and rounded once, at the end. Where elements are only moved, those without a NumPy type
are sent as integers of their size.
"""

import numpy as np
import torch
from torch import Tensor

from distarray.comm.devices import on_device
from distarray.comm.group import Group
from distarray.layout.placement import Fold
from distarray.torch.bridge import counting, lending
from distarray.torch.bridge.refusals import checked_tensor
from distarray.torch.bridge.transforms import is_traced, refuse_wrapped
from distarray.torch.collectives.graphs import leave_out
from distarray.typing import Array

__all__ = ["foldable", "folded_back", "folds_in_place", "movable", "moved_back", "plain", "refill"]


_float8 = [
    kind
    for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    if (kind := getattr(torch, f"float8_{name}", None)) is not None
]
#: Dtypes that are folded in another dtype, and the dtype used.
_FOLDED_IN = dict.fromkeys([torch.bfloat16, torch.float16, *_float8], torch.float32)
_FOLDED_IN[torch.complex32] = torch.complex64
#: Dtypes without a NumPy type, and the integer dtype in which they are sent.
_TRAVELS_AS = dict.fromkeys(_float8, torch.uint8)
_TRAVELS_AS[torch.bfloat16] = torch.int16
_TRAVELS_AS[torch.complex32] = torch.int32

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_STRIDED = torch.strided
_BITS = (Fold.BAND, Fold.BOR, Fold.BXOR)
_LOGICAL = (Fold.ANY, Fold.ALL)


def plain(call: str, tensor: Tensor) -> Tensor:
    """Return the tensor if it has strided memory of its own; raise TypeError otherwise.

    Parameters
    ----------
    call : str
        Name of the calling function, for the message.
    tensor : torch.Tensor
        DTensors, sparse, quantized, nested and meta tensors are refused.
    """
    usual = (type(tensor) in _PLAIN or is_traced(tensor)) and tensor.layout is _STRIDED
    if usual and not (tensor.is_meta or tensor.is_quantized or tensor.is_nested):
        return tensor
    return checked_tensor(tensor, call)


def foldable(tensor: Tensor, fold: Fold, group: Group | None = None) -> Array:
    """Return the tensor's numbers, in the dtype that they are folded in.

    They are in host memory, or in GPU memory if `group` sends from there (:func:`lends`, which is
    collective over it). They may share memory with the tensor, and may be strided.
    """
    dtype = tensor.dtype
    inexact = dtype.is_floating_point or dtype.is_complex
    if inexact and fold in _BITS:
        raise TypeError(f"{fold.value!r} is for integers and booleans, not {dtype}")
    if not inexact and fold is Fold.AVG:
        raise TypeError(f"there is no mean of {dtype}: convert it to a floating dtype")
    if dtype.is_complex and fold in (Fold.MIN, Fold.MAX):
        raise TypeError(f"{fold.value!r} of complex numbers: they have no order")
    if dtype in _FOLDED_IN and fold not in _LOGICAL:
        tensor = tensor.to(_FOLDED_IN[dtype])
    elif dtype in _TRAVELS_AS:
        tensor = tensor != 0
    return _block(tensor, group)


def folds_in_place(tensor: Tensor, fold: Fold) -> bool:
    """Return True if `foldable` returns the tensor's own memory, in its own dtype."""
    if fold in _LOGICAL and tensor.dtype is not torch.bool:
        raise TypeError(f"{fold.value!r} in place is for bool tensors, not {tensor.dtype}")
    if tensor.dtype in _FOLDED_IN or tensor.device.type != "cpu":
        return False
    return bool(tensor.is_contiguous()) and not (tensor.is_conj() or tensor.is_neg())


def folded_back(result: Array, like: Tensor, fold: Fold) -> Tensor:
    """Return a fold's result as a tensor of the operand's dtype, on the operand's device."""
    tensor = _tensor(result)
    if tensor.dtype is not like.dtype and fold not in _LOGICAL:
        # Round on the host: a device might store the wider dtype with fewer bits.
        tensor = tensor.to(like.dtype)
    return _beside(tensor, like)


def refill(tensor: Tensor, result: Array) -> None:
    """Copy a fold's result into the operand, on whatever device the operand is."""
    values = _tensor(result).to(tensor.dtype)
    if counting.watching and tensor.device.type != values.device.type:
        counting.record("h2d", values.nbytes)
    with torch.no_grad():
        tensor.copy_(values)


def movable(tensor: Tensor, group: Group | None = None) -> Array:
    """Return the tensor's elements, or integers of their size; on which device, see `foldable`."""
    alias = _TRAVELS_AS.get(tensor.dtype)
    if alias is not None:
        tensor = tensor.view(alias) if tensor.is_contiguous() else tensor.contiguous().view(alias)
    return _block(tensor, group)


def moved_back(result: Array, like: Tensor) -> Tensor:
    """Return a received array as a tensor of the dtype and on the device of the sent tensor."""
    tensor = _tensor(result)
    if like.dtype in _TRAVELS_AS:
        tensor = tensor.view(like.dtype)
    return _beside(tensor, like)


def _block(tensor: Tensor, group: Group | None) -> Array:
    refuse_wrapped((tensor,))
    if is_traced(tensor):
        leave_out("numpy")
    if lending.lends(tensor, group):
        return lending.lent(tensor)
    if counting.watching and tensor.device.type != "cpu":
        counting.record("d2h", tensor.nbytes)
    block: Array = tensor.numpy(force=True)
    return block


def _tensor(result: Array) -> Tensor:
    """Return a result as a contiguous tensor; the mean of a 0-d operand is a NumPy scalar."""
    if on_device(result):
        return lending.returned(result).contiguous()
    # not ascontiguousarray, which adds a dimension to a 0-d array
    return torch.from_numpy(np.asarray(result, order="C"))


def _beside(tensor: Tensor, like: Tensor) -> Tensor:
    """Move the tensor to the device of another tensor."""
    if tensor.device.type == like.device.type:
        return tensor
    if counting.watching:
        counting.record("h2d", tensor.nbytes)
    return tensor.to(like.device)
