"""Parameters of which each rank holds a part, and what gathers them when they are needed.

A *unit* is a module whose parameters are gathered together: before its forward, and again before
its backward, which then leaves to each rank the gradient of its own part. Between, the gathered
parameters do not exist: what autograd wants to save of them is replaced by a note of what it was
(``torch.autograd.graph.saved_tensors_hooks``), and made again when it is asked for.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from distarray.array.divergence import verify_among
from distarray.comm.pending import FINISHED
from distarray.config import config
from distarray.layout.placement import Fold
from distarray.torch import conversations as talk
from distarray.torch.ahead import Landing, Order, landed, under_way
from distarray.torch.entries import Entry, packed
from distarray.torch.notes import Notes, in_use
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


def _compiled() -> bool:
    """Whether ``torch.compile`` watches the frames that run now."""
    if torch.compiler.is_compiling():
        return True  # while it looks at this very function, the rest of which it cannot read
    if "torch._dynamo" not in sys.modules:
        return False
    asked = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None)
    return asked() not in (None, False)


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
    ahead : bool
        Whether it is gathered ahead of time, and its gradients travel while the pass goes on.

    Attributes
    ----------
    root : Unit
        The outermost unit of the forward that this one took part in last.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        group: Group,
        name: str,
        mean: bool,
        keep: bool | None,
        ahead: bool,
    ) -> None:
        self.entries = list(entries)
        self.group, self.name, self.mean, self.keep = group, name, mean, keep
        self.ahead = ahead
        self.packs = packed(self.entries)
        self.open: list[_Use] = []
        self.whole: list[Tensor] | None = None
        self.root: Unit = self
        # Of a root: how its units are gathered, and the gradients that were sent last.
        self.forwards, self.backwards = Order(), Order()
        self.sent: Landing | None = None
        self.landings: list[_Place] = []
        self._coming: list[talk.Coming] = []
        self._useless: list[talk.Coming] = []
        self._versions: list[int] = []

    def __reduce__(self) -> Any:
        raise TypeError(
            f"fully_shard: {self.name} cannot be copied or pickled, for each rank has a part of "
            "it; copy it before sharding, or take distarray.torch.module_state(module)"
        )

    # -- moving -------------------------------------------------------------------------------

    def gather(self) -> list[Tensor]:
        """All parameters whole, in the entries' order; collective."""
        whole: list[Tensor] = [None] * len(self.entries)
        with torch.no_grad():
            coming = self._begun()
            if not coming:
                self._compare("parameters")
            for number, pack in enumerate(self.packs):
                if coming:
                    flat = coming[number].wait()
                else:
                    flat, counts = self._contribution(pack)
                    flat = talk.gathered(flat, self.group, 0, counts)
                for place, tensor in zip(pack, self._parted(pack, flat)):
                    whole[place] = tensor.view(self.entries[place].shape)
        return whole

    def begin(self) -> None:
        """Begin to gather for the next use; collective."""
        if not self.ahead or self._coming or self.whole is not None:
            return
        self._compare("parameters, ahead")
        self._versions = [entry.parameter._version for entry in self.entries]
        with torch.no_grad():
            for pack in self.packs:
                flat, counts = self._contribution(pack)
                self._coming.append(under_way(talk.begin_gather(flat, self.group, counts)))

    def _begun(self) -> list[talk.Coming]:
        """What has been begun and is still right; empty if there is nothing."""
        if self._coming and self._versions != [e.parameter._version for e in self.entries]:
            self.forgo()
        while self._useless:
            self._useless.pop().wait()
        coming, self._coming = self._coming, []
        return coming

    def forgo(self) -> None:
        """What has been begun will not be used."""
        self._useless += self._coming
        self._coming = []

    def _compare(self, what: str) -> None:
        if config.settings.check:
            verify_among(self.group, f"fully_shard: {what} of {self.name}")

    def _contribution(self, pack: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
        """What this rank brings of some entries, flat, and how much every rank brings."""
        entries = [self.entries[place] for place in pack]
        mine = [entry.contribution(self.group.rank) for entry in entries]
        counts = [sum([entry.counts[r] for entry in entries]) for r in range(self.group.size)]
        return mine[0] if len(mine) == 1 else torch.cat(mine), tuple(counts)

    def _parted(self, pack: Sequence[int], whole: Tensor) -> list[Tensor]:
        """What all ranks brought of some entries, entry by entry."""
        entries = [self.entries[place] for place in pack]
        if len(entries) == 1:
            return [whole]
        size = self.group.size
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
            order = self.root.backwards
            if not order.seen:
                at_end_of_backward(order.finish)
            order.step(self)
        return self.whole

    def release(self) -> None:
        """Give up what was gathered for the backward pass."""
        self.whole = None

    def scatter(
        self, places: Sequence[int], grads: Sequence[Tensor | None]
    ) -> Callable[[], list[Tensor | None]]:
        """Begin to make of each parameter's gradients, one a rank, the mean or sum of its rows.

        Collective, and so is what it returns: a function that waits for them. None stands for
        those of which no rank has a gradient; the small parameters' pack tells which those are.
        """
        self._compare("gradients")
        have = [grad is not None for grad in grads]
        whole = {
            place: self.entries[place].zeros() if grad is None else grad
            for place, grad in zip(places, grads)
        }
        cut = [place for place in places if self.entries[place].rows]
        packs = [found for pack in self.packs if (found := [p for p in pack if p in cut])]
        carrier = next((pack for pack in packs if self.entries[pack[0]].is_small), None)
        told: Any = None
        if carrier is None:
            told = self.group.allreduce(np.array(have, np.uint8), Fold.MAX, "who has gradients")
            packs = [[p for p in pack if told[places.index(p)]] for pack in packs]
        coming = [
            (pack, self._scatter(pack, whole, have if pack is carrier else ()))
            for pack in packs
            if pack
        ]
        # Numbers: every rank must find the same bits.
        numbers = {
            place: talk.folded(whole[place], self.group, Fold.SUM)
            for place in places
            if place not in cut
        }

        def finish() -> list[Tensor | None]:
            parts, used = dict(numbers), told
            for pack, later in coming:
                found = self._split(pack, later.wait(), len(have) if pack is carrier else 0)
                parts.update(zip(pack, found))
                used = found[-1] if pack is carrier else used
            return [
                self._finished(place, parts[place]) if ranks else None
                for place, ranks in zip(places, used.tolist())
            ]

        return finish

    def _finished(self, place: int, total: Tensor) -> Tensor:
        total = total.view(self.entries[place].parameter.shape)
        return total.div_(self.group.size) if self.mean else total

    def _scatter(
        self, pack: Sequence[int], whole: dict[int, Tensor], flags: Sequence[bool] = ()
    ) -> talk.Coming:
        """Begin to sum a pack's gradients, each rank its part; and flags, which every rank gets."""
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
        if not self.ahead:
            total = talk.scattered(joined, self.group, 0, sizes, Fold.SUM)
            return talk.Coming(FINISHED, lambda: total)
        return under_way(talk.begin_scatter(joined, self.group, sizes, Fold.SUM))

    def _split(self, pack: Sequence[int], total: Tensor, flags: int) -> list[Tensor]:
        """This rank's part of a pack, entry by entry, and the flags."""
        rank = self.group.rank
        return list(total.split([*[self.entries[p].counts[rank] for p in pack], flags]))

    # -- passes -------------------------------------------------------------------------------

    def pass_begins(self) -> None:
        """The forward of a root: where it will be used, gradients get a place to land."""
        self.backwards.seen = []  # of a pass that ended in an error
        if torch.is_grad_enabled():
            for unit in self.forwards.expected:
                unit.landings.append(unit.landing())

    def pass_ends(self) -> None:
        """The forward of a root is over."""
        for unit in self.forwards.expected:
            unit.landings.clear()
        self.forwards.finish()

    def landing(self) -> "_Place":
        """The trainable parts, and a place where their gradients land."""
        trained = [i for i, entry in enumerate(self.entries) if entry.parameter.requires_grad]
        parts = [self.entries[i].parameter for i in trained]
        if not self.ahead or not trained:
            return _Place(None, trained, parts)
        place = Landing()
        return _Place(place, trained, landed(place, parts))

    # -- hooks on the module ------------------------------------------------------------------

    def before_forward(self, module: Module, args: Any) -> None:
        """Gather the parameters and put them where the module looks for them."""
        if _compiled():
            raise RuntimeError(
                f"fully_shard: {self.name} cannot be compiled, for its parameters come and go: "
                "compile the parts of it that have none, or replicate them (data_parallel)"
            )
        use = _Use(self)
        self.open.append(use)
        use.enter()

    def after_forward(self, module: Module, args: Any, output: Any) -> None:
        """Give the gathered parameters up; also after an error."""
        if self.open:
            self.open.pop().leave()


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
            if depth == 0:
                _forwards.root = unit
                unit.pass_begins()
            unit.root = getattr(_forwards, "root", unit)
            self.keeps = depth == 0 if unit.keep is None else unit.keep
            self.whole = seen = unit.gather()
            unit.root.forwards.step(unit)
        if self.whole is not None and torch.is_grad_enabled():
            seen = self._attached(self.whole)
            hooks = Notes(torch._C._autograd._top_saved_tensors_default_hooks(False))
            self.hooks = torch.autograd.graph.saved_tensors_hooks(hooks.pack, hooks.unpack)
            self.hooks.__enter__()
        for entry, tensor in zip(unit.entries, seen):
            entry.show(tensor)

    def _attached(self, whole: Sequence[Tensor]) -> list[Tensor]:
        """The gathered parameters as autograd is to see them: made of the trainable parts."""
        seen, unit = list(whole), self.unit
        place = unit.landings.pop(0) if unit.landings else unit.landing()
        if place.places != [i for i, e in enumerate(unit.entries) if e.parameter.requires_grad]:
            place = unit.landing()  # some were frozen or thawed since
        if place.places:
            found = _Gathered.apply(self, place.landing, place.places, *place.parts)
            for i, tensor in zip(place.places, found):
                seen[i] = tensor
        for i, tensor in enumerate(whole):
            if tensor.numel():
                in_use[tensor.untyped_storage().data_ptr()] = self, i
        return seen

    def leave(self) -> None:
        """Take them away again, unless the backward pass is to find them."""
        depth = _forwards.depth = getattr(_forwards, "depth", 1) - 1
        if depth == 0 and not in_backward():
            self.unit.pass_ends()
        for entry in self.unit.entries:
            entry.hide()
        if self.hooks is None:
            self.whole = None
            return
        self.hooks.__exit__(None, None, None)
        self.hooks = None
        for tensor in self.whole or ():
            if tensor.numel():
                in_use.pop(tensor.untyped_storage().data_ptr(), None)
        if not self.keeps:
            self.whole = None

    def again(self, place: int) -> Tensor:
        """A gathered parameter, for the backward pass."""
        return (self.unit.again() if self.whole is None else self.whole)[place]


class _Place(NamedTuple):
    """The trainable ones of a unit's entries, what stands for their parts, where they land."""

    landing: Landing | None
    places: list[int]
    parts: Sequence[Tensor]


class _Gathered(torch.autograd.Function):  # type: ignore[misc]
    """From the parts to the gathered parameters; the gradients go the other way."""

    @staticmethod
    def forward(
        ctx: Any, use: _Use, landing: Landing | None, places: Sequence[int], *parts: Tensor
    ) -> tuple[Tensor, ...]:
        """The gathered parameters at some places."""
        ctx.use, ctx.landing, ctx.places = use, landing, places
        ctx.set_materialize_grads(False)
        assert use.whole is not None
        return tuple([use.whole[place].detach() for place in places])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """The gradients of the parts, or that they are on their way."""
        landing, root = ctx.landing, ctx.use.unit.root
        if landing is None or torch.is_grad_enabled():  # which second gradients want
            found: tuple[Any, ...] = _sent_at_once(ctx, *grads)
            return found
        landing.begin(_sent(ctx, grads))
        if root.sent is not None:
            root.sent.settle()  # no more than two are on their way
        root.sent = landing
        return None, None, None, *(None,) * len(grads)


def _sent(ctx: Any, grads: Sequence[Tensor | None]) -> Callable[[], list[Tensor | None]]:
    """Begin to send gradients to the ranks that own them; what waits for this rank's."""
    use, unit = ctx.use, ctx.use.unit
    use.whole = None
    unit.release()
    found: Callable[[], list[Tensor | None]] = unit.scatter(ctx.places, grads)
    return found


@torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
def _sent_at_once(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
    return None, None, None, *_sent(ctx, grads)()
