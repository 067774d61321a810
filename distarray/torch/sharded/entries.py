"""One parameter of a unit: its rows, divided among the ranks, and each rank's contribution."""

import copy
from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from distarray.errors import LayoutError
from distarray.torch.bridge.plain import is_part, local_of, plainly
from distarray.torch.bridge.transforms import refuse_wrapped
from distarray.torch.collectives import conversations as talk
from distarray.torch.parameters.distribute import become, remember
from distarray.torch.parameters.parts import guard
from distarray.torch.parameters.placed import Placed, placed_of
from distarray.torch.parameters.spreading import placed_on

__all__ = ["ENTRY", "Entry", "packed"]


#: The attribute of a parameter with its entry in a unit.
ENTRY = "_distarray_entry"
#: Size in bytes below which parameters are sent together.
ALONE_FROM = 1 << 18


class Entry:
    """One parameter of a unit.

    Parameters
    ----------
    owners : list of (Module, str)
        The modules and attribute names of the parameter; several if modules share it.
    parameter : torch.nn.Parameter
        Still whole.
    size : int
        Number of ranks.
    within : Placed or None
        Its layout over other mesh dimensions, in which the whole tensor here is one part.

    Attributes
    ----------
    shape : tuple of int
        Shape of the whole tensor, with the rows of all ranks.
    rows : tuple of int
        Number of rows on each rank; empty for a 0-d parameter, which every rank has.
    counts : tuple of int
        Number of elements that each rank contributes to a gather.
    """

    __slots__ = ("around", "counts", "owners", "parameter", "rows", "shape", "within")

    def __init__(
        self,
        owners: list[tuple[Module, str]],
        parameter: Tensor,
        size: int,
        within: Placed | None,
    ) -> None:
        self.owners, self.parameter, self.within = owners, parameter, within
        self.around: Placed | None = None
        self.shape = tuple(local_of(parameter).shape)
        self.rows: tuple[int, ...] = ()
        self.counts = (1,) + (0,) * (size - 1)
        if self.shape:
            # A packed weight is cut between its matrices.
            packed = 1 if within is None or within.viewed is None else within.viewed[0]
            extent, each = (packed, self.shape[0] // packed) if packed > 1 else (self.shape[0], 1)
            self.rows = tuple([n * each for n in talk.chunk_sizes(extent, size)])
            inner = prod(self.shape[1:])
            self.counts = tuple([rows * inner for rows in self.rows])

    def copied(self, memo: dict[int, Any]) -> "Entry":
        """Return the entry for a copy of the modules; `memo` is that of :func:`copy.deepcopy`."""
        found = copy.copy(self)
        found.parameter = copy.deepcopy(self.parameter, memo)
        found.owners = [(copy.deepcopy(module, memo), name) for module, name in self.owners]
        found.around = copy.deepcopy(self.around, memo)
        setattr(found.parameter, ENTRY, found)
        return found

    def divide(self, rank: int, around: Placed) -> None:
        """Keep only this rank's rows; `around` is the layout of the rows of all ranks."""
        self.around = around
        if self.rows:
            start = sum(self.rows[:rank])
            whole = local_of(self.parameter).detach()
            become(self.parameter, whole[start : start + self.rows[rank]].clone())
        for module, name in self.owners:
            remember(module, name, self.parameter, around)
            _refresh(module, name)

    def check_owners(self) -> None:
        """Adopt a parameter that the program has assigned in place of this one, if it fits.

        Raises
        ------
        RuntimeError
            If the new one is no part of the same layout; on all ranks, because all see the same.
        """
        for module, name in self.owners:
            found = module._parameters.get(name)
            if found is self.parameter:
                continue
            refuse_wrapped((found,))
            if found is None or not self._lies_as(found):
                called = placed_on(self.parameter).called
                raise RuntimeError(
                    f"fully_shard: {called} is no longer the parameter that was divided. Write to "
                    "it (with torch.no_grad(): p.copy_(q)), or put a part in its place, as in "
                    "torch.nn.Parameter(p.detach()); parametrize before fully_shard"
                )
            self.parameter = found

    def _lies_as(self, found: Tensor) -> bool:
        assert self.around is not None
        if self.around.cutting:
            return is_part(found) and placed_on(found).layout is self.around.layout
        return not is_part(found) and tuple(found.shape) == self.shape

    @property
    def is_small(self) -> bool:
        """True if the parameter is sent together with others."""
        return sum(self.counts) * int(self.parameter.element_size()) < ALONE_FROM

    @property
    def part_shape(self) -> tuple[int, ...]:
        """Shape of this rank's rows."""
        with plainly():
            return tuple(self.parameter.shape)

    def zeros(self) -> Tensor:
        """Return the gradient for a rank that has none: zeros."""
        return local_of(self.parameter).new_zeros(self.shape)

    def contribution(self, rank: int) -> Tensor:
        """Return this rank's contribution to a gather, as a flat tensor."""
        part = self.parameter.detach().reshape(-1)
        if not self.rows:
            return part if rank == 0 else part[:0]
        if len(part) != self.counts[rank]:
            raise LayoutError(
                f"fully_shard: {self.owners[0][1]} has become a tensor of shape "
                f"{tuple(self.parameter.shape)}; of its {sum(self.rows)} rows the ranks have "
                f"{self.rows}. Assign values in place, as in p.data.copy_(values)"
            )
        return part

    def show(self, whole: Tensor) -> None:
        """Set the gathered parameter on the modules, with its layout over other mesh dimensions."""
        for module, name in self.owners:
            if self.within is not None and self.within.cutting:
                guard(whole, self.within)
            module.__dict__[name] = whole
            if self.within is not None:
                placed_of(module)[name] = self.within
            _refresh(module, name)

    def hide(self, repeated: bool) -> None:
        """Let the modules use the part again; `repeated`: a forward may be repeated meanwhile."""
        for module, name in self.owners:
            module.__dict__.pop(name, None)
            _refresh(module, name)
        self.lay_out(repeated)

    def lay_out(self, gathered: bool) -> None:
        """Record the parameter's current layout for the modules: gathered, or a part."""
        placed = self.within if gathered and self.within is not None else self.around
        for module, name in self.owners:
            if placed is not None:
                placed_of(module)[name] = placed


def _refresh(module: Module, name: str) -> None:
    """Update the list of parameters that a recurrent module keeps besides its attributes."""
    if isinstance(module, torch.nn.RNNBase) and name in module._flat_weights_names:
        place = module._flat_weights_names.index(name)
        module._flat_weights[place] = getattr(module, name)


def packed(entries: Sequence[Entry]) -> list[list[int]]:
    """Group entries that are sent together: large ones alone, small ones by dtype and device."""
    packs: list[list[int]] = []
    small: dict[Any, list[int]] = {}
    for place, entry in enumerate(entries):
        if not entry.is_small:
            packs.append([place])
        else:
            kind = entry.parameter.dtype, entry.parameter.device
            if kind not in small:
                packs.append(small.setdefault(kind, []))
            small[kind].append(place)
    return packs
