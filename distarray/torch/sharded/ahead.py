"""Communication that goes on while a sharded model computes.

Units are mostly used in the same order in every pass. While one computes, the parameters of the
one that followed it last time are gathered already, and gradients travel to the ranks that own
them while the next unit computes its own. MPI makes progress only when it is called: the hooks on
the tensors that autograd saves call `poke`.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd.function import FunctionCtx

from distarray.torch.bridge.transforms import Differentiable
from distarray.torch.collectives.conversations import Coming

if TYPE_CHECKING:
    from distarray.torch.sharded.units import Unit

__all__ = ["Landing", "Order", "landed", "poke", "under_way"]


_talking = threading.local()


def under_way(coming: Coming) -> Coming:
    """Note a transfer that has been begun, so that `poke` lets it go on."""
    if not hasattr(_talking, "list"):
        _talking.list = []
    _talking.list.append(coming)
    return coming


def poke() -> None:
    """Let the transfers of this thread go on, without waiting."""
    talking = getattr(_talking, "list", None)
    if talking:
        _talking.list = [coming for coming in talking if not coming.poke()]


class Order:
    """The order in which units are gathered in a pass, expected to be that of the last pass."""

    __slots__ = ("expected", "seen")

    def __init__(self) -> None:
        self.expected: list[Unit] = []
        self.seen: list[Unit] = []

    def step(self, unit: "Unit") -> None:
        """A unit was gathered: begin with the one that comes next."""
        count = len(self.seen)
        self.seen.append(unit)
        if count + 1 < len(self.expected) and self.expected[count] is unit:
            self.expected[count + 1].begin()

    def finish(self) -> None:
        """The pass is over."""
        for unit in self.expected:
            unit.forgo()  # what was begun and not used: the parameters will have changed
        self.expected, self.seen = self.seen, []


class Landing:
    """The gradients of a unit's parts, from the end of its backward until they are asked for."""

    __slots__ = ("_finish", "_parts")

    def __init__(self) -> None:
        self._finish: Callable[[], list[Tensor | None]] | None = None
        self._parts: list[Tensor | None] = []

    def begin(self, finish: Callable[[], list[Tensor | None]]) -> None:
        """Note that the gradients are on their way; `finish` waits for them."""
        self._finish = finish

    def settle(self) -> None:
        """Wait for them, if they were begun."""
        if self._finish is not None:
            self._parts, self._finish = self._finish(), None

    def take(self) -> list[Tensor | None]:
        """The gradients, once they are there; empty if none were begun."""
        self.settle()
        parts, self._parts = self._parts, []
        return parts


class _Landed(Differentiable):
    """The parts themselves; their gradients are taken from a landing.

    Autograd goes backward through the newest nodes first. This node is made before all others of a
    pass and comes last: the gradients have until then to arrive.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, landing: Landing, *parts: Tensor) -> tuple[Tensor, ...]:
        """The parts."""
        ctx.landing = landing
        ctx.set_materialize_grads(False)
        return tuple([part.detach() for part in parts])  # no views: values may be assigned

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor | None) -> tuple[Any, ...]:
        """The gradients of the landing, waited for; else those that autograd brings."""
        return None, *(ctx.landing.take() or grads)


def landed(landing: Landing, parts: list[Tensor]) -> tuple[Tensor, ...]:
    """Parts whose gradients will be taken from a landing."""
    found: tuple[Tensor, ...] = _Landed.apply(landing, *parts)
    return found
