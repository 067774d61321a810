"""Dropout that drops the same elements on every number of ranks.

Whether an element is dropped is a random number of its global index (and of the seed and the number
of the call), by the generators of :mod:`distarray.random`. Ranks that hold the same element
drop it alike, ranks that hold parts drop what one process would, and nothing is sent.
"""

import threading
from collections import OrderedDict
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from distarray.array import wrap
from distarray.comm import DeviceMesh, current_world, default_mesh
from distarray.engines.drawing.streams import Philox
from distarray.layout import Layout
from distarray.ops.random.position import Generator
from distarray.torch.conversations import verify_replicas
from distarray.torch.elementwise import Args, Func, Kwargs
from distarray.torch.functions import handles
from distarray.torch.tensor import DistTensor, laid_out

__all__ = [
    "install_dropout",
    "is_dropout",
    "manual_seed",
    "mask",
    "parallel_dropout",
    "share_random_numbers",
]


#: How many calls are remembered, for activation checkpointing to repeat them.
_REMEMBERED = 4096
_CALL = 1 << 128


class _Calls:
    """Numbers for calls that follow one another."""

    def __init__(self) -> None:
        self._calls = 0
        self._numbers: OrderedDict[int, int] = OrderedDict()

    def next(self) -> int:
        """The number of the next call; of the same call again where torch repeats it.

        Activation checkpointing runs a forward pass twice. It restores torch's own random state
        for that, and a number drawn from there tells which call is being repeated.
        """
        ticket = int(torch.randint(1 << 62, ()))
        if _repeating():
            if ticket not in self._numbers:
                raise RuntimeError(
                    "dropout in a forward pass that is repeated for its gradient cannot tell which "
                    "one is repeated; checkpoint with preserve_rng_state=True"
                )
            number = self._numbers[ticket]
        else:
            number = self._calls
            self._calls += 1
            self._numbers[ticket] = number
            if len(self._numbers) > _REMEMBERED:
                self._numbers.popitem(last=False)
        return number


class _Stream:
    """The random numbers of dropout on one mesh."""

    def __init__(self, seed: int, mesh: DeviceMesh) -> None:
        # Meshes along tensor parallelism differ by the data that their ranks see.
        self._sequence = np.random.SeedSequence([seed % (1 << 64), mesh.ranks[0] // mesh.size()])
        self._calls, self._forwards = _Calls(), _Calls()
        self._begin = int(self._sequence.generate_state(1, np.uint64)[0])

    def next(self) -> Generator:
        """The generator of the next call of a dropout."""
        return Generator(Philox.of(self._sequence).advance(self._calls.next() * _CALL))

    def next_seed(self) -> int:
        """A seed for torch's generators in the next forward of a model."""
        mixed = (self._begin + self._forwards.next()) * 0x9E3779B97F4A7C15 % (1 << 64)
        return mixed >> 32  # torch takes 32 bits


def _repeating() -> bool:
    """Whether autograd is at work, so that this is a forward pass within a backward one."""
    return bool(torch._C._current_graph_task_id() != -1)


_streams: WeakKeyDictionary[DeviceMesh, _Stream] = WeakKeyDictionary()


def manual_seed(seed: int, mesh: DeviceMesh | None = None) -> None:
    """Begin the random numbers of dropout on a mesh anew.

    Parameters
    ----------
    seed : int
        Equal on all ranks; the same seed drops the same elements on any number of ranks.
    mesh : DeviceMesh, optional
        The default mesh if not given. Without a call of this, a mesh's numbers begin at rank 0's
        ``torch.initial_seed()`` when dropout is first used on it.

    Cost
    ----
    None.

    Examples
    --------
    >>> import distarray, torch, distarray.torch as dt
    >>> mesh = distarray.default_mesh()
    >>> dropout = dt.distribute_module(torch.nn.Dropout(0.5), mesh)
    >>> dt.manual_seed(7, mesh)
    >>> dropout(torch.ones(8))  # on any number of ranks
    tensor([0., 0., 2., 0., 0., 0., 2., 0.])
    """
    mesh = default_mesh() if mesh is None else mesh
    _streams[mesh] = _Stream(seed, mesh)


def _stream(mesh: DeviceMesh) -> _Stream:
    found = _streams.get(mesh)
    if found is None:
        seed = mesh.group.broadcast_object(torch.initial_seed(), 0, "seed of dropout")
        found = _streams[mesh] = _Stream(seed, mesh)
    return found


def mask(layout: Layout, mesh: DeviceMesh, p: float, like: Tensor) -> Tensor:
    """The factors for this rank's part: 0 with probability p, else 1 / (1 - p)."""
    block = np.empty(layout.local_shape(mesh.coords), np.float32)
    random = _stream(mesh).next()
    if mesh.coords is not None:
        random.random(dtype=np.float32, out=wrap(block, layout, mesh.on("cpu")))
    kept = torch.from_numpy(block).ge(p).to(like.device, like.dtype)
    return kept.mul_(0.0 if p == 1 else 1 / (1 - p))


def dropped(x: DistTensor, p: float, channels: int | None = None) -> DistTensor:
    """Dropout of a distributed tensor; of whole channels, if `channels` dims precede them."""
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
    """Whether a module is one of torch's plain dropouts."""
    return type(module) in _CHANNELS


def parallel_dropout(module: Module, x: DistTensor) -> DistTensor:
    """A dropout module's result for a distributed tensor."""
    if not module.training or module.p == 0:
        return x
    return dropped(x, module.p, _CHANNELS[type(module)])


def install_dropout(module: Module, mesh: DeviceMesh) -> None:
    """Make a dropout module drop the same elements of replicated tensors on all ranks."""
    if is_dropout(module) and "forward" not in vars(module):
        module.forward = partial(_forward, module, mesh)


def _forward(module: Module, mesh: DeviceMesh, input: Tensor | DistTensor) -> Tensor | DistTensor:
    if not module.training or module.p == 0:
        return input
    if isinstance(input, DistTensor):
        return parallel_dropout(module, input)
    verify_replicas(mesh.group, input, "dropout")
    whole = Layout.replicated(tuple(input.shape), mesh.shape)
    return parallel_dropout(module, laid_out(input, mesh, whole)).to_local()


# -- numbers that a model draws itself ----------------------------------------------------------

#: The attribute of a module that has the mesh on which its forward draws alike.
_DRAWN_ON = "_distarray_drawn_on"
_under_way = threading.local()


def share_random_numbers(module: Module, mesh: DeviceMesh) -> None:
    """Make a model in training draw the same from torch's generators on all ranks."""
    if current_world() is None:  # threads have one generator between them
        module.__dict__[_DRAWN_ON] = mesh
        module.register_forward_pre_hook(_draw_alike)
        module.register_forward_hook(_draw_apart, always_call=True)


@torch._disable_dynamo  # type: ignore[untyped-decorator]
def _draw_alike(module: Module, args: tuple[Any, ...]) -> None:
    if not module.training or getattr(_under_way, "module", None) is not None:
        return
    # This draws from torch's generator itself, so that no two forwards begin alike.
    seed = _stream(vars(module)[_DRAWN_ON]).next_seed()
    generators = _generators()
    _under_way.states = [(generator, generator.get_state()) for generator in generators]
    _under_way.module = module
    for generator in generators:
        generator.manual_seed(seed)


@torch._disable_dynamo  # type: ignore[untyped-decorator]
def _draw_apart(module: Module, args: tuple[Any, ...], output: Any) -> None:
    if getattr(_under_way, "module", None) is module:
        _under_way.module = None
        for generator, state in _under_way.states:
            generator.set_state(state)


def _generators() -> list[Any]:
    """The generators that torch's functions draw from by default."""
    if not torch.cuda.is_initialized():
        return [torch.default_generator]
    return [torch.default_generator, torch.cuda.default_generators[torch.cuda.current_device()]]


@handles("dropout")
def _functional(func: Func, args: Args, kwargs: Kwargs) -> DistTensor:
    def bound(
        input: DistTensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> DistTensor:
        return dropped(input, p) if training and p else input

    return bound(*args, **kwargs)
