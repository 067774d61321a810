"""Buffers that a forward in training changes, such as running statistics, equal on all ranks.

Ranks that process different parts of a batch compute different statistics. As in torch's own data
parallel modules, the values of rank 0 count. The other ranks copy them at the end of the backward
pass, where all ranks synchronize, so that later evaluations and checkpoints are equal on all ranks.
Without a backward pass they copy them before the next forward.
"""

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import Module

from distarray.comm.group import Group
from distarray.torch.parameters.alike import take_over

__all__ = ["Buffers", "equalize_buffers"]


#: For each module that has buffers, the `Buffers` that keeps them equal.
_KEEPERS: "WeakKeyDictionary[Module, Buffers]" = WeakKeyDictionary()


class Buffers:
    """Synchronizer that keeps the buffers of a model equal on all ranks.

    Parameters
    ----------
    module : torch.nn.Module
        The model. Modules in it that belong to another `Buffers` are left out.
    group : Group
        The ranks.
    every : bool
        True if a forward in training counts as a change of all buffers. Otherwise only buffers of
        torch's batch norms count, and buffers that torch's functions wrote to or that were
        replaced.
    """

    def __init__(self, module: Module, group: Group, every: bool) -> None:
        self.group, self.every = group, every
        self.owners: list[Module] = []
        self.changed = False
        for part in module.modules():
            if part._buffers and part not in _KEEPERS:
                _KEEPERS[part] = self
                self.owners.append(part)
        self._known = self._states()

    def __reduce__(self) -> Any:
        raise TypeError("a module whose buffers ranks keep alike cannot be pickled")

    def forward_ends(self) -> None:
        """Note that a forward may have changed buffers."""
        self.changed = self.changed or any(part.training for part in self.owners)

    def equalize(self) -> None:
        """Copy rank 0's buffers to all ranks if a forward may have changed them; collective."""
        if self.changed and self.group.size > 1:
            take_over(list(self._stale()), self.group, 0)
            self._known = self._states()
        self.changed = False

    def _stale(self) -> Iterator[Tensor]:
        for number, part in enumerate(self.owners):
            norm = isinstance(part, torch.nn.modules.batchnorm._NormBase)
            for name, buffer in part._buffers.items():
                if buffer is None:
                    continue
                if norm:
                    # Autograd saves these buffers without need, and a change of their version would
                    # make it refuse a second backward pass; `.data` has a version of its own.
                    yield buffer.data
                elif self.every or self._known.get((number, name)) != _state(buffer):
                    yield buffer

    def _states(self) -> dict[tuple[int, str], tuple[int, int]]:
        return {
            (number, name): _state(buffer)
            for number, part in enumerate(self.owners)
            for name, buffer in part._buffers.items()
            if buffer is not None
        }


def _state(buffer: Tensor) -> tuple[int, int]:
    return id(buffer), buffer._version


def equalize_buffers(module: Module) -> None:
    """Copy rank 0's buffers to all ranks where a forward has changed them; collective."""
    for keeper in {id(k): k for part in module.modules() if (k := _KEEPERS.get(part))}.values():
        keeper.equalize()
