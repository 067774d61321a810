"""Checkpoints of torch's modules, optimizers, schedulers, tensors and generators.

The import of this module registers them with :mod:`distarray.checkpoint`, which imports it for the
first object of torch's. Distributed parameters and their optimizer states are saved as distributed
arrays. So a checkpoint can be loaded on any number of ranks, with any kind of parallelism.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from distarray.array import DistArray, empty
from distarray.checkpoint.adapters import AsSaved, Exact, Filled, register
from distarray.layout import Layout, Replicate, Shard
from distarray.torch.bridge.dtypes import numpy_view, tensor_view
from distarray.torch.bridge.plain import local_of
from distarray.torch.parameters.buffers import equalize_buffers
from distarray.torch.parameters.guards import prepare_again, prepare_optimizer
from distarray.torch.parameters.placed import Placed, placed_as
from distarray.torch.tensor.dist_tensor import DistTensor
from distarray.torch.tensor.versions import written
from distarray.typing import Array

__all__ = ["register_torch"]

State = dict[Any, Any]


# -- tensors ----------------------------------------------------------------------------------


def _array_of(tensor: Tensor, placed: Placed | None, name: str = "tensor") -> Any:
    """Return the array over a tensor's memory; distributed if the tensor has a layout."""
    if isinstance(tensor, DistTensor) and placed is None:
        return tensor.detach().to_array()
    if placed is None:
        return numpy_view(local_of(tensor).detach().cpu())
    around = placed.around
    array = Placed(around.mesh, around.layout, around.viewed).array(name, tensor)
    if around.viewed is None:
        return array
    # Packed matrices are saved in their shape for torch, which has another layout.
    rows = [Shard(0) if m in around.cutting else Replicate() for m in range(array.mesh.ndim)]
    layout = Layout.chunked(around.whole, array.mesh.shape, rows)
    whole = empty(layout, array.dtype, array.mesh)
    return Filled(whole, lambda: _assign(whole, array))


def _assign(array: DistArray, values: DistArray | Array) -> None:
    array[...] = values.reshape(array.shape)


def _block_of(array: DistArray | Array) -> Array:
    return array.mesh.to_host(array.to_local()) if isinstance(array, DistArray) else array


@torch.no_grad()  # type: ignore[untyped-decorator]
def _put_back(tensor: Tensor, array: DistArray | Array, placed: Placed | None) -> None:
    """Copy the values of an array to its tensor, unless the two share memory."""
    if placed is not None and placed.viewed is not None:
        around = placed.around
        packed = Placed(around.mesh, around.layout, around.viewed).array("tensor", tensor)
        _assign(packed, array)
        array = packed
    if isinstance(tensor, DistTensor) and placed is None:
        _fill(tensor.detach(), array)
        return
    tensor = local_of(tensor)
    if tensor.device.type == "cpu":
        torch.autograd.graph.increment_version(tensor)
    else:
        tensor.copy_(tensor_view(_block_of(array)).view(tensor.shape))


def _fill(tensor: DistTensor, array: DistArray | Array) -> None:
    """Copy an array's values to a distributed tensor; on the CPU the two share memory."""
    if tensor.device.type == "cpu" and isinstance(array, DistArray):
        written([tensor])
    else:
        tensor.copy_(_like(array, tensor))


def _like(array: DistArray | Array, tensor: DistTensor) -> Tensor:
    """Return a distributed tensor of an array's values, in a tensor's layout; collective."""
    target = empty(tensor.dist_layout.settled(), array.dtype, tensor.mesh)
    _assign(target, array)
    found: Tensor = target.to_tensor()
    return found


# -- modules ----------------------------------------------------------------------------------


def _tensors(module: Module) -> Iterator[tuple[str, Tensor]]:
    """Yield parameters and persistent buffers with their names in ``state_dict``."""
    for path, part in module.named_modules():
        for kind in (part._parameters, part._buffers):
            for name, tensor in kind.items():
                if tensor is not None and name not in part._non_persistent_buffers_set:
                    yield (f"{path}.{name}" if path else name), tensor


def _module_state(module: Module) -> State:
    equalize_buffers(module)
    made: dict[int, Any] = {}
    state = Exact()
    for name, tensor in _tensors(module):
        if id(tensor) not in made:  # tied parameters are saved once
            made[id(tensor)] = _array_of(tensor, placed_as(tensor), name)
        state[name] = made[id(tensor)]
    return state


def _restore_module(module: Module, state: State) -> None:
    for name, tensor in _tensors(module):
        _put_back(tensor, state[name], placed_as(tensor))


# -- optimizers -------------------------------------------------------------------------------


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _alike(value: Tensor, parameter: Tensor) -> Placed | None:
    """Return the parameter's layout for a state tensor of equal shape; None for other shapes."""
    placed = placed_as(parameter)
    alike = placed is not None and value.ndim and tuple(value.shape) == placed.local_shape()
    return placed if alike else None


def _optimizer_state(optimizer: Optimizer) -> State:
    prepare_optimizer(optimizer)
    parameters = _parameters(optimizer)
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    kept = AsSaved()
    for number, parameter in enumerate(parameters):
        for name, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, torch.Tensor):
                value = local_of(value)
                value = _array_of(value, _alike(value, parameter), name)
            kept.setdefault(number, AsSaved())[name] = value
    groups = [
        {
            name: [numbers[id(p)] for p in value] if name == "params" else value
            for name, value in group.items()
        }
        for group in optimizer.param_groups
    ]
    return {"state": kept, "groups": groups}


def _restore_optimizer(optimizer: Optimizer, state: State) -> None:
    prepare_optimizer(optimizer)
    for group, saved in zip(optimizer.param_groups, state["groups"], strict=True):
        group.update({name: value for name, value in saved.items() if name != "params"})
    for number, parameter in enumerate(_parameters(optimizer)):
        values = state["state"].get(number)
        if values is None:  # the parameter had no state when it was saved
            optimizer.state.pop(parameter, None)
            continue
        mine = optimizer.state[parameter]
        for name in [name for name in mine if name not in values]:
            del mine[name]
        for name, value in values.items():
            if isinstance(value, DistArray) or type(value) is np.ndarray:
                if isinstance(mine.get(name), torch.Tensor):
                    known = local_of(mine[name])
                    _put_back(known, value, _alike(known, parameter))
                else:
                    mine[name] = _made(value, parameter)
            else:
                mine[name] = value
    prepare_again(optimizer)


def _made(value: DistArray | Array, parameter: Tensor) -> Tensor:
    """Return a tensor for a saved array of a parameter's state; collective."""
    placed = placed_as(parameter)
    if isinstance(parameter, DistTensor) and placed is None and value.shape == parameter.shape:
        return _like(value, parameter)
    around = None if placed is None else placed.around
    if isinstance(value, DistArray) and around is not None and value.shape == around.whole:
        target = empty(around.layout, value.dtype, around.mesh)
        _assign(target, value)
        block, shape = _block_of(target), tuple(local_of(parameter).shape)
    else:
        block = value.full() if isinstance(value, DistArray) else value
        shape = block.shape
    tensor = tensor_view(block).view(shape)
    return tensor.to(parameter.device) if tensor.ndim else tensor  # scalars stay on the host


# -- other objects ----------------------------------------------------------------------------


def _restore_tensor(tensor: Tensor, state: State) -> None:
    _put_back(tensor, state["tensor"], placed_as(tensor))


def register_torch() -> None:
    """Register how modules, optimizers, schedulers, tensors and generators are saved."""
    register(torch.nn.Module, "torch.module", _module_state, _restore_module)
    register(torch.optim.Optimizer, "torch.optimizer", _optimizer_state, _restore_optimizer)
    register(
        torch.optim.lr_scheduler.LRScheduler,
        "torch.scheduler",
        lambda scheduler: scheduler.state_dict(),
        lambda scheduler, state: scheduler.load_state_dict(state),
    )
    register(
        torch.Tensor,
        "torch.tensor",
        lambda t: {"tensor": _array_of(t, placed_as(t))},
        _restore_tensor,
    )
    register(
        torch.Generator,
        "torch.generator",
        lambda generator: {"state": generator.get_state().numpy()},
        lambda generator, state: generator.set_state(torch.from_numpy(state["state"])),
    )


register_torch()
