"""Parameters of which each rank holds a part, and what gathers them when they are needed.

A *unit* is a module whose parameters are gathered together: before its forward, and again before
its backward, which then leaves to each rank the gradient of its own part. Between, the gathered
parameters do not exist: what autograd wants to save of them is replaced by a note of what it was
(``torch.autograd.graph.saved_tensors_hooks``), and made again when it is asked for.
"""

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch

from distarray.array.divergence import verify_among
from distarray.config import config
from distarray.errors import LayoutError
from distarray.layout.placement import Fold
from distarray.torch import conversations as talk
from distarray.torch.parameters import Placed, placed_of, remember
from distarray.torch.tensor import DistTensor

__all__ = ["Entry", "Unit", "at_end_of_backward"]

Tensor = Any
Module = Any
Group = Any

#: Parameters of fewer bytes travel together.
ALONE_FROM = 1 << 16


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


class Entry:
    """One parameter of a unit.

    Parameters
    ----------
    owners : list of (Module, str)
        Where it stands; several places if modules share it.
    parameter : torch.nn.Parameter
        Whole, as yet.
    size : int
        Number of ranks.
    within : Placed or None
        How it is laid out over other mesh dimensions, for which the whole here is a part.

    Attributes
    ----------
    shape : tuple of int
        Of all the ranks' rows together.
    rows : tuple of int
        Rows of each rank; none for a parameter without dimensions, which every rank has.
    counts : tuple of int
        Elements that each rank contributes when it is gathered.
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
        self.shape = tuple(parameter.shape)
        self.rows: tuple[int, ...] = ()
        self.counts = (1,) + (0,) * (size - 1)
        if self.shape:
            # A packed weight is cut between the matrices that it packs.
            packed = 1 if within is None or within.viewed is None else within.viewed[0]
            extent, each = (packed, self.shape[0] // packed) if packed > 1 else (self.shape[0], 1)
            self.rows = tuple([n * each for n in talk.chunk_sizes(extent, size)])
            inner = prod(self.shape[1:])
            self.counts = tuple([rows * inner for rows in self.rows])

    def divide(self, rank: int, around: Placed) -> None:
        """Keep this rank's rows; `around` says how all ranks' are laid out."""
        self.around = around
        if self.rows:
            start = sum(self.rows[:rank])
            whole = self.parameter.detach()
            self.parameter.data = whole[start : start + self.rows[rank]].clone()
        for module, name in self.owners:
            remember(module, name, self.parameter, around)
            _refresh(module, name)

    def contribution(self, rank: int) -> Tensor:
        """What this rank brings when the parameter is gathered, flat."""
        part = self.parameter.detach().reshape(-1)
        if not self.rows:
            return part if rank == 0 else part[:0]
        if len(part) != self.counts[rank]:
            raise LayoutError(
                f"fully_shard: {self.owners[0][1]} has become a tensor of shape "
                f"{tuple(self.parameter.shape)}; this rank has {self.rows[rank]} of its "
                f"{sum(self.rows)} rows. Assign values in place, as in p.data.copy_(values)"
            )
        return part

    def show(self, whole: Tensor) -> None:
        """Let the modules see the gathered parameter, and how it is laid out otherwise."""
        for module, name in self.owners:
            module.__dict__[name] = whole
            if self.within is not None:
                placed_of(module)[name] = self.within
            _refresh(module, name)

    def hide(self) -> None:
        """Let the modules see the part."""
        for module, name in self.owners:
            module.__dict__.pop(name, None)
            if self.around is not None:
                placed_of(module)[name] = self.around
            _refresh(module, name)


def _refresh(module: Module, name: str) -> None:
    """Recurrent modules keep a list of their parameters beside them."""
    if isinstance(module, torch.nn.RNNBase) and name in module._flat_weights_names:
        place = module._flat_weights_names.index(name)
        module._flat_weights[place] = getattr(module, name)


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
        self.packs = _packed(self.entries)
        self.open: list[_Use] = []

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

    def scatter(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """Of each parameter's gradients, one a rank, the mean or sum of this rank's rows.

        None where no rank has a gradient. Collective.
        """
        if config.settings.check:
            verify_among(self.group, f"fully_shard: gradients of {self.name}")
        have = np.array([grad is not None for grad in grads], np.uint8)
        have = self.group.allreduce(have, Fold.MAX, f"gradients of {self.name}")
        parts: list[Tensor | None] = [None] * len(grads)
        for pack in self.packs:
            wanted = [place for place in pack if have[place] and self.entries[place].rows]
            for place, part in zip(wanted, self._scatter(wanted, grads) if wanted else ()):
                parts[place] = part.view(self.entries[place].parameter.shape)
        for place, entry in enumerate(self.entries):
            if have[place] and not entry.rows:
                # Not scattered: every rank must find the same bits.
                own = self._gradient(place, grads)
                parts[place] = self._scaled(talk.folded(own, self.group, Fold.SUM))
        return parts

    def _gradient(self, place: int, grads: Sequence[Tensor | None]) -> Tensor:
        entry, grad = self.entries[place], grads[place]
        return entry.parameter.new_zeros(entry.shape) if grad is None else grad

    def _scaled(self, total: Tensor) -> Tensor:
        return total.div_(self.group.size) if self.mean else total

    def _scatter(self, pack: Sequence[int], grads: Sequence[Tensor | None]) -> list[Tensor]:
        size = self.group.size
        counts = [self.entries[place].counts for place in pack]
        flat = [self._gradient(place, grads).reshape(-1) for place in pack]
        lengths = [own[self.group.rank] for own in counts]
        if len(pack) == 1:
            joined = flat[0]
        else:
            pieces = [grad.split(own) for grad, own in zip(flat, counts)]
            joined = torch.cat([own[r] for r in range(size) for own in pieces])
        sizes = tuple([sum(column) for column in zip(*counts)])
        total = talk.scattered(joined, self.group, 0, sizes, Fold.SUM)
        return list(self._scaled(total).split(lengths))

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


def _packed(entries: Sequence[Entry]) -> list[list[int]]:
    """Which entries travel together: large ones alone, small ones by dtype and device."""
    packs: list[list[int]] = []
    small: dict[Any, list[int]] = {}
    for place, entry in enumerate(entries):
        part = entry.parameter
        if sum(entry.counts) * part.element_size() >= ALONE_FROM:
            packs.append([place])
        else:
            kind = part.dtype, part.device
            if kind not in small:
                packs.append(small.setdefault(kind, []))
            small[kind].append(place)
    return packs


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
        depth = getattr(_forwards, "depth", 0)
        _forwards.depth = depth + 1
        unit = self.unit
        self.keeps = depth == 0 if unit.keep is None else unit.keep
        if unit.group.size == 1:
            seen: list[Tensor] = [entry.parameter for entry in unit.entries]
        else:
            self.whole = seen = unit.gather()
        if self.whole is not None and torch.is_grad_enabled():
            trained = [i for i, entry in enumerate(unit.entries) if entry.parameter.requires_grad]
            if trained:
                parts = [unit.entries[i].parameter for i in trained]
                seen = list(seen)
                for i, tensor in zip(trained, _Gathered.apply(self, trained, *parts)):
                    seen[i] = tensor
            for i, tensor in enumerate(seen):
                if tensor.numel():
                    _in_use[tensor.untyped_storage().data_ptr()] = self, i
            self.hooks = torch.autograd.graph.saved_tensors_hooks(_note, _made_again)
            self.hooks.__enter__()
        for entry, tensor in zip(unit.entries, seen):
            entry.show(tensor)

    def leave(self) -> None:
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
        if self.whole is None:
            self.whole = self.unit.gather()
            if in_backward():
                at_end_of_backward(self.release)
        return self.whole[place]

    def release(self) -> None:
        self.whole = None


def _note(tensor: Tensor) -> Any:
    """What autograd keeps instead of a tensor that it saves."""
    if tensor.layout is not torch.strided or not tensor.numel():
        return tensor
    found = _in_use.get(tensor.untyped_storage().data_ptr())
    if found is None:
        return tensor
    return *found, tensor.shape, tensor.stride(), tensor.storage_offset()


def _made_again(note: Any) -> Tensor:
    if isinstance(note, torch.Tensor):
        return note
    use, place, shape, stride, offset = note
    return use.again(place).as_strided(shape, stride, offset)


class _Gathered(torch.autograd.Function):  # type: ignore[misc]
    """From the parts to the gathered parameters; the gradients go the other way."""

    @staticmethod
    def forward(ctx: Any, use: _Use, places: Sequence[int], *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.use, ctx.places = use, places
        ctx.set_materialize_grads(False)
        assert use.whole is not None
        return tuple([use.whole[place] for place in places])

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        use, unit = ctx.use, ctx.use.unit
        everywhere: list[Tensor | None] = [None] * len(unit.entries)
        for place, grad in zip(ctx.places, grads):
            everywhere[place] = grad
        use.release()
        parts = unit.scatter(everywhere)
        return None, None, *[parts[place] for place in ctx.places]
