"""GPU buffers in messages: dense where a library reads GPU memory, or in pinned host memory.

CuPy arrays are recognized by the CUDA array interface. CuPy is never imported here, so that a
program without GPU arrays does not load it.
"""

import os
import sys
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np

from distarray.comm.algorithms import joined, split_views
from distarray.typing import Array

__all__ = [
    "Transfers",
    "arrived",
    "back",
    "dense",
    "dense_like",
    "gpu_aware",
    "host_like",
    "module_of",
    "on_device",
    "scalar",
    "settle",
    "signed",
    "to_host",
    "transfers",
    "with_sign",
    "write_back",
]


Result = TypeVar("Result")


@dataclass
class Transfers:
    """Counts of the copies between device and host that communication has caused."""

    to_host: int = 0
    to_device: int = 0
    bytes: int = 0


transfers = Transfers()

_device_types: dict[type, bool] = {np.ndarray: False}
_aware: bool | None = None


def on_device(block: object) -> bool:
    """Return True if an object is a buffer on a GPU."""
    kind = type(block)
    known = _device_types.get(kind)
    if known is None:
        # Tensors have the interface on any device, but no NumPy dtype: NumPy converts tensors.
        known = hasattr(kind, "__cuda_array_interface__") and not hasattr(
            kind, "__torch_function__"
        )
        _device_types[kind] = known
    return known


def gpu_aware() -> bool:
    """Return True if MPI takes device pointers.

    ``DISTARRAY_GPU_AWARE`` decides if it is set. Otherwise the result is True if MPI lists CUDA
    among the kinds of memory that it supports (``mpi_memory_alloc_kinds``, MPI 4.1), or if a switch
    of an older library is on: ``MPICH_GPU_SUPPORT_ENABLED``, ``MV2_USE_CUDA``,
    ``OMPI_MCA_opal_cuda_support``.
    """
    global _aware
    if _aware is None:
        said = os.environ.get("DISTARRAY_GPU_AWARE")
        _aware = _supported() if said is None else _is_yes(said)
    return _aware


def _supported() -> bool:
    names = ("MPICH_GPU_SUPPORT_ENABLED", "MV2_USE_CUDA", "OMPI_MCA_opal_cuda_support")
    if any(_is_yes(os.environ.get(name, "")) for name in names):
        return True
    from mpi4py import MPI

    info = MPI.COMM_WORLD.Get_info()
    try:
        return "cuda" in (info.get("mpi_memory_alloc_kinds") or "")
    finally:
        info.Free()


def _is_yes(word: str) -> bool:
    return word.strip().lower() in ("1", "true", "yes", "on")


def to_host(block: Array) -> Array:
    """Return the block on the host: a pinned copy of a GPU block, or the host block itself."""
    if not on_device(block):
        return np.asarray(block)
    host = _pinned(block)
    dense = block if block.flags.c_contiguous else module_of(block).ascontiguousarray(block)
    cast("Any", dense).get(out=host)
    transfers.to_host += 1
    transfers.bytes += host.nbytes
    return host


def scalar(host: Any) -> Any:
    """Return the scalar of a 0-d array; a Python object is no scalar and stays in a 0-d array."""
    if isinstance(host, np.generic):
        return host
    if isinstance(host, np.ndarray) and host.dtype != object:
        return host[()]
    cell = np.empty((), object)
    cell[()] = host[()] if isinstance(host, np.ndarray) else host
    return cell


def with_sign(number: Any, block: Array) -> Any:
    """Return a number to be written to a block; -0.0 as an array, since CuPy would write 0.0."""
    if not on_device(block) or np.ndim(number) or not _is_negative_zero(number):
        return number
    return module_of(block).asarray(np.reshape(np.asarray(number), 1))


def signed(block: Array, number: Any) -> Array:
    """Give a 0-d block that was made of a number the number's sign of zero; return the block."""
    exact = with_sign(number, block)
    if exact is not number:
        block[...] = exact
    return block


def _is_negative_zero(number: Any) -> bool:
    if on_device(number) or np.asarray(number).dtype.kind not in "fc":
        return False
    return number == 0 and bool(np.signbit([np.real(number), np.imag(number)]).any())


def host_like(view: Array) -> Array:
    """Return an array that receives a message for `view`: the view itself if it is on the host."""
    return _pinned(view) if on_device(view) else view


def write_back(host: Array, view: Array) -> None:
    """Copy a message that was received in `host` to its view."""
    if host is view:
        return
    if not on_device(view):
        view[...] = host
        return
    if view.flags.c_contiguous:
        cast("Any", view).set(host)
    else:
        staged = module_of(view).empty(view.shape, view.dtype)
        staged.set(host)
        view[...] = staged
    # The copy reads pinned memory after the call, when the memory may already hold another message.
    settle(view)
    transfers.to_device += 1
    transfers.bytes += host.nbytes


def back(result: Result, like: Array) -> Result:
    """Copy a host array, or consecutive views of one, to the device of `like`; None stays None."""
    if result is None:
        return result
    if isinstance(result, list):
        whole = back(joined(result), like)
        return cast("Result", split_views(whole, [len(part) for part in result]))
    host = np.asarray(result, order="C")
    block = module_of(like).empty(host.shape, host.dtype)
    write_back(host, block)
    return cast("Result", block)


def dense_like(view: Array) -> Array:
    """Return a dense device buffer that receives a message for `view`: the view if it is dense."""
    if view.flags.c_contiguous:
        return view
    made: Array = module_of(view).empty(view.shape, view.dtype)
    return made


def dense(view: Array) -> Array:
    """Return a dense device buffer with the view's elements: the view itself if it is dense."""
    if view.flags.c_contiguous:
        return view
    packed: Array = module_of(view).ascontiguousarray(view)
    return packed


def settle(view: Array) -> None:
    """Wait for the GPU's current stream: MPI accesses memory without synchronizing with CUDA."""
    module_of(view).cuda.get_current_stream().synchronize()


def arrived(buffer: Array, view: Array) -> None:
    """Copy a message from the buffer that received it to its view."""
    if not on_device(buffer):
        write_back(buffer, view)
    elif buffer is not view:
        view[...] = buffer


def module_of(block: Array) -> Any:
    """Return the array module of a device block: CuPy, or another module with its interface."""
    return sys.modules[type(block).__module__.partition(".")[0]]


def _pinned(block: Array) -> Array:
    """Return an empty C-contiguous host array of the block's shape in page-locked memory."""
    module = module_of(block)
    if not block.nbytes:
        return np.empty(block.shape, block.dtype)
    memory = module.cuda.alloc_pinned_memory(block.nbytes)
    flat = np.frombuffer(memory, np.uint8, block.nbytes)
    host: Array = flat.view(block.dtype).reshape(block.shape)
    return host
