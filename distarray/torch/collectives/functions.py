"""Collectives on tensors over a dimension of a mesh, which gradients flow through.

There are two families, because there are two meanings of a loss that is made on every rank.

* `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast` are what they are: linear
  maps from the tensors of all ranks to the tensors of all ranks. Their gradient is that of the
  *sum of the losses of all ranks*.
* `copy_to`, `reduce_from`, `gather_from`, `scatter_to`, in
  :mod:`distarray.torch.collectives.borders`, are the borders of tensor parallelism: one side is
  *replicated*, the same on all ranks, and so is what follows from it. The loss that all ranks
  compute is one loss, and the gradient is that of one.

=================  ==================  ====================
function           forward             backward
=================  ==================  ====================
`all_reduce`       sum                 sum
`all_gather`       concatenate         sum and cut
`reduce_scatter`   sum and cut         concatenate
`all_to_all`       exchange            exchange back
`broadcast`        copy of root's      sum, on root
`copy_to`          itself              sum
`reduce_from`      sum                 itself
`gather_from`      concatenate         own part
`scatter_to`       own part            concatenate
=================  ==================  ====================

All of them are collective over the ranks along the mesh dimension, and so are their gradients:
where one rank's loss depends on a result, that of the other ranks has to, too. They can be
differentiated twice.
"""

import torch
from torch import Tensor

from distarray.comm.mesh import DeviceMesh
from distarray.layout.placement import Fold
from distarray.torch.collectives import conversations as talk
from distarray.torch.collectives import gradients
from distarray.torch.collectives.conversations import MeshDim, Sizes, Work
from distarray.torch.collectives.passes import graphed, uncompiled

__all__ = [
    "Work",
    "all_gather",
    "all_reduce",
    "all_reduce_",
    "all_to_all",
    "broadcast",
    "reduce_scatter",
]


#: Folds of which there is a gradient, but not that of a linear map.
_CURVED = (Fold.MIN, Fold.MAX, Fold.PROD)


# -- linear maps: the gradient is that of the sum of all ranks' losses ------------------------


@graphed
def all_reduce(
    tensor: Tensor, mesh: DeviceMesh, mesh_dim: MeshDim = None, fold: Fold | str = "sum"
) -> Tensor:
    """Fold the tensors of the ranks; every rank gets the same bits.

    Parameters
    ----------
    tensor : torch.Tensor
        Of equal shape and dtype on every rank; on any device.
    mesh : DeviceMesh
        Whose ranks.
    mesh_dim : int, str or tuple of them, optional
        The ranks along this mesh dimension, or along several; all of the mesh by default.
    fold : Fold or str
        "sum", "avg", "product", "min", "max", "any", "all", "band", "bor", "bxor".

    Returns
    -------
    torch.Tensor
        New, with the shape, dtype and device of `tensor`; bool for "any" and "all".

    Cost
    ----
    One allreduce of the tensor; from and to a device one copy each. The gradient of a sum or mean
    is one allreduce; of "min" and "max" one of twice the size; of "product" an allgather more.

    Notes
    -----
    bfloat16, float16 and float8 are folded in float32 and rounded once. float64 and integers are
    folded as they are, on the host, on whatever device the tensor is. The gradient of "min" and
    "max" is divided evenly among the ranks that hold the value.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> total = dt.all_reduce(torch.ones(2), mesh)
    >>> bool((total == mesh.size()).all())
    True
    """
    tensor, group = talk.along("all_reduce", tensor, mesh, mesh_dim)
    fold = Fold(fold)
    if not gradients.records(tensor):
        return talk.folded(tensor, group, fold)
    if fold in gradients.LINEAR:
        return gradients.all_reduce(tensor, group, fold)
    if fold in _CURVED:
        return gradients.extreme(tensor, group, fold)
    return talk.folded(tensor, group, fold)


@graphed
def all_gather(
    tensor: Tensor,
    mesh: DeviceMesh,
    mesh_dim: MeshDim = None,
    *,
    dim: int = 0,
    sizes: Sizes = None,
) -> Tensor:
    """Concatenate the tensors of the ranks; the gradient is summed over the ranks and cut.

    Parameters
    ----------
    tensor : torch.Tensor
        This rank's part; shapes are equal but for `dim`.
    mesh, mesh_dim
        As for `all_reduce`.
    dim : int
        The dimension along which the parts follow one another, in rank order.
    sizes : int or sequence of int, optional
        The extent of the whole along `dim`, cut as ``Shard`` (``torch.chunk``) cuts it, or that of
        every part. By default the ranks tell one another.

    Returns
    -------
    torch.Tensor
        The whole, on every rank.

    Cost
    ----
    One allgather; one of an integer more without `sizes`. The gradient is a reduce_scatter.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> dt.all_gather(torch.tensor([mesh.rank]), mesh).tolist() == list(range(mesh.size()))
    True
    """
    tensor, group = talk.along("all_gather", tensor, mesh, mesh_dim)
    dim, parts = talk.part_sizes("all_gather", tensor, group, dim, sizes)
    if not gradients.records(tensor):
        return talk.gathered(tensor, group, dim, parts)
    return gradients.all_gather(tensor, group, dim, parts)


@graphed
def reduce_scatter(
    tensor: Tensor,
    mesh: DeviceMesh,
    mesh_dim: MeshDim = None,
    *,
    dim: int = 0,
    sizes: Sizes = None,
    fold: Fold | str = "sum",
) -> Tensor:
    """Fold the tensors of the ranks and cut the result; the gradient of a sum is concatenated.

    Parameters
    ----------
    tensor : torch.Tensor
        Of equal shape and dtype on every rank.
    mesh, mesh_dim
        As for `all_reduce`.
    dim : int
        The dimension that is cut.
    sizes : int or sequence of int, optional
        Extents of the parts along `dim`; by default those that ``Shard`` gives.
    fold : Fold or str
        As for `all_reduce`.

    Returns
    -------
    torch.Tensor
        This rank's part of the fold.

    Cost
    ----
    One reduce_scatter: of the tensor, what does not stay here is sent. The gradient of a sum or
    mean is an allgather; "min", "max" and "product" cost what `all_reduce` does where a gradient
    is wanted.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> part = dt.reduce_scatter(torch.ones(2 * mesh.size()), mesh)
    >>> part.tolist() == 2 * [mesh.size()]
    True
    """
    tensor, group = talk.along("reduce_scatter", tensor, mesh, mesh_dim)
    fold = Fold(fold)
    dim, parts = talk.cut_sizes("reduce_scatter", tensor, group, dim, sizes)
    if gradients.records(tensor) and fold in gradients.LINEAR:
        return gradients.reduce_scatter(tensor, group, dim, parts, fold)
    if gradients.records(tensor) and fold in _CURVED:  # its gradient wants the whole fold
        return gradients.extreme(tensor, group, fold).split(parts, dim)[group.rank].clone()
    return talk.scattered(tensor, group, dim, parts, fold)


@graphed
def all_to_all(
    tensor: Tensor,
    mesh: DeviceMesh,
    mesh_dim: MeshDim = None,
    *,
    split_dim: int = 0,
    concat_dim: int = 0,
    split_sizes: Sizes = None,
    concat_sizes: Sizes = None,
) -> Tensor:
    """Send part i of the tensor to rank i and concatenate what comes; the gradient goes back.

    With two dimensions it moves a shard: a tensor cut along `concat_dim` becomes one cut along
    `split_dim`.

    Parameters
    ----------
    tensor : torch.Tensor
        Shapes are equal but for `split_dim` and `concat_dim`.
    mesh, mesh_dim
        As for `all_reduce`.
    split_dim, concat_dim : int
        The dimension that is cut here, and the one along which the parts are joined.
    split_sizes : int or sequence of int, optional
        Extents of the parts that are sent; by default those that ``Shard`` gives.
    concat_sizes : int or sequence of int, optional
        Extents along `concat_dim` of the parts that come, or of all together. By default the
        ranks tell one another.

    Returns
    -------
    torch.Tensor
        The parts that came, in rank order.

    Cost
    ----
    One exchange, in which each element is sent once at most; one small allgather more without
    `concat_sizes`. The gradient is one exchange.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> dt.all_to_all(torch.arange(mesh.size()), mesh).tolist() == mesh.size() * [mesh.rank]
    True
    """
    tensor, group = talk.along("all_to_all", tensor, mesh, mesh_dim)
    split_dim, gone = talk.cut_sizes("all_to_all", tensor, group, split_dim, split_sizes)
    concat_dim, come = talk.coming_sizes(tensor, group, split_dim, gone, concat_dim, concat_sizes)
    if not gradients.records(tensor):
        return talk.swapped(tensor, group, split_dim, gone, concat_dim, come)
    return gradients.all_to_all(tensor, group, split_dim, gone, concat_dim, come)


@graphed
def broadcast(
    tensor: Tensor, mesh: DeviceMesh, mesh_dim: MeshDim = None, *, root: int = 0
) -> Tensor:
    """Copy the tensor of one rank to all; the gradient is summed up there, and zero elsewhere.

    Parameters
    ----------
    tensor : torch.Tensor
        Of equal shape and dtype on every rank; its values count on root alone.
    mesh, mesh_dim
        As for `all_reduce`.
    root : int
        The number along the mesh dimension of the rank whose tensor is taken.

    Returns
    -------
    torch.Tensor
        New, on every rank.

    Cost
    ----
    One broadcast; the gradient is an allreduce.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> dt.broadcast(torch.tensor([1, mesh.rank]), mesh)
    tensor([1, 0])
    """
    tensor, group = talk.along("broadcast", tensor, mesh, mesh_dim)
    if not -group.size <= root < group.size:
        raise ValueError(f"broadcast: root {root} is not one of {group.size} rank(s)")
    root %= group.size
    if not gradients.records(tensor):
        return talk.sent(tensor, group, root)
    return gradients.broadcast(tensor, group, root)


# -- without a gradient -----------------------------------------------------------------------


@uncompiled
def all_reduce_(
    tensor: Tensor,
    mesh: DeviceMesh,
    mesh_dim: MeshDim = None,
    fold: Fold | str = "sum",
    async_op: bool = False,
) -> Work:
    """Fold the tensors of the ranks in place; for gradients, not through them.

    Parameters
    ----------
    tensor : torch.Tensor
        Of equal shape and dtype on every rank; overwritten. Neither a leaf that requires a
        gradient nor part of a graph, unless gradients are switched off.
    mesh, mesh_dim, fold
        As for `all_reduce`; "any" and "all" take bool tensors alone.
    async_op : bool
        Return at once: the tensor belongs to the conversation until ``wait()``. All ranks begin
        their conversations in the same order.

    Returns
    -------
    Work
        ``wait()`` returns the tensor when it holds the result; ``poke()`` lets MPI go on without
        waiting. Without `async_op` it is over already.

    Cost
    ----
    One allreduce. Contiguous float32, float64 and integers on the CPU are folded where they are;
    others in a copy.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> gradient = torch.ones(2)
    >>> work = dt.all_reduce_(gradient, mesh, fold="avg", async_op=True)
    >>> work.wait()  # what does not need it is computed before
    tensor([1., 1.])
    """
    tensor, group = talk.along("all_reduce_", tensor, mesh, mesh_dim)
    fold = Fold(fold)
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            "all_reduce_ overwrites a tensor that requires a gradient: use all_reduce, or "
            "tensor.detach() where no gradient shall flow"
        )
    return talk.begin_fold(tensor, group, fold, async_op)
