"""NumPy views of tensors in a ``with`` block, and a test for shared memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distarray.array import DistArray
from distarray.comm import devices
from distarray.torch.bridge import counting
from distarray.torch.bridge.dtypes import numpy_view
from distarray.torch.bridge.refusals import checked_tensor, refuse_bits
from distarray.torch.bridge.sharing import is_block
from distarray.typing import Array

__all__ = ["host", "shares_memory"]

#: Search steps after which two strided arrays are assumed to share memory.
_MAX_WORK: Any = 1_000_000


@contextmanager
def host(t: Tensor, mode: str = "r") -> Iterator[Array]:
    """Return a context with a NumPy view of a tensor's values on any device.

    For a CPU tensor the view is its memory. For a tensor on another device it is a copy in host
    memory, which is written back when the block ends, but not if it ends by an exception. After a
    block that writes, autograd knows that the tensor has changed: a backward pass that needs the
    old values raises instead of computing wrong gradients.

    Parameters
    ----------
    t : Tensor
        It may require grad: as under ``torch.no_grad()``, autograd does not record the changes.
    mode : {"r", "w", "rw"}
        Read (the view is read-only), write every element (for a tensor on a device the view starts
        with undefined values), or read and write.

    Yields
    ------
    numpy.ndarray
        Of the shape of `t`; bfloat16 and 8-bit floats have the data types of ml_dtypes.

    Cost
    ----
    Nothing is sent. Nothing is copied for a CPU tensor. From a device one blocking copy is made for
    "r" and "rw", and to the device one for "w" and "rw".

    Examples
    --------
    >>> import torch, distarray.torch as dt
    >>> weight = torch.nn.Parameter(torch.ones(3))
    >>> with dt.host(weight, "rw") as values:
    ...     values *= 2
    >>> weight.tolist()
    [2.0, 2.0, 2.0]
    """
    if mode not in ("r", "w", "rw"):
        raise ValueError(f"host: mode is 'r', 'w' or 'rw', not {mode!r}")
    plain = checked_tensor(t, "host").detach()
    refuse_bits(plain, "host")
    if plain.device.type == "cpu":
        staged = plain
        counting.count("shared", plain.nbytes)
    elif mode == "w":
        staged = torch.empty_like(plain, device="cpu")
    else:
        counting.count("d2h", plain.nbytes)
        staged = plain.cpu()
    view = numpy_view(staged, "host")
    if mode == "r":
        view.flags.writeable = False
        yield view
        return
    try:
        yield view
    except BaseException:
        if staged is plain:  # the values written before the exception stay
            _bump(plain)
        raise
    if staged is plain:
        _bump(plain)
    else:
        counting.count("h2d", plain.nbytes)
        plain.copy_(staged)


def _bump(t: Tensor) -> None:
    """Increment the tensor's version, so that autograd knows that its memory was written to."""
    if not t.is_inference():  # inference tensors have no version, and autograd refuses them
        torch.autograd.graph.increment_version(t)


def shares_memory(x: DistArray | Array, t: Tensor) -> bool:
    """Return True if a block and a tensor have memory in common.

    Parameters
    ----------
    x : DistArray or array
        Of a distributed array, its block on this rank is used.
    t : Tensor
        On any device; it may require grad.

    Returns
    -------
    bool
        For this rank; False if either is empty.

    Cost
    ----
    Nothing is sent.

    Examples
    --------
    >>> import torch, distarray.torch as dt
    >>> t = torch.ones(3)
    >>> dt.shares_memory(dt.from_torch(t), t)
    True
    >>> dt.shares_memory(dt.from_torch(t, copy=True), t)
    False
    """
    block = x.block if isinstance(x, DistArray) else x
    if not is_block(block) and not isinstance(block, np.generic):
        raise TypeError(
            f"shares_memory: a DistArray or array is wanted, not {type(block).__name__}"
        )
    plain = checked_tensor(t, "shares_memory").detach()
    if devices.on_device(block):
        if plain.device.type != "cuda":
            return False
        return _overlap(_extent_on_device(block), _extent(plain))
    if plain.device.type != "cpu" or not isinstance(block, np.ndarray):
        return False
    view = numpy_view(_resolved(plain), "shares_memory")
    try:
        return bool(np.shares_memory(block, view, max_work=_MAX_WORK))
    except np.exceptions.TooHardError:  # contrived strides over the same range of memory
        return True


def _resolved(t: Tensor) -> Tensor:
    """Return the memory itself, without a lazy conjugate or negative."""
    t = torch._neg_view(t) if t.is_neg() else t
    return t.conj() if t.is_conj() else t


def _extent(t: Tensor) -> tuple[int, int]:
    """Return the addresses of a tensor's first byte and of the byte after its last."""
    if not t.numel():
        return 0, 0
    span = sum([(n - 1) * stride for n, stride in zip(t.shape, t.stride(), strict=True)])
    return t.data_ptr(), t.data_ptr() + (span + 1) * t.element_size()


def _extent_on_device(block: Array) -> tuple[int, int]:
    if not block.size:
        return 0, 0
    data: Any = block.data  # CuPy's pointer
    low = high = data.ptr
    for n, stride in zip(block.shape, block.strides, strict=True):
        low, high = low + min(0, (n - 1) * stride), high + max(0, (n - 1) * stride)
    return low, high + block.itemsize


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])
