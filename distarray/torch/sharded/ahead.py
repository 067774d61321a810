"""Communication that overlaps with the computation of a sharded model.

Units are mostly used in the same order in every pass. While a unit computes, this module gathers
the parameters of the unit that came next in the last pass, and sends gradients to the ranks that
own them. MPI progresses only inside its calls, so the hooks on the tensors that autograd saves call
`poke`.
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
    """Register a transfer that has begun, so that `poke` progresses it, and return it."""
    if not hasattr(_talking, "list"):
        _talking.list = []
    _talking.list.append(coming)
    return coming


def poke() -> None:
    """Let the transfers of this thread progress, without waiting."""
    talking = getattr(_talking, "list", None)
    if talking:
        _talking.list = [coming for coming in talking if not coming.poke()]


class Order:
    """Order in which units are gathered in a pass; expected to be that of the last pass."""

    __slots__ = ("expected", "seen")

    def __init__(self) -> None:
        self.expected: list[Unit] = []
        self.seen: list[Unit] = []

    def step(self, unit: "Unit") -> None:
        """Record that a unit was gathered, and begin to gather the unit expected next."""
        count = len(self.seen)
        self.seen.append(unit)
        if count + 1 < len(self.expected) and self.expected[count] is unit:
            self.expected[count + 1].begin()

    def finish(self) -> None:
        """End the pass: its order is expected for the next pass."""
        for unit in self.expected:
            unit.forgo()  # gathered ahead but not used: the optimizer will change the parameters
        self.expected, self.seen = self.seen, []


class Landing:
    """Gradients of a unit's parts, from the end of its backward until autograd takes them."""

    __slots__ = ("_finish", "_parts")

    def __init__(self) -> None:
        self._finish: Callable[[], list[Tensor | None]] | None = None
        self._parts: list[Tensor | None] = []

    def begin(self, finish: Callable[[], list[Tensor | None]]) -> None:
        """Record that the gradients are being received; `finish` waits for them."""
        self._finish = finish

    def settle(self) -> None:
        """Wait for the gradients, if a transfer has begun."""
        if self._finish is not None:
            self._parts, self._finish = self._finish(), None

    def take(self) -> list[Tensor | None]:
        """Wait for the gradients and return them; an empty list if no transfer has begun."""
        self.settle()
        parts, self._parts = self._parts, []
        return parts


class _Landed(Differentiable):
    """Identity on the parts whose gradients are taken from a `Landing`.

    Autograd runs backward through the newest nodes first. This node is made before all others of a
    pass and therefore runs last, which leaves the gradients the most time to arrive.
    """

    @staticmethod
    def forward(ctx: FunctionCtx, landing: Landing, *parts: Tensor) -> tuple[Tensor, ...]:
        """Return the parts, detached."""
        ctx.landing = landing
        ctx.set_materialize_grads(False)
        return tuple([part.detach() for part in parts])  # no views: values may be assigned

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Tensor | None) -> tuple[Any, ...]:
        """Wait for the gradients of the landing and return them; if none, return autograd's."""
        return None, *(ctx.landing.take() or grads)


def landed(landing: Landing, parts: list[Tensor]) -> tuple[Tensor, ...]:
    """Return parts whose gradients will be taken from a landing."""
    found: tuple[Tensor, ...] = _Landed.apply(landing, *parts)
    return found
