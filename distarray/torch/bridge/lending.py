"""CUDA tensors as CuPy arrays of the same memory, for messages by NCCL."""

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from distarray.comm.group import Group
from distarray.typing import Array

__all__ = ["lends", "lent", "returned"]


def lends(tensor: Tensor, group: Group | None) -> bool:
    """Return True if a group sends the tensor directly from GPU memory, by NCCL; collective.

    If False, the tensor is copied to the host. The first call for a group determines whether its
    ranks can use NCCL.
    """
    if group is None or group.size == 1 or group.rank < 0 or not _on_gpu(tensor):
        return False
    if not group.has_met:
        xp = _cupy()
        if xp is None:
            group.meet_devices(None)
        else:
            with xp.cuda.Device(tensor.device.index):
                group.meet_devices(xp)
    return group.uses_nccl


def lent(tensor: Tensor) -> Array:
    """Return a CuPy array over the tensor's memory, ordered after torch's current stream."""
    block: Array = _cupy().from_dlpack(tensor.detach().resolve_conj().resolve_neg())
    return block


def returned(block: Array) -> Tensor:
    """Return a tensor over a CuPy array's memory."""
    return torch.from_dlpack(block)


def _on_gpu(tensor: Tensor) -> bool:
    return bool(tensor.device.type == "cuda")


@cache
def _cupy() -> Any:
    """Return the module cupy; None if it is not installed."""
    try:
        return import_module("cupy")
    except ImportError:
        return None
