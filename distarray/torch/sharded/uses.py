"""One forward of a unit of a sharded model, and the backward pass that follows.

In forward the unit's modules use the gathered parameters. In backward autograd gets them through
the notes that it saved (:mod:`distarray.torch.sharded.notes`), and so do repeated forwards
(:mod:`distarray.torch.sharded.repeats`).
"""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from distarray.torch.bridge.plain import plainly
from distarray.torch.bridge.transforms import Differentiable
from distarray.torch.collectives.passes import in_backward
from distarray.torch.sharded.ahead import Landing
from distarray.torch.sharded.notes import Notes, in_use

if TYPE_CHECKING:
    from distarray.torch.sharded.units import Unit

__all__ = ["Place", "Use"]


_forwards = threading.local()


class Use:
    """One forward of a unit, and the backward that may follow."""

    __slots__ = ("hooks", "keeps", "parameters", "unit", "whole")

    def __init__(self, unit: "Unit") -> None:
        self.unit = unit
        self.whole: list[Tensor] | None = None
        self.hooks: Any = None
        self.keeps = False
        self.parameters = [entry.parameter for entry in unit.entries]

    def enter(self) -> None:
        """Set the whole parameters on the unit's modules."""
        with plainly():
            self._enter()

    def _enter(self) -> None:
        depth = getattr(_forwards, "depth", 0)
        _forwards.depth = depth + 1
        unit = self.unit
        if unit.group.size == 1:
            seen: list[Tensor] = [entry.parameter for entry in unit.entries]
        elif in_backward():  # a checkpoint repeats the forward
            self.whole = seen = unit.again()
        else:
            unit.repeats.forget()
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
        """Return the gathered parameters; autograd sees them as computed from the parts."""
        seen, unit = list(whole), self.unit
        place = unit.landings.pop(0) if unit.landings else unit.landing()
        if place.places != [i for i, e in enumerate(unit.entries) if e.parameter.requires_grad]:
            place = unit.landing()  # requires_grad of some parameters has changed since
        if place.places:
            found = _Gathered.apply(self, place.landing, place.places, *place.parts)
            for i, tensor in zip(place.places, found):
                seen[i] = tensor
        for i, tensor in enumerate(whole):
            if tensor.numel():
                in_use[tensor.untyped_storage().data_ptr()] = self, i
        return seen

    def leave(self) -> None:
        """Remove the whole parameters; keep their memory only if the backward pass will use it."""
        depth = _forwards.depth = getattr(_forwards, "depth", 1) - 1
        if depth == 0 and not in_backward():
            self.unit.pass_ends()
        repeated = in_backward() and bool(self.unit.repeats.uses)
        for entry in self.unit.entries:
            entry.hide(repeated)
        if self.hooks is None:
            self.whole = None
            return
        self.hooks.__exit__(None, None, None)
        self.hooks = None
        with plainly():
            for tensor in self.whole or ():
                if tensor.numel():
                    in_use.pop(tensor.untyped_storage().data_ptr(), None)
        if not self.keeps:
            self.whole = None

    def again(self, place: int) -> Tensor:
        """Return a gathered parameter, for the backward pass."""
        if in_backward():
            self.unit.repeats.begin(self)
        if self.whole is None and any(
            entry.parameter is not used
            for entry, used in zip(self.unit.entries, self.parameters, strict=True)
        ):
            raise RuntimeError(
                f"fully_shard: parameters of {self.unit.name} were replaced between its forward "
                "and the backward pass that needs them"
            )
        return (self.unit.again() if self.whole is None else self.whole)[place]


class Place(NamedTuple):
    """Trainable entries of a unit, their parts in the graph, and the landing of their gradients."""

    landing: Landing | None
    places: list[int]
    parts: Sequence[Tensor]


class _Gathered(Differentiable):
    """Map from the parts to the gathered parameters; in backward, gradients in reverse."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, use: Use, landing: Landing | None, places: Sequence[int], *parts: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the gathered parameters at some indices."""
        ctx.use, ctx.landing, ctx.places = use, landing, places
        ctx.set_materialize_grads(False)
        assert use.whole is not None
        return tuple([use.whole[place].detach() for place in places])

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the parts; None for those still being received."""
        landing, root = ctx.landing, ctx.use.unit.root
        if torch.is_grad_enabled():  # second derivatives need the gradients at once
            return None, None, None, *_Scattered.apply(ctx.use, ctx.places, *grads)
        sent = _sent(ctx.use, ctx.places, grads)
        if landing is None:
            return None, None, None, *sent()
        landing.begin(sent)
        if root.sent is not None:
            root.sent.settle()  # at most two transfers are in progress
        root.sent = landing
        return None, None, None, *(None,) * len(grads)


def _sent(
    use: Use, places: Sequence[int], grads: Sequence[Tensor | None]
) -> Callable[[], list[Tensor | None]]:
    """Begin to send gradients to their owners; return a function that waits for this rank's."""
    unit = use.unit
    grads = unit.repeats.taken(places, grads)
    use.whole = None
    unit.release()
    return unit.scatter(places, grads)


class _Scattered(Differentiable):
    """Map from gradients of the gathered parameters to gradients of the parts; differentiable once.

    The backward pass of the forward that produced the gradients follows, and sums or averages over
    the ranks. So here each rank gets the derivative with respect to the sum or mean, unchanged.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, use: Use, places: Sequence[int], *grads: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Return this rank's gradients; None where no rank has one."""
        ctx.use, ctx.places = use, places
        ctx.have = [grad is not None for grad in grads]
        return tuple(_sent(use, places, grads)())

    @staticmethod
    def backward(ctx: FunctionCtx, *parts: Tensor) -> tuple[Any, ...]:
        """Return the gradients with respect to those of the gathered parameters; collective."""
        if torch.is_grad_enabled():
            raise RuntimeError(
                f"fully_shard: {ctx.use.unit.name} has no third derivatives, which create_graph="
                "True asks for in the second backward pass; models of a plan, of "
                "distribute_module and of data_parallel have them"
            )
        whole = ctx.use.unit.gathered(ctx.places, parts)
        return None, None, *[x if own else None for x, own in zip(whole, ctx.have, strict=True)]
