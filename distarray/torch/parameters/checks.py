"""Checks of a module before its distribution: on each rank, and between ranks."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.errors import DivergenceError
from distarray.torch.bridge.plain import plainly
from distarray.torch.parameters.placed import averaged_by, placed_as

__all__ = ["agree_on_parameters", "check_apart", "check_parameters", "check_replicas", "owners"]


def owners(root: Module) -> dict[int, list[tuple[str, Module, str]]]:
    """Return the owners of each parameter by id: (module's name, module, parameter's name)."""
    found: dict[int, list[tuple[str, Module, str]]] = {}
    for path, module in root.named_modules():
        for name, tensor in module._parameters.items():
            if tensor is not None:
                found.setdefault(id(tensor), []).append((path, module, name))
    return found


def check_parameters(root: Module, call: str) -> None:
    """Raise an error for parameters that cannot be distributed."""
    with plainly():
        _check_each(root, call)
        _refuse_overlap(root, call)


def _check_each(root: Module, call: str) -> None:
    for name, tensor in root.named_parameters():
        if isinstance(tensor, torch.nn.parameter.UninitializedParameter):
            raise TypeError(
                f"{call}: {name} has no shape yet (a lazy module): call the model once first"
            )
        if tensor.is_meta:
            raise TypeError(
                f"{call}: {name} is on the meta device and has no values: module.to_empty(device) "
                "and initialize it first"
            )
        if hasattr(tensor, "_local_tensor"):
            raise TypeError(f"{call}: {name} is a DTensor already")
        if tensor.grad is not None:
            raise ValueError(
                f"{call}: {name} has a gradient, which would keep the shape of the whole: call "
                "zero_grad() before"
            )


def check_replicas(root: Module, call: str) -> None:
    """Raise TypeError for modules that would normalize over this rank's samples alone."""
    there = torch.distributed
    connected = there.is_available() and there.is_initialized()
    for name, part in root.named_modules():
        if isinstance(part, torch.nn.SyncBatchNorm) and not connected:
            raise TypeError(
                f"{call}: {name or 'the module'} is a SyncBatchNorm, which talks through a process "
                "group of torch.distributed and without one normalizes over this rank's samples "
                "alone: use BatchNorm, which says so, or GroupNorm, or call ensure_process_group()"
            )


def check_apart(root: Module, call: str, ranks: set[int], averaging: bool) -> None:
    """Raise ValueError if a mean of gradients would mix different parts of a parameter.

    Parameters
    ----------
    root : torch.nn.Module
        The module; the gradients of its parameters are to be averaged, or the parameters cut.
    call : str
        Name of the calling function, for the error message.
    ranks : set of int
        World ranks that would average the gradients, or hold the parts.
    averaging : bool
        True if these ranks would average; False if they would hold parts.
    """
    for name, tensor in root.named_parameters():
        placed = placed_as(tensor)
        if averaging and placed is not None and len(ranks & placed.around.holders) > 1:
            raise ValueError(
                f"{call}: {name} is cut over the same ranks, as {placed.around.layout}; the mean "
                "would mix the gradients of different rows. Average over another dimension of "
                "the mesh, or call data_parallel on the modules that have no such parameter (all "
                "but the experts, where ExpertParallel is given each rank's own tokens); "
                "fully_shard and the parallel styles finish gradients over their own"
            )
        if not averaging and len(ranks & averaged_by(tensor)) > 1:
            raise ValueError(
                f"{call}: data_parallel averages the gradient of {name} over the same ranks; the "
                "mean would mix those of different rows. Take one of the two, or two dimensions "
                "of a mesh"
            )


def _refuse_overlap(root: Module, call: str) -> None:
    """Raise ValueError for parameters that share elements.

    One storage for several parameters is no error: cuDNN's LSTM places them side by side.
    """
    seen: dict[int, list[tuple[int, int, str]]] = {}
    for name, tensor in root.named_parameters():
        where = tensor.untyped_storage().data_ptr() if tensor.numel() else 0
        if not where:
            continue
        first = tensor.storage_offset()
        reach = sum([(n - 1) * step for n, step in zip(tensor.shape, tensor.stride())])
        beside = seen.setdefault(where, [])
        for begin, last, other in beside:
            if begin <= first + reach and first <= last:
                raise ValueError(
                    f"{call}: {name} and {other} are two Parameters over the same memory, which "
                    "they would not share any more; tie them by assigning one Parameter to both"
                )
        beside.append((first, first + reach, name))


def agree_on_parameters(
    root: Module, mesh: DeviceMesh, error: Exception | None, extra: Any
) -> None:
    """Raise on all ranks if one rank has an error, or if models or plans differ."""
    agree(mesh.group, error)
    mine = [(n, _whole(p), str(p.dtype), p.requires_grad) for n, p in root.named_parameters()]
    mine += [(n, _whole(b), str(b.dtype), False) for n, b in root.named_buffers()]
    told = mesh.group.allgather_object((mine, extra), "parameters of a module")
    for rank, (theirs, plan) in enumerate(told):
        if theirs != told[0][0] or plan != told[0][1]:
            ours, others = dict.fromkeys(told[0][0]), dict.fromkeys(theirs)
            differ = [str(x) for x in [*ours, *others] if (x in ours) != (x in others)]
            raise DivergenceError(
                f"the ranks bring different modules or plans: rank {rank} differs from rank 0 in "
                f"{', '.join(differ[:4]) or f'the plan, {plan} and {told[0][1]}'}"
            )


def _whole(tensor: Tensor) -> tuple[int, ...]:
    """Return the global shape, also of a tensor that is distributed already."""
    placed = placed_as(tensor)
    return tuple(tensor.shape) if placed is None else placed.whole
