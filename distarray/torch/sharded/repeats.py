"""Repeated forwards: functions that run again in the backward pass, as activation checkpoints do.

``torch.utils.checkpoint`` runs a function again when a gradient needs tensors that were not saved.
By that time only the parts of a unit's parameters are stored. But once the unit's output has its
gradient, reading a parameter from its module returns the whole. A reentrant checkpoint runs a
backward pass of its own through the tensors of the repeated forward. It stores gradients on the
parameters that this forward has read.
"""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distarray.torch.bridge.plain import plainly
from distarray.torch.collectives.passes import at_end_of_backward, in_backward
from distarray.torch.parameters.parts import guard

if TYPE_CHECKING:
    from distarray.torch.sharded.units import Unit
    from distarray.torch.sharded.uses import Use

__all__ = ["Repeats"]


class Repeats:
    """Whole parameters of a unit for forwards that are repeated in a backward pass.

    Attributes
    ----------
    uses : list of Use
        The forwards whose backward has begun but not ended.
    leaves : dict
        The whole parameters that were read, by their index; they may have gradients.
    """

    __slots__ = ("leaves", "unit", "uses")

    def __init__(self, unit: "Unit") -> None:
        self.unit = unit
        self.uses: list[Use] = []
        self.leaves: dict[int, Tensor] = {}

    def watch(self) -> None:
        """Make the unit's modules look up their parameters by `find`."""
        for place, entry in enumerate(self.unit.entries):
            for module, name in entry.owners:
                if type(module._parameters) is not _Parameters:
                    module.__dict__["_parameters"] = _Parameters(module._parameters)
                module._parameters.finders[name] = partial(self.find, place)

    def forget(self) -> None:
        """Drop the data of a failed backward pass, at the start of a forward."""
        self.uses.clear()
        self.leaves.clear()

    def begin(self, use: "Use", *_: Any) -> None:
        """Begin the backward pass of a forward, whose output has a gradient now."""
        if use not in self.uses:
            self.uses.append(use)
            at_end_of_backward(partial(self._end, use))
            for entry in self.unit.entries:
                entry.lay_out(True)

    def _end(self, use: "Use") -> None:
        """End a backward pass: send gradients that autograd has not taken to their owners."""
        if use in self.uses:
            self.uses.remove(use)
        if self.uses:
            return
        for entry in self.unit.entries:
            entry.lay_out(False)
        if self.unit.buffers is not None:
            self.unit.buffers.equalize()
        trained = [i for i, leaf in self.leaves.items() if leaf.grad is not None]
        places = [i for i, e in enumerate(self.unit.entries) if e.parameter.requires_grad]
        grads = self.taken(places, [None] * len(places))
        if trained:
            parts = self.unit.scatter(places, grads)()
            for place, part in zip(places, parts):
                if part is not None:
                    self.unit.entries[place].parameter.backward(part)

    def find(self, place: int) -> Tensor | None:
        """Return a whole parameter for a repeated forward; None outside of a backward pass."""
        if not self.uses or not in_backward():
            return None
        if place not in self.leaves:
            entry = self.unit.entries[place]
            with plainly():
                leaf = self.uses[-1].again(place).detach()
                self.leaves[place] = leaf.requires_grad_(entry.parameter.requires_grad)
                if entry.within is not None and entry.within.cutting:
                    guard(leaf, entry.within)
        return self.leaves[place]

    def taken(self, places: Sequence[int], grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Add the gradients of repeated forwards to `grads`, and drop the former."""
        with plainly(), torch.no_grad():
            found = []
            for place, grad in zip(places, grads):
                more = self.leaves[place].grad if place in self.leaves else None
                found.append(more if grad is None else grad if more is None else grad + more)
        self.leaves.clear()
        return found


class _Parameters(dict[str, Tensor]):
    """Dictionary of a module's parameters, which returns them whole in a repeated forward."""

    __slots__ = ("finders",)

    def __init__(self, parameters: dict[str, Tensor]) -> None:
        super().__init__(parameters)
        self.finders: dict[str, Callable[[], Tensor | None]] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Parameters":
        """Copy the parameters without finders: the unit of the copied module sets its own."""
        return _Parameters({name: copy.deepcopy(p, memo) for name, p in self.items()})

    def __getitem__(self, name: str) -> Tensor:
        find = self.finders.get(name)
        found = None if find is None else find()
        return super().__getitem__(name) if found is None else found
