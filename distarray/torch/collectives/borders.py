"""Collectives at the borders between replicated and distributed tensors.

On one side of each border the tensor is the same on all ranks, and so is the loss computed from it.
:mod:`distarray.torch.collectives.functions` describes how their gradients differ from those of the
collectives defined there.
"""

from torch import Tensor

from distarray.comm.mesh import DeviceMesh
from distarray.layout.placement import Fold
from distarray.torch.collectives import conversations as talk
from distarray.torch.collectives import gradients
from distarray.torch.collectives.conversations import MeshDim, Sizes
from distarray.torch.collectives.passes import graphed

__all__ = ["copy_to", "gather_from", "reduce_from", "scatter_to"]


@graphed
def copy_to(tensor: Tensor, mesh: DeviceMesh, mesh_dim: MeshDim = None) -> Tensor:
    """Return a replicated tensor for use that differs by rank; the gradient is summed.

    Parameters
    ----------
    tensor : torch.Tensor
        Equal on every rank along the mesh dimension.
    mesh, mesh_dim
        See `all_reduce`.

    Returns
    -------
    torch.Tensor
        A tensor over the same memory.

    Cost
    ----
    None; the gradient is one allreduce.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> x = torch.ones(2, requires_grad=True)
    >>> dt.copy_to(x, mesh).sum().backward()
    >>> bool((x.grad == mesh.size()).all())
    True
    """
    tensor, group = talk.along("copy_to", tensor, mesh, mesh_dim)
    talk.verify_replicas(group, tensor, "copy_to")
    return gradients.copy_to(tensor, group) if gradients.records(tensor) else tensor


@graphed
def reduce_from(
    tensor: Tensor, mesh: DeviceMesh, mesh_dim: MeshDim = None, fold: Fold | str = "sum"
) -> Tensor:
    """Sum (or average) the ranks' tensors to a replicated one; the gradient passes unchanged.

    Parameters
    ----------
    tensor, mesh, mesh_dim
        See `all_reduce`.
    fold : {"sum", "avg"}
        Sum or mean.

    Returns
    -------
    torch.Tensor
        A new tensor, with the same bits on every rank.

    Cost
    ----
    One allreduce; the gradient sends nothing.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> x = torch.ones(2, requires_grad=True)
    >>> loss = dt.reduce_from(x.sum(), mesh)
    >>> loss.backward()
    >>> loss.item() == 2 * mesh.size(), x.grad
    (True, tensor([1., 1.]))
    """
    tensor, group = talk.along("reduce_from", tensor, mesh, mesh_dim)
    fold = Fold(fold)
    if fold not in gradients.LINEAR:
        raise ValueError(f"reduce_from: fold is 'sum' or 'avg', not {fold.value!r}")
    if not gradients.records(tensor):
        return talk.folded(tensor, group, fold)
    return gradients.reduce_from(tensor, group, fold)


@graphed
def gather_from(
    tensor: Tensor,
    mesh: DeviceMesh,
    mesh_dim: MeshDim = None,
    *,
    dim: int = 0,
    sizes: Sizes = None,
) -> Tensor:
    """Concatenate the ranks' parts to a replicated tensor; the gradient is cut to this rank's part.

    Parameters
    ----------
    tensor, mesh, mesh_dim, dim, sizes
        See `all_gather`.

    Returns
    -------
    torch.Tensor
        The whole tensor, on every rank.

    Cost
    ----
    Equal to that of `all_gather`; the gradient sends nothing.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> dt.gather_from(torch.ones(2, 3), mesh, dim=-1).shape == (2, 3 * mesh.size())
    True
    """
    tensor, group = talk.along("gather_from", tensor, mesh, mesh_dim)
    dim, parts = talk.part_sizes("gather_from", tensor, group, dim, sizes)
    if not gradients.records(tensor):
        return talk.gathered(tensor, group, dim, parts)
    return gradients.gather_from(tensor, group, dim, parts)


@graphed
def scatter_to(
    tensor: Tensor,
    mesh: DeviceMesh,
    mesh_dim: MeshDim = None,
    *,
    dim: int = 0,
    sizes: Sizes = None,
) -> Tensor:
    """Copy this rank's part of a replicated tensor; the gradient is concatenated.

    Parameters
    ----------
    tensor : torch.Tensor
        Equal on every rank along the mesh dimension.
    mesh, mesh_dim
        See `all_reduce`.
    dim, sizes
        See `reduce_scatter`.

    Returns
    -------
    torch.Tensor
        A new tensor.

    Cost
    ----
    A copy of the part; the gradient is one allgather.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> part = dt.scatter_to(torch.arange(6.0), mesh)
    >>> dt.gather_from(part, mesh)
    tensor([0., 1., 2., 3., 4., 5.])
    """
    tensor, group = talk.along("scatter_to", tensor, mesh, mesh_dim)
    talk.verify_replicas(group, tensor, "scatter_to")
    dim, parts = talk.cut_sizes("scatter_to", tensor, group, dim, sizes)
    if not gradients.records(tensor):
        return talk.own_part(tensor, group, dim, parts)
    return gradients.scatter_to(tensor, group, dim, parts)
