"""Conversion of blocks to tensors and of tensors to blocks, sharing memory where possible."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distarray.array import DistArray, distribute
from distarray.array.from_blocks import from_ranks, vouched
from distarray.array.lending import lend, lent_in
from distarray.comm import DeviceMesh, default_mesh, devices
from distarray.comm.agree import agreed
from distarray.errors import CopyRequiredError
from distarray.torch.bridge import counting
from distarray.torch.bridge.dtypes import as_torch_dtype, numpy_view, tensor_view, torch_dtype
from distarray.torch.bridge.refusals import (
    check_device_dtype,
    checked_tensor,
    refuse_bits,
    refuse_block,
    refuse_gradient,
)
from distarray.typing import Array, DTypeLike, Placements

__all__ = ["block_of", "distribute_tensor", "from_torch", "is_block", "to_torch"]


_ndarray = np.ndarray
_Tensor = torch.Tensor
_CPU = torch.device("cpu")


def to_torch(
    x: DistArray | Array,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | DTypeLike = None,
    copy: bool | None = None,
) -> Tensor:
    """Return this rank's block as a tensor.

    On the block's own device the tensor shares the block's memory: a write to either is visible in
    the other. To another device the block is copied, by one blocking copy.

    Parameters
    ----------
    x : DistArray or array
        Of a distributed array, its block on this rank is used: the whole array if it is
        replicated, this rank's contribution if a fold is pending. A NumPy or CuPy array is
        converted itself: ``to_torch(x.full())`` is the whole array.
    device : torch.device or str, optional
        The block's own by default; "hpu" for an Intel Gaudi.
    dtype : torch.dtype or NumPy dtype, optional
        The block's own by default; the block is converted to any other, on the block's device.
    copy : bool, optional
        True: always copy, so that the tensor has memory of its own. False: never copy. By default
        copy only where `device` or `dtype` requires it.

    Returns
    -------
    Tensor
        Without grad.

    Raises
    ------
    CopyRequiredError
        If the block cannot be shared (it is read-only, has negative strides or foreign byte
        order) and ``copy=True`` is not given; or if a copy is needed and ``copy=False`` is given.
    TypeError
        If torch has no such data type; or for float64 or complex numbers on an HPU, which supports
        neither.

    Cost
    ----
    Nothing is sent.

    Notes
    -----
    This is a local call: each rank decides for itself. For a distributed array all ranks decide
    alike, because its data type, the direction of its strides and its writability are equal on
    all ranks, also on ranks with empty blocks.

    Examples
    --------
    >>> import numpy, distarray, distarray.torch as dt
    >>> x = distarray.distribute(numpy.zeros(12), placements=[distarray.Shard(0)])
    >>> t = dt.to_torch(x)
    >>> t += 1  # in the array's memory
    >>> float(x.sum())
    12.0
    """
    block: Any = x
    if type(x) is DistArray:
        block = x.block if x.layout.is_whole else lend(x)
    plain = type(block) is _ndarray and block.flags.writeable
    if plain and device is None and dtype is None and copy is None:
        try:
            t = torch.from_numpy(block)
        except (TypeError, ValueError):
            pass  # refused below, or converted another way
        else:
            # torch accepts an empty block with any strides; ranks with non-empty blocks raise.
            if block.size or _shareable(block):
                if counting.watching:
                    counting.record("shared", block.nbytes)
                return t
    return _tensor_of(block, device, dtype, copy)


def _tensor_of(
    block: Array | np.generic,
    device: torch.device | str | None,
    dtype: torch.dtype | DTypeLike,
    copy: bool | None,
) -> Tensor:
    """Implement `to_torch` for a block that torch does not accept unchanged."""
    if isinstance(block, np.generic):
        if copy is False:
            raise CopyRequiredError("to_torch: a 0-d result is a value, with no memory to share")
        block, copy = np.asarray(block), True
    if not is_block(block):
        raise TypeError(f"to_torch: a DistArray or array is wanted, not {type(block).__name__}")
    native = torch_dtype(block.dtype)
    if native is None:
        refuse_block(block, "to_torch")
    wanted = native if dtype is None else as_torch_dtype(dtype)
    here = _device_of(block)
    target = here if device is None else torch.device(device)
    check_device_dtype(wanted, target, "to_torch")
    if wanted == native and _same(here, target):
        return _on_own_device(block, copy)
    if copy is False:
        raise CopyRequiredError(
            f"to_torch: {block.dtype} on {here} becomes {wanted} on {target} by a copy only; leave "
            "copy=False out"
        )
    return _converted(block, wanted, target)


def is_block(x: Any) -> bool:
    """Return True for a NumPy or CuPy array without a mask."""
    if isinstance(x, _ndarray):
        return not isinstance(x, np.ma.MaskedArray)
    return devices.on_device(x)


def _on_own_device(block: Array, copy: bool | None) -> Tensor:
    """Return a tensor over the block's memory, or over a copy if the caller asks for one."""
    shareable = _shareable(block)
    if not shareable and not copy:
        refuse_block(block, "to_torch")
    t = _view(block) if shareable else tensor_view(_native(block))
    counting.count("copied" if copy else "shared", block.nbytes)
    return t.clone() if copy and shareable else t


def _converted(block: Array, dtype: torch.dtype, target: torch.device) -> Tensor:
    """Return a tensor on another device or of another dtype: convert first, then move."""
    if devices.on_device(block) and target.type == "cpu":
        counting.count("d2h", block.nbytes)
        return tensor_view(devices.to_host(block)).to(dtype)
    t = _view(block) if _shareable(block) else tensor_view(_native(block))
    if t.dtype != dtype:
        t = t.to(dtype)
        counting.count("copied", t.nbytes)
    if not _same(t.device, target):
        counting.count("h2d", t.nbytes)
        t = t.to(target)  # blocking: the caller may change the block after this call
    return t


def _shareable(block: Array) -> bool:
    """Return True if torch can use the block's memory directly."""
    return devices.on_device(block) or (
        block.dtype.isnative
        and block.flags.writeable
        and all(stride >= 0 and not stride % block.itemsize for stride in block.strides)
    )


def _view(block: Array) -> Tensor:
    return torch.from_dlpack(block) if devices.on_device(block) else tensor_view(block)


def _native(block: Array) -> Array:
    """Return a new C-contiguous copy in this machine's byte order."""
    return np.array(block, block.dtype.newbyteorder("="), order="C", copy=True)


def _device_of(block: Array) -> torch.device:
    if not devices.on_device(block):
        return _CPU
    device: Any = block.device  # CuPy's device object, with a number
    return torch.device("cuda", device.id)


def _same(here: torch.device, target: torch.device) -> bool:
    """Return True if the devices are equal; a target without a number matches any of its type."""
    return here.type == target.type and target.index in (None, here.index)


def from_torch(
    t: Tensor,
    *,
    mesh: DeviceMesh | None = None,
    placements: "Placements | None" = None,
    shape: Sequence[int] | None = None,
    copy: bool | None = None,
    check: bool = True,
) -> DistArray:
    """Make a distributed array of the tensors on the ranks; collective.

    On the mesh's own kind of device the array shares the tensors' memory. From another device the
    tensor is copied, by one blocking copy.

    Parameters
    ----------
    t : Tensor
        This rank's block, or its contribution where the placement is Partial. With
        ``placements=[Replicate()]`` the whole array, which must be equal on every rank.
    mesh : DeviceMesh, optional
        The default mesh if not given. For HPU tensors the blocks of the array are in host memory,
        on a "cpu" mesh.
    placements : sequence of Placement, optional
        One per mesh dimension; by default Shard(0) along the first and Replicate along the others.
    shape : tuple of int, optional
        The global shape. By default it follows from the blocks, which may be of any length.
    copy : bool, optional
        True: always copy, so that the array has memory of its own. False: never copy. By default
        copy only where the device requires it.
    check : bool
        False: nothing is sent, `shape` is required, and the caller guarantees that the blocks of
        all ranks fit. A block that does not fit is then an error on its own rank alone.

    Returns
    -------
    DistArray
        It keeps the tensor's memory alive.

    Raises
    ------
    TypeError
        For a DTensor (see :func:`from_dtensor`) or any other tensor without strided memory, and
        for a data type that NumPy does not have.
    ValueError
        If the tensor requires grad.
    CopyRequiredError
        If the tensor cannot be shared and ``copy=True`` is not given: a lazy conjugate or
        negative; with ``copy=False`` also a tensor on another device.
    LayoutError
        If the blocks do not fit together.

    Each of them is raised on every rank, whichever rank's tensor causes it.

    Cost
    ----
    One small allreduce, and one small allgather of the lengths if `shape` is not given. Nothing is
    sent with ``check=False`` or on a mesh of one rank.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> mine = torch.ones(3)  # read or computed by this rank
    >>> x = dt.from_torch(mine, placements=[distarray.Shard(0)])
    >>> x.shape == (3 * mesh.size(),)
    True
    """
    mesh = default_mesh() if mesh is None else mesh
    if not check:
        found = vouched(block_of(t, mesh, copy), mesh, placements, shape)
        lent_in(found)
        return found
    block: Any = None
    problem = None
    try:
        block = block_of(t, mesh, copy)
    except Exception as error:
        problem = error
    found = from_ranks(block, problem, mesh, placements, shape)
    lent_in(found)
    return found


def block_of(
    t: Tensor, mesh: DeviceMesh, copy: bool | None = None, call: str = "from_torch"
) -> Array:
    """Return the tensor as a block on the mesh's kind of device; does not communicate."""
    if copy is None and mesh.device_type == "cpu" and type(t) is _Tensor:
        try:
            block = t.numpy()
        except (TypeError, ValueError, RuntimeError):
            pass  # refused below, or converted another way
        else:
            if counting.watching:
                counting.record("shared", block.nbytes)
            return block if 0 not in block.strides else _unwritable(block)
    t = checked_tensor(t, call)
    refuse_gradient(t, call)
    if copy:
        t = t.resolve_conj().resolve_neg()
    refuse_bits(t, call)
    if str(t.device) == mesh.device:
        counting.count("copied" if copy else "shared", t.nbytes)
        return array_view(t.clone() if copy else t, mesh, call)
    if copy is False:
        raise CopyRequiredError(
            f"{call}: a tensor on {t.device} becomes a block on {mesh.device} by a copy only; "
            "leave copy=False out"
        )
    return _fetched(t, mesh, call)


def _unwritable(block: Array) -> Array:
    """Make the block of an expanded tensor read-only: several elements share one address."""
    if block.size and any(
        n > 1 and not stride for n, stride in zip(block.shape, block.strides, strict=True)
    ):
        block.flags.writeable = False
    return block


def _fetched(t: Tensor, mesh: DeviceMesh, call: str) -> Array:
    """Return the block of a tensor that is on another device."""
    if t.device.type != "cpu":
        counting.count("d2h", t.nbytes)
        t = t.cpu()  # blocking: the values are complete after this call
    if mesh.device_type != "cpu":
        counting.count("h2d", t.nbytes)
    block: Array = mesh.asarray(numpy_view(t, call))
    return block


def array_view(t: Tensor, mesh: DeviceMesh, call: str) -> Array:
    """Return the block over a tensor that is on this rank's device."""
    if mesh.device_type == "cpu":
        return _unwritable(numpy_view(t, call))
    block: Array = mesh.xp.from_dlpack(t)
    return block


def distribute_tensor(
    t: Tensor,
    mesh: DeviceMesh | None = None,
    placements: "Placements | None" = None,
    src: int | None = 0,
    *,
    device_mesh: DeviceMesh | None = None,
    src_data_rank: int | None = 0,
) -> DistArray:
    """Split a whole tensor over a mesh; collective.

    Parameters
    ----------
    t : Tensor
        The global array. With `src=r` only rank r's tensor is read; other ranks may pass None.
    mesh, placements, src
        See :func:`distarray.distribute`.
    device_mesh, src_data_rank
        DTensor's names for `mesh` and `src`.

    Returns
    -------
    DistArray
        It shares no memory with `t`.

    Raises
    ------
    TypeError, ValueError
        For the reasons listed under :func:`from_torch`, on all ranks.

    Cost
    ----
    One copy from the device if `t` is on one, and the cost of :func:`distarray.distribute`.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> x = dt.distribute_tensor(torch.arange(6.0), placements=[distarray.Shard(0)])
    >>> float(x.sum())
    15.0
    """
    mesh = device_mesh if mesh is None else mesh
    mesh = default_mesh() if mesh is None else mesh
    src = src_data_rank if src == 0 else src
    # Ranks outside of the mesh take shape and dtype from the tensor that they pass themselves.
    read = src is None or mesh.rank == src or (mesh.coords is None and t is not None)
    block: Any = agreed(
        mesh.group, lambda: block_of(t, mesh, call="distribute_tensor") if read else None
    )
    return distribute(block, mesh, placements, src)
