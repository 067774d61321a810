"""Units: sets of parameters that are divided among the ranks and gathered together.

A *unit* is a module whose parameters are gathered together: before its forward, and again before
its backward, which leaves each rank the gradient of its own part. In between, the gathered
parameters do not exist. Notes replace the tensors that autograd would save of them
(:mod:`distarray.torch.sharded.notes`), and the parameters are gathered again when needed. One
forward and its backward are in :mod:`distarray.torch.sharded.uses`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from distarray.array.divergence import verify_among
from distarray.comm.group import Group
from distarray.comm.pending import FINISHED
from distarray.config import config
from distarray.layout.placement import Fold
from distarray.torch.bridge.plain import plainly
from distarray.torch.collectives import conversations as talk
from distarray.torch.collectives.passes import at_end_of_backward, compiled, in_backward, tensors_in
from distarray.torch.parameters.buffers import Buffers
from distarray.torch.sharded.ahead import Landing, Order, landed, under_way
from distarray.torch.sharded.entries import Entry, packed
from distarray.torch.sharded.repeats import Repeats
from distarray.torch.sharded.uses import Place, Use

__all__ = ["Unit"]


class Unit:
    """A module's parameters that are gathered and freed together.

    Parameters
    ----------
    entries : sequence of Entry
    group : Group
        The ranks that hold the parts.
    name : str
        Name of the module, for messages.
    mean : bool
        True if gradients are averaged, False if they are summed.
    keep : bool or None
        True if gathered parameters are kept from forward to backward. None: only if no other
        unit's forward is in progress.
    ahead : bool
        True if the unit is gathered ahead of time, and its gradients are sent during the pass.

    Attributes
    ----------
    root : Unit
        The outermost unit of the last forward that included this one.
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
        self.open: list[Use] = []
        self.whole: list[Tensor] | None = None
        self.root: Unit = self
        # Of a root: the order in which its units are gathered, and the gradients sent last.
        self.forwards, self.backwards = Order(), Order()
        self.sent: Landing | None = None
        self.landings: list[Place] = []
        self._coming: list[talk.Coming] = []
        self._useless: list[talk.Coming] = []
        self._versions: list[int] = []
        self.buffers: Buffers | None = None
        self.repeats = Repeats(self)
        self.watched = False

    def __deepcopy__(self, memo: dict[int, Any]) -> "Unit":
        """Return the unit for a copy of the module, which is still incomplete."""
        if self.open:
            raise RuntimeError(f"fully_shard: {self.name} cannot be copied within its forward")
        entries = [entry.copied(memo) for entry in self.entries]
        return Unit(entries, self.group, self.name, self.mean, self.keep, self.ahead)

    def __reduce__(self) -> Any:
        raise TypeError(
            f"fully_shard: {self.name} cannot be pickled, for each rank has a part of it; save "
            "model.state_dict(), or take distarray.torch.module_state(module)"
        )

    # -- transfers ----------------------------------------------------------------------------

    def gather(self) -> list[Tensor]:
        """Gather all parameters, in the entries' order; collective."""
        whole: list[Tensor] = [None] * len(self.entries)
        with torch.no_grad(), plainly():
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
        with torch.no_grad(), plainly():
            self._versions = [entry.parameter._version for entry in self.entries]
            for pack in self.packs:
                flat, counts = self._contribution(pack)
                self._coming.append(under_way(talk.begin_gather(flat, self.group, counts)))

    def _begun(self) -> list[talk.Coming]:
        """Return the gather that has begun if it is still valid, else an empty list."""
        if self._coming and self._versions != [e.parameter._version for e in self.entries]:
            self.forgo()
        while self._useless:
            self._useless.pop().wait()
        coming, self._coming = self._coming, []
        return coming

    def forgo(self) -> None:
        """Discard the gather that has begun."""
        self._useless += self._coming
        self._coming = []

    def _compare(self, what: str) -> None:
        if config.settings.check:
            verify_among(self.group, f"fully_shard: {what} of {self.name}")

    def _contribution(self, pack: Sequence[int]) -> tuple[Tensor, tuple[int, ...]]:
        """Return this rank's parts of some entries, flat, and the number of elements per rank."""
        entries = [self.entries[place] for place in pack]
        mine = [entry.contribution(self.group.rank) for entry in entries]
        counts = [sum([entry.counts[r] for entry in entries]) for r in range(self.group.size)]
        return mine[0] if len(mine) == 1 else torch.cat(mine), tuple(counts)

    def _parted(self, pack: Sequence[int], whole: Tensor) -> list[Tensor]:
        """Split the gathered parts by entry."""
        entries = [self.entries[place] for place in pack]
        if len(entries) == 1:
            return [whole]
        size = self.group.size
        parts = whole.split([entry.counts[r] for r in range(size) for entry in entries])
        return [torch.cat(parts[i :: len(entries)]) for i in range(len(entries))]

    def again(self) -> list[Tensor]:
        """Return all parameters whole, kept until their gradients exist; first call collective."""
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
        """Free the parameters that were gathered for the backward pass."""
        self.whole = None

    def scatter(
        self, places: Sequence[int], grads: Sequence[Tensor | None]
    ) -> Callable[[], list[Tensor | None]]:
        """Begin to reduce gradients of whole parameters to the mean or sum of this rank's rows.

        Collective, as is the returned function, which waits for the results. A result is None if
        no rank has a gradient. The flags for this are sent with the pack of small parameters.
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
        # 0-d parameters: every rank must get the same bits.
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

    def gathered(self, places: Sequence[int], parts: Sequence[Tensor | None]) -> list[Tensor]:
        """Gather tensors whose rows are divided as those of some parameters; collective."""
        found = []
        for place, part in zip(places, parts, strict=True):
            entry = self.entries[place]
            if part is None:
                found.append(entry.zeros())
            elif entry.rows:
                flat = talk.gathered(part.reshape(-1), self.group, 0, entry.counts)
                found.append(flat.view(entry.shape))
            else:
                found.append(part)
        return found

    def _finished(self, place: int, total: Tensor) -> Tensor:
        total = total.view(self.entries[place].part_shape)
        return total.div_(self.group.size) if self.mean else total

    def _scatter(
        self, pack: Sequence[int], whole: dict[int, Tensor], flags: Sequence[bool] = ()
    ) -> talk.Coming:
        """Begin to sum a pack's gradients, each rank its rows, and `flags`, which all ranks get."""
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
        """Split this rank's result for a pack by entry, with the flags last."""
        rank = self.group.rank
        return list(total.split([*[self.entries[p].counts[rank] for p in pack], flags]))

    # -- passes -------------------------------------------------------------------------------

    def pass_begins(self) -> None:
        """Make landings for the gradients of a root's units, at the start of its forward."""
        self.backwards.seen = []  # from a pass that ended in an error
        if torch.is_grad_enabled():
            for unit in self.forwards.expected:
                unit.landings.append(unit.landing())

    def pass_ends(self) -> None:
        """Drop unused landings and update the order, at the end of a root's forward."""
        for unit in self.forwards.expected:
            unit.landings.clear()
        self.forwards.finish()

    def landing(self) -> "Place":
        """Return the trainable parts, with a landing for their gradients."""
        trained = [i for i, entry in enumerate(self.entries) if entry.parameter.requires_grad]
        parts = [self.entries[i].parameter for i in trained]
        if not self.ahead or not trained:
            return Place(None, trained, parts)
        place = Landing()
        return Place(place, trained, landed(place, parts))

    # -- hooks on the module ------------------------------------------------------------------

    def before_forward(self, module: Module, args: tuple[Any, ...]) -> None:
        """Gather the parameters and set them where the module looks for them."""
        if compiled():
            raise RuntimeError(
                f"fully_shard: {self.name} cannot be compiled, for its parameters come and go: "
                "compile the parts of it that have none, or replicate them (data_parallel)"
            )
        if self.buffers is not None and not in_backward():
            self.buffers.equalize()
        if not self.watched:
            self._watch(module)
        for entry in self.entries:
            entry.check_owners()
        use = Use(self)
        self.open.append(use)
        use.enter()

    def _watch(self, module: Module) -> None:
        """Watch parameters and buffers, from the first forward on, when the module is complete."""
        self.watched = True
        if self.group.size > 1:
            self.repeats.watch()
        if self.buffers is None:
            self.buffers = Buffers(module, self.group, every=False)

    def after_forward(self, module: Module, args: tuple[Any, ...], output: Any) -> None:
        """Free the gathered parameters; also after an error."""
        if not self.open:
            return
        use = self.open.pop()
        use.leave()
        if self.buffers is not None and not in_backward():
            self.buffers.forward_ends()
        if torch.is_grad_enabled():
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(partial(self.repeats.begin, use))
