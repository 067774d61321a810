"""Distribution of a global tensor from one rank over a mesh."""

from typing import Any

import torch
from torch import Tensor

from distarray.array import distribute
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.agree import agreed
from distarray.torch.bridge.sharing import block_of, to_torch
from distarray.torch.collectives.passes import uncompiled
from distarray.torch.tensor.dist_tensor import DistTensor, of_part
from distarray.typing import Placements

__all__ = ["distribute_tensor"]


@uncompiled
def distribute_tensor(
    t: Tensor | None,
    mesh: DeviceMesh | None = None,
    placements: "Placements | None" = None,
    src: int | None = 0,
    *,
    device_mesh: DeviceMesh | None = None,
    src_data_rank: int | None = 0,
) -> DistTensor:
    """Distribute a global tensor over a mesh; collective.

    Parameters
    ----------
    t : Tensor
        The global tensor. With `src=r` only rank r's is read, and other ranks may pass None. If it
        requires a gradient the result does, too: the result is a new leaf, as for DTensor.
    mesh, placements, src
        As for :func:`distarray.distribute`.
    device_mesh, src_data_rank
        `mesh` and `src` by DTensor's names.

    Returns
    -------
    DistTensor
        A tensor on the device of `t`, with memory of its own.

    Raises
    ------
    TypeError, ValueError
        As :func:`from_torch` does, on all ranks.

    Cost
    ----
    One copy from the device if `t` is on one, and the cost of :func:`distarray.distribute`; one
    small broadcast unless `src` is None.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> x = dt.distribute_tensor(torch.arange(6.0), placements=[distarray.Shard(0)])
    >>> float(x.sum())
    15.0
    """
    mesh = mesh or device_mesh or default_mesh()
    return _spread(t, mesh, placements, src_data_rank if src == 0 else src)


def _spread(
    t: Tensor | None, mesh: DeviceMesh, placements: "Placements | None", src: int | None
) -> DistTensor:
    # Ranks outside of the mesh take shape and dtype from their own tensor.
    brings = src is None or mesh.rank == src or (mesh.coords is None and t is not None)
    whole: Any = agreed(mesh.group, lambda: _block(t, mesh) if brings else None)
    told = ("cpu", False) if t is None or not brings else (t.device.type, t.requires_grad)
    if src is not None and mesh.coords is not None:
        told = mesh.group.broadcast_object(told, src, "distribute_tensor: device")
    array = distribute(whole, mesh, placements, src)
    part = to_torch(array, device=None if told[0] == "cpu" else told[0])
    # C order, as in the spec of `of_part`; a part of a channels_last tensor may have another order.
    part = part.clone(memory_format=torch.contiguous_format) if src is None else part.contiguous()
    result = of_part(part, mesh, array.layout)
    return result.requires_grad_() if told[1] else result


def _block(t: Tensor, mesh: DeviceMesh) -> Any:
    """Return a tensor as an array; raises for a non-leaf, on all ranks through `agreed`."""
    if isinstance(t, torch.Tensor) and t.requires_grad:
        if not t.is_leaf:
            raise ValueError(
                "distribute_tensor: the tensor was computed with gradients, which a new leaf would "
                "not get: t.detach() gives none; "
                "DistTensor.from_local(t, mesh, [Replicate()]).redistribute(placements) passes them"
            )
        t = t.detach()
    return block_of(t, mesh, call="distribute_tensor")
