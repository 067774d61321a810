"""Sharded data parallel: each rank keeps a part of every parameter, gradient and optimizer state.

The parameters that :func:`~distarray.torch.data_parallel` replicates are divided here (ZeRO-3,
FSDP): each rank along the mesh dimension stores some rows of each parameter, and its optimizer
works on these rows. The parameters of a unit are gathered for its forward, freed, and gathered
again for its backward. Their gradients are sent to the ranks that own the rows.
"""

import torch
from torch import Tensor
from torch.nn import Module

from distarray.comm.mesh import DeviceMesh
from distarray.errors import LayoutError, MeshError
from distarray.layout import Cut, Layout, Replicate
from distarray.torch.collectives.conversations import chunk_sizes
from distarray.torch.parameters.alike import agree_alike, line_of, take_over
from distarray.torch.parameters.buffers import Buffers
from distarray.torch.parameters.checks import check_apart, check_parameters, check_replicas
from distarray.torch.parameters.distribute import place_rest, surround
from distarray.torch.parameters.placed import Placed, placed_of
from distarray.torch.sharded.entries import ENTRY, Entry
from distarray.torch.sharded.units import Unit

__all__ = ["fully_shard"]


#: The attribute of a module with its unit.
_UNIT = "_distarray_unit"


def fully_shard(
    module: Module,
    mesh: DeviceMesh | None = None,
    mesh_dim: int | str | None = None,
    *,
    fold: str = "avg",
    reshard_after_forward: bool | None = None,
    src_data_rank: int | None = 0,
    ahead: bool = True,
) -> Module:
    """Divide a module's parameters over a dimension of a mesh; gather them when they are needed.

    Call it first on the submodules of a model (its blocks), then on the model: each call makes a
    unit of the parameters that are in no unit yet. One unit is in use at a time, while the next is
    being gathered.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place: its parameters are replaced by this rank's rows. It may be
        tensor-parallel already, along another dimension of the mesh.
    mesh : DeviceMesh, optional
        By default all ranks. For a tensor-parallel module, the mesh that has both dimensions.
    mesh_dim : int or str, optional
        The dimension along which the ranks have different parts of the batch. It may be omitted if
        the mesh has one dimension.
    fold : {"avg", "sum"}
        The mean of the ranks' gradients, or their sum; see :func:`data_parallel`.
    reshard_after_forward : bool, optional
        True: free the gathered parameters between forward and backward. By default all units do
        so, except the outermost, whose backward follows at once.
    src_data_rank : int or None
        Coordinate along `mesh_dim` whose values the other ranks copy; None: they are equal.
    ahead : bool
        True: while a unit computes, gather the next one, in the order of the previous pass, and
        send gradients during the backward pass. False: wait for each transfer, which saves the
        memory of one unit.

    Returns
    -------
    torch.nn.Module
        `module`.

    Raises
    ------
    ValueError
        If the module is sharded already, shares parameters with another unit, is averaged by
        `data_parallel` over the same ranks, or changes its parameters in forward in a way that
        would be lost; on every rank.

    Cost
    ----
    An allgather of the parameters in forward and another in backward, and a reduce-scatter of the
    gradients: 1.5 times an allreduce of the gradients. A rank stores 1/n of parameters, gradients
    and optimizer state, plus the parameters of one unit, or of two with `ahead`.

    Notes
    -----
    Running statistics of norms, and buffers that a forward in training has written to, are
    broadcast from coordinate 0 at the end of the unit's backward pass, one broadcast each.

    Make the optimizer afterwards, from ``module.parameters()``. Elementwise optimizers (SGD, Adam,
    AdamW, RMSprop, Adagrad, ...) take the same steps as in one process. Optimizers that need norms
    or factors of whole parameters are refused. ``module_state`` returns the parameters as
    distributed arrays.

    Outside of the unit's forward a parameter is a `DistTensor` over the memory of this rank's part:
    torch's functions compute with the whole, and gradients flow back. ``p.full_tensor()`` is the
    whole tensor, ``p.to_local()`` the part.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    >>> first = dt.fully_shard(model[0])
    >>> model = dt.fully_shard(model)
    >>> optimizer = torch.optim.Adam(model.parameters())
    >>> model(torch.ones(3, 4)).sum().backward()  # this rank's part of the batch
    >>> optimizer.step()
    >>> dt.module_state(model)["0.weight"].shape
    (8, 4)
    """
    mesh, dim, line = line_of("fully_shard", mesh, mesh_dim)
    if mesh.coords is None:
        return module
    group, entries, error = line.group, [], None
    try:
        _check(module, fold)
        check_apart(module, "fully_shard", set(group.world_ranks), False)
        entries = _entries(module, mesh, dim)
    except (LayoutError, MeshError, TypeError, ValueError) as caught:
        error = caught
    parameters = [entry.parameter for entry in entries]
    agree_alike(
        "fully_shard",
        group,
        error,
        parameters,
        (fold, reshard_after_forward, src_data_rank, ahead),
    )
    if src_data_rank is not None:
        take_over([*parameters, *module.buffers()], group, src_data_rank)
    for entry in entries:
        entry.divide(group.rank, _around(entry, mesh, dim))
    place_rest(module, mesh, None)
    surround(module, mesh)
    keep = None if reshard_after_forward is None else not reshard_after_forward
    unit = Unit(entries, group, type(module).__name__, fold == "avg", keep, ahead)
    unit.buffers = Buffers(module, group, every=False)
    for entry in entries:
        setattr(entry.parameter, ENTRY, entry)
    module.__dict__[_UNIT] = unit
    module.register_forward_pre_hook(unit.before_forward, prepend=True)
    module.register_forward_hook(unit.after_forward, always_call=True)
    return module


def _check(module: Module, fold: str) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"fully_shard takes a torch.nn.Module, not {type(module).__name__}")
    if fold not in ("avg", "sum"):
        raise ValueError(f"fully_shard: fold is 'avg' or 'sum', not {fold!r}")
    if _UNIT in vars(module):
        raise ValueError(f"fully_shard: {type(module).__name__} is sharded already")
    check_parameters(module, "fully_shard")
    check_replicas(module, "fully_shard")
    for name, part in module.named_modules():
        if isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
            if part.max_norm is not None:
                raise ValueError(
                    f"fully_shard: {name or 'the module'} has max_norm, and changes its weight in "
                    "forward; what is gathered is given up afterwards, and the change with it"
                )
            if part.sparse:
                raise ValueError(
                    f"fully_shard: {name or 'the module'} makes sparse gradients; make it with "
                    "sparse=False"
                )


def _entries(module: Module, mesh: DeviceMesh, dim: int) -> list[Entry]:
    """Return an entry for each parameter that is in no unit yet, with all its owners."""
    places: dict[int, tuple[list[tuple[Module, str]], Tensor]] = {}
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if parameter is None:
                continue
            known: Entry | None = getattr(parameter, ENTRY, None)
            if known is None:
                places.setdefault(id(parameter), ([], parameter))[0].append((part, name))
            elif (part, name) not in known.owners:
                raise ValueError(
                    f"fully_shard: {path}.{name} is shared with a module that is sharded by "
                    "itself; parameters that modules share must be in one unit: shard the module "
                    "that has them all"
                )
    size = mesh.shape[dim]
    return [
        Entry(owners, parameter, size, _within(*owners[0], mesh, dim))
        for owners, parameter in places.values()
    ]


def _within(module: Module, name: str, mesh: DeviceMesh, dim: int) -> Placed | None:
    """Return a parameter's layout over the other dimensions of the mesh; None if it has none."""
    placed = placed_of(module).get(name)
    if placed is None:
        return None
    for own, number in enumerate(placed.dims_in(mesh)):
        if number == dim and placed.layout.placements[own] != Replicate():
            raise LayoutError(
                f"fully_shard: {type(module).__name__}.{name} is distributed along mesh dimension "
                f"{dim} already, as {placed.layout}"
            )
    return placed


def _around(entry: Entry, mesh: DeviceMesh, dim: int) -> Placed:
    """Return the layout of a parameter's rows over the mesh: cut by `dim` after the others."""
    placed = entry.within
    if placed is None:
        layout, viewed = Layout.replicated(entry.shape, mesh.shape), None
    else:
        layout, viewed = placed.lifted(mesh), placed.viewed
    if layout.ndim:
        layout = layout.replace(0, _cut_again(layout.cuts[0], dim, mesh.shape[dim]))
    return Placed(mesh, layout, viewed)


def _cut_again(cut: Cut, dim: int, size: int) -> Cut:
    """Divide each block of a cut into chunks along one more mesh dimension."""
    lengths = [stop - start for start, stop in map(cut.interval, range(cut.parts))]
    counts = [n for length in lengths for n in chunk_sizes(length, size)]
    return Cut.ragged(counts, (*cut.mesh_dims, dim), (*cut.radix, size))
