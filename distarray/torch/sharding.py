"""Sharded data parallel: each rank keeps a part of every parameter, gradient and optimizer state.

What :func:`~distarray.torch.data_parallel` replicates is divided here (ZeRO-3, FSDP): a rank along
the mesh dimension holds some rows of each parameter, and so does its optimizer. The parameters of
a unit are gathered for its forward, given up, gathered again for its backward, and their gradients
go to the ranks that own the rows.
"""

from typing import Any
from weakref import WeakKeyDictionary

import torch

from distarray.comm.mesh import DeviceMesh, default_mesh
from distarray.errors import MeshError
from distarray.torch import conversations as talk
from distarray.torch.units import Entry, Unit

__all__ = ["fully_shard"]

Tensor = Any
Module = Any

#: Attributes of parameters: that it is a part, and of which unit it was one before.
_PART, _WAS = "_distarray_part", "_distarray_unit"

_UNITS: "WeakKeyDictionary[Module, Unit]" = WeakKeyDictionary()


def fully_shard(
    module: Module,
    mesh: DeviceMesh | None = None,
    mesh_dim: int | str | None = None,
    *,
    fold: str = "avg",
    reshard_after_forward: bool | None = None,
    src_data_rank: int | None = 0,
) -> Module:
    """Divide a module's parameters over a dimension of a mesh; gather them when they are needed.

    Call it on the parts of a model first (its blocks), then on the model: each call makes a unit
    of the parameters that are in none yet. One unit is gathered at a time.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place: its parameters are replaced by this rank's rows. It may be
        tensor-parallel already, along another dimension of the mesh.
    mesh : DeviceMesh, optional
        By default all ranks. Of a tensor-parallel module the mesh that has both dimensions.
    mesh_dim : int or str, optional
        The dimension along which the ranks have different parts of the batch; it can be left out
        where the mesh has one dimension.
    fold : {"avg", "sum"}
        The mean of the ranks' gradients, or their sum; see :func:`data_parallel`.
    reshard_after_forward : bool, optional
        Whether the gathered parameters are given up between forward and backward. By default
        they are, save those of the outermost unit, whose backward follows at once.
    src_data_rank : int or None
        Coordinate along `mesh_dim` whose values the others take over; None: they are equal.

    Returns
    -------
    torch.nn.Module
        `module`.

    Raises
    ------
    ValueError
        If the module is sharded already, has parameters in common with another unit, or does
        something to its parameters in forward that would be lost; on every rank.

    Cost
    ----
    An allgather of the parameters in forward and another in backward, and a reduce-scatter of the
    gradients: half as much again as an allreduce of the gradients. A rank holds 1/n of parameters,
    gradients and optimizer state, and one unit's parameters besides.

    Notes
    -----
    Make the optimizer afterwards, of ``module.parameters()``. Optimizers that treat every element
    by itself (SGD, Adam, AdamW, RMSprop, Adagrad, ...) take the same steps as in one process;
    such as need norms or factors of whole parameters do not, nor does
    ``torch.nn.utils.clip_grad_norm_``: see :func:`clip_grad_norm_`. ``module_state`` gives the
    parameters as distributed arrays.
    """
    mesh, dim = _dimension(mesh, mesh_dim)
    group = mesh.subgroup((dim,))
    _check(module, fold)
    name = type(module).__name__
    entries = []
    for owners, parameter in _own_parameters(module):
        entry = Entry(owners, parameter, group.size)
        entries.append(entry)
        _divide(entry, group, src_data_rank, name)
    unit = Unit(
        entries,
        group,
        name,
        fold == "avg",
        None if reshard_after_forward is None else not reshard_after_forward,
    )
    _UNITS[module] = unit
    if group.size > 1 and entries:
        module.register_forward_pre_hook(unit.before_forward, prepend=True)
        module.register_forward_hook(unit.after_forward, always_call=True)
    return module


def _dimension(mesh: DeviceMesh | None, mesh_dim: int | str | None) -> tuple[DeviceMesh, int]:
    mesh = default_mesh() if mesh is None else mesh
    if mesh_dim is None and mesh.ndim > 1:
        raise MeshError(
            f"fully_shard: {mesh!r} has {mesh.ndim} dimensions; say along which one the parameters "
            'are divided: fully_shard(module, mesh, "dp")'
        )
    return mesh, mesh.mesh_dim(0 if mesh_dim is None else mesh_dim)


def _check(module: Module, fold: str) -> None:
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"fully_shard takes a torch.nn.Module, not {type(module).__name__}")
    if fold not in ("avg", "sum"):
        raise ValueError(f"fully_shard: fold is 'avg' or 'sum', not {fold!r}")
    if module in _UNITS:
        raise ValueError(f"fully_shard: {type(module).__name__} is sharded already")
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


def _own_parameters(module: Module) -> list[tuple[list[tuple[Module, str]], Tensor]]:
    """The parameters that are in no unit yet, each with all the places where it stands."""
    places: dict[int, tuple[list[tuple[Module, str]], Tensor]] = {}
    for path, part in module.named_modules():
        for name, parameter in part._parameters.items():
            if parameter is None or hasattr(parameter, _PART):
                continue
            unit = getattr(parameter, _WAS, None)
            if unit is not None:
                raise ValueError(
                    f"fully_shard: {path}.{name} is a parameter of {unit}, too, which is sharded "
                    "by itself; parameters that modules share must be in one unit: shard the "
                    "module that has both"
                )
            places.setdefault(id(parameter), ([], parameter))[0].append((part, name))
    return list(places.values())


def _divide(entry: Entry, group: Any, src_data_rank: int | None, unit: str) -> None:
    """Keep this rank's rows of a parameter, in all the places where it stands."""
    whole = entry.part
    if whole.device.type == "meta":
        raise ValueError(f"fully_shard: {unit} has parameters without values, on the meta device")
    with torch.no_grad():
        if src_data_rank is not None and group.size > 1 and whole.numel():
            values = talk.sent(whole, group, src_data_rank)
        else:
            values = whole
        rows = slice(None)
        if entry.rows:
            start = sum(entry.rows[: group.rank])
            rows = slice(start, start + entry.rows[group.rank])
        part = values[rows].clone() if entry.shape else values.clone()
    entry.part = torch.nn.Parameter(part, requires_grad=whole.requires_grad)
    setattr(entry.part, _PART, True)
    setattr(whole, _WAS, unit)
    for module, name in entry.owners:
        module._parameters[name] = entry.part
