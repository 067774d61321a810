"""Equal replicas: compare the shapes of their parameters, then copy one rank's values."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from distarray.comm.agree import agree
from distarray.comm.group import Group
from distarray.comm.mesh import DeviceMesh, default_mesh
from distarray.errors import DivergenceError, MeshError
from distarray.torch.bridge.plain import plainly
from distarray.torch.collectives import conversations as talk

__all__ = ["agree_alike", "line_of", "take_over"]


def line_of(
    call: str, mesh: DeviceMesh | None, mesh_dim: int | str | None
) -> tuple[DeviceMesh, int, DeviceMesh]:
    """Return a mesh, one of its dimensions, and the one-dimensional mesh along that dimension.

    Raises
    ------
    MeshError
        If the mesh has several dimensions and `mesh_dim` is None, or they have no names.
    """
    mesh = default_mesh() if mesh is None else mesh
    if type(mesh) is not DeviceMesh:
        raise TypeError(f"{call}: mesh is a distarray.DeviceMesh, not {type(mesh).__name__}")
    if mesh.ndim == 1:
        return mesh, mesh.mesh_dim(0 if mesh_dim is None else mesh_dim), mesh
    if mesh_dim is None or mesh.mesh_dim_names is None:
        raise MeshError(
            f"{call}: {mesh!r} has {mesh.ndim} dimensions; give them names, and say along which "
            f'one the ranks have different data: {call}(module, mesh, "dp")'
        )
    dim = mesh.mesh_dim(mesh_dim)
    return mesh, dim, mesh[mesh.mesh_dim_names[dim]]


def agree_alike(
    call: str,
    group: Group,
    error: Exception | None,
    tensors: Sequence[Tensor],
    options: Sequence[Any],
) -> None:
    """Raise on all ranks if one rank has an error, or if parameters or options differ."""
    agree(group, error)
    if group.size == 1:
        return
    mine = [(tuple(t.shape), str(t.dtype), t.requires_grad) for t in tensors]
    told = group.allgather_object((mine, options), call)
    for rank, theirs in enumerate(told):
        if theirs != told[0]:
            pairs = [(a, b) for a, b in zip(told[0][0], theirs[0]) if a != b]
            texts = [", ".join(map(str, pair)) for pair in zip(*pairs[:1])] or [
                f"{len(parameters)} parameters, {chosen}"
                for parameters, chosen in (told[0], theirs)
            ]
            raise DivergenceError(
                f"{call}: the ranks bring different modules or options:\n"
                f"    rank 0  {texts[0]}\n    rank {rank}  {texts[1]}"
            )


def take_over(tensors: Sequence[Tensor], group: Group, root: int) -> None:
    """Copy the values of rank `root` to all ranks.

    Cost
    ----
    One broadcast for each tensor.
    """
    if group.size > 1:
        with torch.no_grad(), plainly():
            for tensor in tensors:
                if tensor.numel():
                    tensor.copy_(talk.sent(tensor, group, root))
