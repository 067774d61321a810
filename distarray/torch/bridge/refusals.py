"""Exceptions for tensors and blocks that cannot be shared, with a remedy in each message."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from distarray.errors import CopyRequiredError
from distarray.torch.bridge.dtypes import torch_dtype
from distarray.torch.bridge.plain import local_of
from distarray.typing import Array

__all__ = [
    "check_device_dtype",
    "checked_tensor",
    "refuse_bits",
    "refuse_block",
    "refuse_gradient",
]

_COPY = "pass copy=True for a tensor with memory of its own"


def checked_tensor(t: Tensor, call: str) -> Any:
    """Return a tensor whose memory holds its values; raise TypeError for any other.

    Parameters
    ----------
    t : Tensor
        The user's argument.
    call : str
        Name of the function, for the message.

    Returns
    -------
    Tensor
        `t` itself, or the completed result of an asynchronous collective.

    Raises
    ------
    TypeError
        If it is no tensor with strided memory.
    """
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{call}: a torch.Tensor is wanted, not {type(t).__name__}")
    if type(t).__name__ == "AsyncCollectiveTensor":
        t = t.wait()
    if local_of(t) is not t:
        raise TypeError(
            f"{call}: a parameter that is distributed already; p.to_array() is the array over its "
            "memory, p.to_local() this rank's part, p.full_tensor() the whole"
        )
    if hasattr(t, "_local_tensor"):
        raise TypeError(
            f"{call}: a DTensor has no memory of its own; from_dtensor(t) makes a DistArray of it, "
            "t.to_local() is this rank's block"
        )
    for kind, found, instead in (
        ("a nested tensor", t.is_nested, "t.to_padded_tensor(0) is a plain one"),
        ("a quantized tensor", t.is_quantized, "t.dequantize() is a plain one"),
        ("a tensor on the meta device, without values", t.is_meta, "give it a device first"),
        (
            f"a tensor of layout {t.layout}",
            t.layout != torch.strided,
            "t.to_dense() is a plain one",
        ),
    ):
        if found:
            raise TypeError(f"{call}: {kind} has no strided memory to hand over; {instead}")
    if _has_no_memory(t):
        raise TypeError(
            f"{call}: a {type(t).__name__} wraps other tensors and has no memory of its own; bring "
            "the plain tensor that it holds"
        )
    return t


def _has_no_memory(t: Tensor) -> bool:
    own_dispatch = type(t).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__
    if own_dispatch and type(t).__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
        return True
    try:
        return bool(t.data_ptr() == 0 and t.numel())
    except RuntimeError:  # from fake and functional tensors
        return True


def refuse_gradient(t: Tensor, call: str) -> None:
    """Raise ValueError if the tensor requires grad."""
    if t.requires_grad:
        ours = isinstance(t, torch.nn.Parameter)
        more = ", or cut a module's with distribute_parameter(module, name, ...)" if ours else ""
        raise ValueError(
            f"{call}: the tensor requires grad, and what is done to the array would be hidden from "
            f"autograd; pass t.detach(){more}"
        )


def refuse_bits(t: Tensor, call: str) -> None:
    """Raise CopyRequiredError if the memory holds the conjugate or the negative of the values."""
    for kind, found in (("conjugate", t.is_conj()), ("negative", t.is_neg())):
        if found:
            raise CopyRequiredError(
                f"{call}: the tensor's memory holds the {kind} of its values (a lazy view); pass "
                f"copy=True, or t.resolve_{kind[:4].rstrip('a')}()"
            )


def refuse_block(block: Array, call: str) -> NoReturn:
    """Raise an exception with the reason why no tensor can share the block's memory."""
    dtype = block.dtype
    if torch_dtype(dtype) is None:
        raise TypeError(
            f"{call}: torch has no data type {dtype}; convert first, as in x.astype('float64') or "
            "x.view('int64')"
        )
    if not dtype.isnative:
        raise CopyRequiredError(f"{call}: the block is of byte order {dtype.str}; {_COPY}")
    if not block.flags.writeable:
        raise CopyRequiredError(
            f"{call}: the block is read-only, and torch would write to it all the same; {_COPY}"
        )
    backwards = [dim for dim, stride in enumerate(block.strides) if stride < 0]
    if backwards:
        raise CopyRequiredError(
            f"{call}: the block has negative strides along dimension(s) {backwards}, which tensors "
            f"cannot have; {_COPY}"
        )
    raise CopyRequiredError(
        f"{call}: the block's strides {block.strides} are no multiples of its {dtype.itemsize} "
        f"bytes an element; {_COPY}"
    )


def check_device_dtype(dtype: torch.dtype, device: torch.device, call: str) -> None:
    """Refuse data types that a Gaudi does not support, and an HPU without the Gaudi software."""
    if device.type != "hpu":
        return
    if dtype in (torch.float64, torch.complex64, torch.complex128):
        held = "holds float64 as float32" if dtype == torch.float64 else "has no complex numbers"
        raise TypeError(
            f"{call}: the HPU {held}; pass dtype=torch.float32 (or another) to say what is wanted"
        )
    if not hasattr(torch, "hpu"):
        raise RuntimeError(
            f"{call}: the Gaudi software is not loaded; call distarray.torch.start('hpu') before "
            "import torch"
        )
