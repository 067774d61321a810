"""`distribute_module`: distribution of a module's parameters over a mesh."""

import zlib
from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch.nn import Module
from torch.utils._pytree import tree_leaves

from distarray.comm import DeviceMesh, default_mesh
from distarray.errors import DivergenceError
from distarray.layout import Fold
from distarray.torch.bridge.transforms import is_traced
from distarray.torch.collectives.blocks import movable
from distarray.torch.collectives.graphs import written_down
from distarray.torch.collectives.passes import uncompiled
from distarray.torch.modules.dropout import install_dropout, share_random_numbers
from distarray.torch.modules.forwards import InputHook
from distarray.torch.modules.layers import install, mark
from distarray.torch.parameters.checks import agree_on_parameters, check_parameters
from distarray.torch.parameters.distribute import adopt, place_rest
from distarray.torch.parameters.placed import placed_of
from distarray.torch.tensor.between_modules import is_distributed

__all__ = ["distribute_module"]


def distribute_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    partition_fn: Callable[[str, Module, DeviceMesh], None] | None = None,
    input_fn: Callable[..., Any] | None = None,
    output_fn: Callable[..., Any] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Distribute the parameters of a module over a mesh; its results do not change.

    Parameters
    ----------
    module : torch.nn.Module
        Changed in place. Its parameters stay the same objects, and share their memory with the
        arrays of `module_state`.
    device_mesh : DeviceMesh, optional
        The default mesh if not given. Ranks outside of it leave the module unchanged.
    partition_fn : callable, optional
        ``partition_fn(name, submodule, mesh)`` is called for every submodule ("" is the module
        itself) and calls `distribute_parameter` for each parameter to cut. All other parameters
        and buffers are replicated.
    input_fn : callable, optional
        ``input_fn(module, inputs, mesh)`` returns the positional inputs for `forward`; it may
        convert them to `DistTensor`. Without it plain tensors count as replicated, and are
        compared.
    output_fn : callable, optional
        ``output_fn(module, outputs, mesh)`` returns the result for the caller.
    src_data_rank : int or None
        The rank of the mesh whose parameter values are used; None: they are equal already.

    Returns
    -------
    torch.nn.Module
        `module`.

    Raises
    ------
    DivergenceError
        If the ranks pass different modules, or call the distributed module (without `input_fn`)
        with different tensors; on all ranks.

    Notes
    -----
    For plain tensors a layer returns plain ones, whole and equal on all ranks; for a `DistTensor`
    it returns a `DistTensor`. Linear, Embedding and the norms compute with their parts. Other
    modules with a cut parameter gather it for each call.

    Cost
    ----
    One exchange for each parameter. Each forward pass without `input_fn` adds a checksum of the
    inputs and an allreduce of two integers.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> def cut(name, module, mesh):
    ...     dt.distribute_parameter(module, "weight", mesh, [distarray.Shard(0)])
    >>> model = dt.distribute_module(torch.nn.Linear(4, 6), distarray.default_mesh(), cut)
    >>> model(torch.ones(2, 4)).shape
    torch.Size([2, 6])
    >>> dt.module_state(model)["weight"].placements
    (Shard(0),)
    """
    mesh = default_mesh() if device_mesh is None else device_mesh
    if mesh.coords is None:
        return module
    agree_on_parameters(module, mesh, _error(module, mesh), None)
    if partition_fn is not None:
        for name, part in list(module.named_modules()):
            partition_fn(name, part, mesh)
    adopt(module)
    place_rest(module, mesh, src_data_rank)
    for part in module.modules():
        install(part, mesh)
        install_dropout(part, mesh)
    share_random_numbers(module, mesh)
    mark(module)
    module.__dict__["_distarray_mesh"] = mesh
    if input_fn is None:
        module.register_forward_pre_hook(InputHook(_compare, module, mesh), with_kwargs=True)
    else:
        module.register_forward_pre_hook(partial(_prepare, input_fn, _arity(input_fn), mesh))
    if output_fn is not None:
        module.register_forward_hook(partial(_finish, output_fn, _arity(output_fn), mesh))
    return module


def _error(module: Module, mesh: DeviceMesh) -> Exception | None:
    """Return an exception if the module cannot be distributed on this rank, else None."""
    try:
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"distribute_module takes a Module, not {type(module).__name__}")
        if "_distarray_mesh" in vars(module) or any(placed_of(p) for p in module.modules()):
            raise RuntimeError("distribute_module: the module, or a part of it, is distributed")
        check_parameters(module, "distribute_module")
    except (TypeError, ValueError, RuntimeError) as error:
        return error
    return None


def _arity(function: Callable[..., Any]) -> int:
    """Count arguments: (inputs, mesh) in DTensor's older functions, newer ones add the module."""
    parameters = signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)


def _prepare(
    function: Callable[..., Any], arity: int, mesh: DeviceMesh, module: Module, inputs: Any
) -> Any:
    found = function(inputs, mesh) if arity == 2 else function(module, inputs, mesh)
    return tuple(found) if isinstance(found, list) else found


def _finish(
    function: Callable[..., Any],
    arity: int,
    mesh: DeviceMesh,
    module: Module,
    inputs: Any,
    outputs: Any,
) -> Any:
    return function(outputs, mesh) if arity == 2 else function(module, outputs, mesh)


@uncompiled
def _compare(
    module: Module, mesh: DeviceMesh, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Raise on all ranks unless all call the module with the same plain tensors."""
    if mesh.size() == 1:
        return
    given = [
        repr(x.dist_layout) if is_distributed(x) else x
        for x in tree_leaves((args, kwargs))
        if isinstance(x, torch.Tensor)
    ]
    if any(map(is_traced, given)):
        written_down(_compare_given, [], type(module).__name__, mesh, given)
    else:
        _compare_given(type(module).__name__, mesh, given)


def _compare_given(called: str, mesh: DeviceMesh, given: Sequence[Any]) -> list[Any]:
    """Compare plain tensors by value, and distributed ones by layout; collective."""
    total = 0
    for x in given:
        if isinstance(x, str):
            total = zlib.crc32(x.encode(), total)
        else:
            block = np.ascontiguousarray(movable(x.detach()))
            total = zlib.crc32(f"{total} {x.dtype} {tuple(x.shape)}".encode())
            total = zlib.crc32(block.reshape(-1).view(np.uint8).data, total)
    found = mesh.group.allreduce(np.array([total, -total]), Fold.MAX, "inputs of a module")
    if found[0] != -found[1]:
        raise DivergenceError(
            f"{called} was called with plain tensors that differ between the ranks. "
            "Plain tensors count as replicated; an input_fn says how they are laid out otherwise, "
            "as in lambda module, inputs, mesh: [DistTensor.from_local(inputs[0], mesh, "
            "[Shard(0)])]"
        )
    return []
