"""Dropout that drops the same elements on any number of ranks.

A random number decides whether an element is dropped. It is a function of the element's global
index, the seed and the call number, by the generators of :mod:`distarray.random`. Ranks that hold
the same element drop it alike, ranks that hold parts drop the same elements as one process, and
nothing is sent.
"""

import threading
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from distarray.comm import DeviceMesh, current_world
from distarray.layout import Layout
from distarray.torch.bridge.transforms import refuse_wrapped, transforming
from distarray.torch.collectives.conversations import verify_replicas
from distarray.torch.collectives.passes import run_as_it_is, uncompiled
from distarray.torch.modules.forwards import Forward
from distarray.torch.tensor.activations import Activation, laid_out
from distarray.torch.tensor.between_modules import given, is_distributed, taken
from distarray.torch.tensor.streams import mask, next_seed

__all__ = [
    "install_dropout",
    "is_dropout",
    "parallel_dropout",
    "share_random_numbers",
]


def dropped(x: Activation, p: float, channels: int | None = None) -> Activation:
    """Apply dropout to elements; with `channels`, to whole entries of that many leading dims."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if x.layout.partials:
        x = x.placed(x.layout.settled())
    layout = x.layout
    if channels is not None:
        layout = Layout.from_cuts(layout.cuts[:channels], layout.mesh_shape)
    factor = mask(layout, x.mesh, p, x.local)
    if channels is not None:
        factor = factor.reshape(*factor.shape, *(1,) * (x.ndim - channels))
    return x.like(x.local * factor)


_CHANNELS = {torch.nn.Dropout: None, torch.nn.Dropout1d: 2, torch.nn.Dropout2d: 2}
_CHANNELS[torch.nn.Dropout3d] = 2


def is_dropout(module: Module) -> bool:
    """Return True if a module is one of torch's plain dropouts."""
    return type(module) in _CHANNELS


def parallel_dropout(module: Module, x: Activation) -> Activation:
    """Apply a dropout module to a distributed tensor."""
    if not module.training or module.p == 0:
        return x
    return dropped(x, module.p, _CHANNELS[type(module)])


def install_dropout(module: Module, mesh: DeviceMesh) -> None:
    """Make a dropout module drop the same elements of replicated tensors on all ranks."""
    if is_dropout(module) and "forward" not in vars(module):
        module.forward = Forward(_forward, module, mesh)


@uncompiled
def _forward(module: Module, mesh: DeviceMesh, input: Tensor | Activation) -> Tensor | Activation:
    if not module.training or module.p == 0:
        return input
    if is_distributed(input):
        return given(parallel_dropout(module, taken(input)))
    verify_replicas(mesh.group, input, "dropout")
    whole = Layout.replicated(tuple(input.shape), mesh.shape)
    return parallel_dropout(module, laid_out(input, mesh, whole)).to_local()


# -- random numbers that the code of a model draws ----------------------------------------------

#: The attribute of a module with the mesh on which its forward draws the same numbers.
_DRAWN_ON = "_distarray_drawn_on"
_under_way = threading.local()


def share_random_numbers(module: Module, mesh: DeviceMesh) -> None:
    """Make a model in training draw the same numbers from torch's generators on all ranks."""
    if current_world() is None:  # ranks that are threads share one generator
        module.__dict__[_DRAWN_ON] = mesh
        module.register_forward_pre_hook(_draw_alike)
        module.register_forward_hook(_draw_apart, always_call=True)


@run_as_it_is
def _draw_alike(module: Module, args: tuple[Any, ...]) -> None:
    if module.training or not torch.compiler.is_dynamo_compiling():
        _begin(module, args)


@run_as_it_is
def _draw_apart(module: Module, args: tuple[Any, ...], output: Any) -> None:
    if module.training or not torch.compiler.is_dynamo_compiling():
        _end(module)


@uncompiled
def _begin(module: Module, args: tuple[Any, ...]) -> None:
    refuse_wrapped((*args, *module.parameters()) if transforming() else ())
    if not module.training or getattr(_under_way, "module", None) is not None:
        return
    # `next_seed` draws from torch's generator, so every forward starts from another seed.
    seed = next_seed(vars(module)[_DRAWN_ON])
    generators = _generators()
    _under_way.states = [(generator, generator.get_state()) for generator in generators]
    _under_way.module = module
    for generator in generators:
        generator.manual_seed(seed)


@uncompiled
def _end(module: Module) -> None:
    if getattr(_under_way, "module", None) is module:
        _under_way.module = None
        for generator, state in _under_way.states:
            generator.set_state(state)


def _generators() -> list[Any]:
    """Return the default generators of torch's functions."""
    if not torch.cuda.is_initialized():
        return [torch.default_generator]
    return [torch.default_generator, torch.cuda.default_generators[torch.cuda.current_device()]]
