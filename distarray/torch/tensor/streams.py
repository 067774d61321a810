"""Random numbers that the ranks of a mesh share."""

from collections import OrderedDict
from threading import RLock
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from distarray.array import wrap
from distarray.comm import DeviceMesh, default_mesh
from distarray.engines.drawing.streams import Philox
from distarray.layout import Layout
from distarray.ops.random.position import Generator
from distarray.torch.bridge.transforms import is_traced
from distarray.torch.collectives.graphs import Like, written_down

__all__ = ["generator_lock", "manual_seed", "mask", "next_seed"]

#: Lock for draws from torch's own generator, which ranks that are threads share.
generator_lock = RLock()

#: Number of calls that are remembered, so that activation checkpointing can repeat them.
_REMEMBERED = 4096
_CALL = 1 << 128


class _Calls:
    """Counter of successive calls, which recognizes repeated ones."""

    def __init__(self) -> None:
        self._calls = 0
        self._numbers: OrderedDict[int, int] = OrderedDict()

    def next(self) -> int:
        """Return the number of the next call; of the same call again where torch repeats it.

        Activation checkpointing runs a forward pass twice. It restores torch's own random state for
        the second run, so a number drawn from that state identifies the repeated call.
        """
        with generator_lock:
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
    """Random numbers of dropout on one mesh."""

    def __init__(self, seed: int, mesh: DeviceMesh) -> None:
        # Ranks of different tensor-parallel meshes see different data, so these meshes get other
        # seeds.
        self._sequence = np.random.SeedSequence([seed % (1 << 64), mesh.ranks[0] // mesh.size()])
        self._calls, self._forwards = _Calls(), _Calls()
        self._begin = int(self._sequence.generate_state(1, np.uint64)[0])

    def next(self) -> Generator:
        """Return the generator of the next call of a dropout."""
        return Generator(Philox.of(self._sequence).advance(self._calls.next() * _CALL))

    def next_seed(self) -> int:
        """Return a seed for torch's generators in the next forward pass of a model."""
        mixed = (self._begin + self._forwards.next()) * 0x9E3779B97F4A7C15 % (1 << 64)
        return mixed >> 32  # torch takes 32 bits


def _repeating() -> bool:
    """Return True inside of a backward pass, where this forward pass repeats an earlier one."""
    return bool(torch._C._current_graph_task_id() != -1)


_streams: WeakKeyDictionary[DeviceMesh, _Stream] = WeakKeyDictionary()


def manual_seed(seed: int, mesh: DeviceMesh | None = None) -> None:
    """Restart the random numbers of dropout on a mesh.

    Parameters
    ----------
    seed : int
        Equal on all ranks; the same seed drops the same elements on any number of ranks.
    mesh : DeviceMesh, optional
        The default mesh if not given. Without this call, a mesh's numbers are seeded with rank 0's
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


def next_seed(mesh: DeviceMesh) -> int:
    """Return a number that the ranks of a mesh share, a different one at each call."""
    return _stream(mesh).next_seed()


def mask(layout: Layout, mesh: DeviceMesh, p: float, like: Tensor) -> Tensor:
    """Return the factors for this rank's part: 0 with probability p, else 1 / (1 - p)."""
    if is_traced(like):
        result = Like(layout.local_shape(mesh.coords), like.dtype)
        return written_down(_mask, [result], layout, mesh, p, like.detach())[0]
    return _mask(layout, mesh, p, like)


def _mask(layout: Layout, mesh: DeviceMesh, p: float, like: Tensor) -> Tensor:
    block = np.empty(layout.local_shape(mesh.coords), np.float32)
    random = _stream(mesh).next()
    if mesh.coords is not None:
        random.random(dtype=np.float32, out=wrap(block, layout, mesh.on("cpu")))
    kept = torch.from_numpy(block).ge(p).to(like.device, like.dtype)
    return kept.mul_(0.0 if p == 1 else 1 / (1 - p))
