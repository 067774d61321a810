"""Collectives on tensors over a dimension of a mesh, differentiable by autograd.

There are two families, because a loss that is computed on every rank can mean two things.

* `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `broadcast` are linear maps from the
  tensors of all ranks to the tensors of all ranks. Their gradient is that of the *sum of the losses
  of all ranks*.
* `copy_to`, `reduce_from`, `gather_from`, `scatter_to`, in
  :mod:`distarray.torch.collectives.borders`, are the borders of tensor parallelism. On one side the
  tensor is *replicated*, equal on all ranks, and so is every result computed from it. The loss that
  all ranks compute is the same loss, and the gradient is that of this one loss.

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

All of them are collective over the ranks along the mesh dimension, and so are their gradients: if
the loss of one rank depends on a result, the losses of the other ranks must depend on it, too. All
can be differentiated twice.
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


#: Folds that have a gradient but are not linear.
_CURVED = (Fold.MIN, Fold.MAX, Fold.PROD)


# -- linear maps: gradients of the sum of all ranks' losses -----------------------------------


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
        Its ranks take part.
    mesh_dim : int, str or tuple of them, optional
        Take the ranks along this mesh dimension, or along several; by default all of the mesh.
    fold : Fold or str
        "sum", "avg", "product", "min", "max", "any", "all", "band", "bor", "bxor".

    Returns
    -------
    torch.Tensor
        A new tensor, with the shape, dtype and device of `tensor`; bool for "any" and "all".

    Cost
    ----
    One allreduce of the tensor, plus one copy each from and to a device unless NCCL folds it. The
    gradient of a sum or mean is one allreduce; of "min" and "max" one of twice the size; of
    "product" also an allgather.

    Notes
    -----
    bfloat16, float16 and float8 are folded in float32 and rounded once. float64 and integers are
    folded in their own dtype. The gradient of "min" and "max" is divided evenly among the ranks
    that hold the extreme value.

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
        This rank's part; the ranks' shapes are equal except along `dim`.
    mesh, mesh_dim
        See `all_reduce`.
    dim : int
        The dimension along which the parts are concatenated, in rank order.
    sizes : int or sequence of int, optional
        The extent of the whole tensor along `dim`, cut as ``Shard`` (``torch.chunk``) cuts it, or
        the extents of all parts. By default the ranks exchange their extents.

    Returns
    -------
    torch.Tensor
        The whole tensor, on every rank.

    Cost
    ----
    One allgather, and another of one integer without `sizes`. The gradient is a reduce_scatter.

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
        See `all_reduce`.
    dim : int
        The dimension to cut.
    sizes : int or sequence of int, optional
        Extents of the parts along `dim`; by default those that ``Shard`` gives.
    fold : Fold or str
        See `all_reduce`.

    Returns
    -------
    torch.Tensor
        This rank's part of the fold.

    Cost
    ----
    One reduce_scatter, which sends every part of the tensor but this rank's own. The gradient of a
    sum or mean is an allgather. If a gradient is wanted, "min", "max" and "product" cost as much as
    in `all_reduce`.

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
    if gradients.records(tensor) and fold in _CURVED:  # the gradient needs the whole fold
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
    """Send part i of the tensor to rank i, concatenate the received parts; the gradient goes back.

    With two different dimensions this moves a shard: a tensor cut along `concat_dim` becomes a
    tensor cut along `split_dim`.

    Parameters
    ----------
    tensor : torch.Tensor
        The ranks' shapes are equal except along `split_dim` and `concat_dim`.
    mesh, mesh_dim
        See `all_reduce`.
    split_dim, concat_dim : int
        The dimension that this rank cuts, and the dimension along which it joins received parts.
    split_sizes : int or sequence of int, optional
        Extents of the parts to send; by default those that ``Shard`` gives.
    concat_sizes : int or sequence of int, optional
        Extents along `concat_dim` of the parts to receive, or their sum. By default the ranks
        exchange their extents.

    Returns
    -------
    torch.Tensor
        The received parts, in rank order.

    Cost
    ----
    One exchange, in which each element is sent at most once; without `concat_sizes` also one small
    allgather. The gradient is one exchange.

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
    """Copy the tensor of one rank to all; the gradient is summed on root, and zero elsewhere.

    Parameters
    ----------
    tensor : torch.Tensor
        Of equal shape and dtype on every rank; only root's values are used.
    mesh, mesh_dim
        See `all_reduce`.
    root : int
        Coordinate along the mesh dimension of the rank whose tensor is copied.

    Returns
    -------
    torch.Tensor
        A new tensor, on every rank.

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
    """Fold the tensors of the ranks in place, without autograd; meant for folding gradients.

    Parameters
    ----------
    tensor : torch.Tensor
        Of equal shape and dtype on every rank; overwritten. It must be neither a leaf that requires
        grad nor part of a graph, unless gradients are disabled.
    mesh, mesh_dim, fold
        See `all_reduce`; "any" and "all" accept only bool tensors.
    async_op : bool
        Return at once: the tensor must not be used until ``wait()``. All ranks must begin their
        collective calls in the same order.

    Returns
    -------
    Work
        ``wait()`` returns the tensor when it holds the result. ``poke()`` lets MPI progress without
        waiting. Without `async_op` the fold is already complete.

    Cost
    ----
    One allreduce. Contiguous tensors on the CPU whose dtype NumPy has are folded in their own
    memory, others in a copy.

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
