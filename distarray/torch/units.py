"""Parameters of which each rank holds a part, and what gathers them when they are needed.

A *unit* is a module whose parameters are gathered together: before its forward, and again before
its backward, which then leaves to each rank the gradient of its own part. Between, the gathered
parameters do not exist: what autograd wants to save of them is replaced by a note of what it was
(``torch.autograd.graph.saved_tensors_hooks``), and made again when it is asked for.
"""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from distarray.array.divergence import verify_among
from distarray.config import config
from distarray.layout.placement import Fold
from distarray.torch import conversations as talk
from distarray.torch.entries import Entry, packed
from distarray.torch.tensor import DistTensor

__all__ = ["Unit", "at_end_of_backward", "in_backward", "tensors_in"]

Tensor = Any
Module = Any
Group = Any


def at_end_of_backward(callback: Any) -> None:
    """Call a function at the end of the backward pass that is under way."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def in_backward() -> bool:
    """Whether a backward pass is under way in this thread."""
    return bool(torch._C._current_graph_task_id() != -1)


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in what a module returned: itself, or in lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, DistTensor):
        return [value.local]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []


class Unit:
    """A module's parameters that are gathered and given up together.

    Parameters
    ----------
    entries : sequence of Entry
    group : Group
        The ranks that hold the parts.
    name : str
        For messages.
    mean : bool
        Whether gradients are averaged rather than summed.
    keep : bool or None
        Whether gathered parameters stay from forward to backward; None: if no other unit's
        forward is under way.
    """

    def __init__(
        self, entries: Sequence[Entry], group: Group, name: str, mean: bool, keep: bool | None
    ) -> None:
        self.entries = list(entries)
        self.group, self.name, self.mean, self.keep = group, name, mean, keep
        self.packs = packed(self.entries)
        self.open: list[_Use] = []
        self.whole: list[Tensor] | None = None

    def __reduce__(self) -> Any:
        raise TypeError(
            f"fully_shard: {self.name} cannot be copied or pickled, for each rank has a part of "
            "it; copy it before sharding, or take distarray.torch.module_state(module)"
        )

    # -- moving -------------------------------------------------------------------------------

    def gather(self) -> list[Tensor]:
        """All parameters whole, in the entries' order; collective."""
        if config.settings.check:
            verify_among(self.group, f"fully_shard: parameters of {self.name}")
        whole: list[Tensor] = [None] * len(self.entries)
        with torch.no_grad():
            for pack in self.packs:
                for place, tensor in zip(pack, self._gather(pack)):
                    whole[place] = tensor.view(self.entries[place].shape)
        return whole

    def _gather(self, pack: Sequence[int]) -> list[Tensor]:
        entries = [self.entries[place] for place in pack]
        rank, size = self.group.rank, self.group.size
        mine = [entry.contribution(rank) for entry in entries]
        counts = [sum([entry.counts[r] for entry in entries]) for r in range(size)]
        flat = mine[0] if len(mine) == 1 else torch.cat(mine)
        whole = talk.gathered(flat, self.group, 0, tuple(counts))
        if len(entries) == 1:
            return [whole]
        parts = whole.split([entry.counts[r] for r in range(size) for entry in entries])
        return [torch.cat(parts[i :: len(entries)]) for i in range(len(entries))]

    def again(self) -> list[Tensor]:
        """All parameters whole, until their gradients are there; collective the first time."""
        if self.whole is None:
            whole = self.gather()
            if not in_backward():
                return whole
            self.whole = whole
            at_end_of_backward(self.release)
        return self.whole

    def release(self) -> None:
        """Give up what was gathered for the backward pass."""
        self.whole = None

    def scatter(self, places: Sequence[int], grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Of each parameter's gradients, one a rank, the mean or sum of this rank's rows.

        None where no rank has a gradient; the small parameters' pack tells which those are, and
        goes first. Collective.
        """
        if config.settings.check:
            verify_among(self.group, f"fully_shard: gradients of {self.name}")
        have = [grad is not None for grad in grads]
        whole = {
            place: self.entries[place].zeros() if grad is None else grad
            for place, grad in zip(places, grads)
        }
        cut = [place for place in places if self.entries[place].rows]
        packs = [found for pack in self.packs if (found := [p for p in pack if p in cut])]
        parts: dict[int, Tensor] = {}
        carrier = next((pack for pack in packs if self.entries[pack[0]].is_small), None)
        if carrier is None:
            told = self.group.allreduce(np.array(have, np.uint8), Fold.MAX, "who has gradients")
        else:
            *found, told = self._scatter(carrier, whole, have)
            parts.update(zip(carrier, found))
        used = [place for place, ranks in zip(places, told.tolist()) if ranks]
        for pack in packs:
            wanted = [place for place in pack if place in used and pack is not carrier]
            if wanted:
                parts.update(zip(wanted, self._scatter(wanted, whole)))
        for place in used:
            if place not in cut:  # a number: every rank must find the same bits
                parts[place] = talk.folded(whole[place], self.group, Fold.SUM)
        return [self._finished(place, parts[place]) if place in used else None for place in places]

    def _finished(self, place: int, total: Tensor) -> Tensor:
        total = total.view(self.entries[place].parameter.shape)
        return total.div_(self.group.size) if self.mean else total

    def _scatter(
        self, pack: Sequence[int], whole: dict[int, Tensor], flags: Sequence[bool] = ()
    ) -> list[Tensor]:
        """This rank's part of the sums of a pack; and of flags, which every rank gets."""
        size = self.group.size
        counts = [self.entries[place].counts for place in pack]
        flat = [whole[place].reshape(-1) for place in pack]
        if len(pack) == 1 and not flags:
            joined = flat[0]
        else:
            pieces = [grad.split(own) for grad, own in zip(flat, counts)]
            if flags:
                counts.append((len(flags),) * size)
                pieces.append((flat[0].new_tensor(flags),) * size)
            joined = torch.cat([own[r] for r in range(size) for own in pieces])
        sizes = tuple([sum(column) for column in zip(*counts)])
        total = talk.scattered(joined, self.group, 0, sizes, Fold.SUM)
        return list(total.split([own[self.group.rank] for own in counts]))

    # -- hooks on the module ------------------------------------------------------------------

    def before_forward(self, module: Module, args: Any) -> None:
        """Gather the parameters and put them where the module looks for them."""
        use = _Use(self)
        self.open.append(use)
        use.enter()

    def after_forward(self, module: Module, args: Any, output: Any) -> None:
        """Give the gathered parameters up; also after an error."""
        if self.open:
            self.open.pop().leave()


#: Gathered parameters that a forward is using, by the address of their memory.
_in_use: dict[int, tuple["_Use", int]] = {}
_forwards = threading.local()


class _Use:
    """One forward of a unit, and the backward that may follow."""

    __slots__ = ("hooks", "keeps", "unit", "whole")

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.whole: list[Tensor] | None = None
        self.hooks: Any = None
        self.keeps = False

    def enter(self) -> None:
        """Show the unit's module its whole parameters."""
        depth = getattr(_forwards, "depth", 0)
        _forwards.depth = depth + 1
        unit = self.unit
        if unit.group.size == 1:
            seen: list[Tensor] = [entry.parameter for entry in unit.entries]
        elif in_backward():  # a checkpoint computes the forward again
            self.whole = seen = unit.again()
        else:
            self.keeps = depth == 0 if unit.keep is None else unit.keep
            self.whole = seen = unit.gather()
        if self.whole is not None and torch.is_grad_enabled():
            seen = self._attached(self.whole)
            hooks = _Notes(torch._C._autograd._top_saved_tensors_default_hooks(False))
            self.hooks = torch.autograd.graph.saved_tensors_hooks(hooks.pack, hooks.unpack)
            self.hooks.__enter__()
        for entry, tensor in zip(unit.entries, seen):
            entry.show(tensor)

    def _attached(self, whole: Sequence[Tensor]) -> list[Tensor]:
        """The gathered parameters as autograd is to see them: made of the trainable parts."""
        seen, entries = list(whole), self.unit.entries
        trained = [i for i, entry in enumerate(entries) if entry.parameter.requires_grad]
        if trained:
            parts = [entries[i].parameter for i in trained]
            for i, tensor in zip(trained, _Gathered.apply(self, trained, *parts)):
                seen[i] = tensor
        for i, tensor in enumerate(whole):
            if tensor.numel():
                _in_use[tensor.untyped_storage().data_ptr()] = self, i
        return seen

    def leave(self) -> None:
        """Take them away again, unless the backward pass is to find them."""
        _forwards.depth = getattr(_forwards, "depth", 1) - 1
        for entry in self.unit.entries:
            entry.hide()
        if self.hooks is None:
            self.whole = None
            return
        self.hooks.__exit__(None, None, None)
        self.hooks = None
        for tensor in self.whole or ():
            if tensor.numel():
                _in_use.pop(tensor.untyped_storage().data_ptr(), None)
        if not self.keeps:
            self.whole = None

    def again(self, place: int) -> Tensor:
        """A gathered parameter, for the backward pass."""
        return (self.unit.again() if self.whole is None else self.whole)[place]


class _Notes:
    """What autograd keeps instead of what it saves of gathered parameters.

    Everything else is kept as the hooks around these want it, such as a checkpoint's.
    """

    __slots__ = ("outer",)

    def __init__(self, outer: Any) -> None:
        self.outer = outer

    def pack(self, tensor: Tensor) -> Any:
        """What is kept of a tensor that autograd saves."""
        if tensor.layout is torch.strided and tensor.numel():
            found = _in_use.get(tensor.untyped_storage().data_ptr())
            if found is not None:
                return _Note(*found, (tensor.shape, tensor.stride(), tensor.storage_offset()))
        return tensor if self.outer is None else self.outer[0](tensor)

    def unpack(self, kept: Any) -> Tensor:
        """The tensor of which `kept` was kept."""
        if type(kept) is _Note:
            return kept.use.again(kept.place).as_strided(*kept.strides)
        return kept if self.outer is None else self.outer[1](kept)


class _Note(NamedTuple):
    """A view of a gathered parameter that autograd will ask for."""

    use: _Use
    place: int
    strides: tuple[Any, ...]


class _Gathered(torch.autograd.Function):  # type: ignore[misc]
    """From the parts to the gathered parameters; the gradients go the other way."""

    @staticmethod
    def forward(ctx: Any, use: _Use, places: Sequence[int], *parts: Tensor) -> tuple[Tensor, ...]:
        """The gathered parameters at some places."""
        ctx.use, ctx.places = use, places
        ctx.set_materialize_grads(False)
        assert use.whole is not None
        return tuple([use.whole[place].detach() for place in places])

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """The gradients of the parts."""
        use, unit = ctx.use, ctx.use.unit
        use.whole = None
        unit.release()
        return None, None, *unit.scatter(ctx.places, grads)
