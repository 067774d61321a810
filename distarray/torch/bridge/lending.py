"""CUDA tensors lent to NCCL: as CuPy arrays of the same memory, which a group's messages take."""

from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from distarray.comm.group import Group
from distarray.typing import Array

__all__ = ["lends", "lent", "returned"]


def lends(tensor: Tensor, group: Group | None) -> bool:
    """Whether a tensor takes part in a group's conversations as it lies, on the GPU.

    So it does where the ranks' GPUs exchange messages by NCCL, which they find out here at first:
    collective. Else it is copied to the host.
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
    """The tensor's memory as a CuPy array, after what torch's current stream still does to it."""
    block: Array = _cupy().from_dlpack(tensor.detach().resolve_conj().resolve_neg())
    return block


def returned(block: Array) -> Tensor:
    """A CuPy array's memory as a tensor."""
    return torch.from_dlpack(block)


def _on_gpu(tensor: Tensor) -> bool:
    return bool(tensor.device.type == "cuda")


@cache
def _cupy() -> Any:
    """CuPy, or None."""
    try:
        return import_module("cupy")
    except ImportError:
        return None
