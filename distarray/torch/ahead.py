"""What a sharded model does ahead of time: parts on their way while it computes.

Units are used in the same order in every pass, mostly. So while one computes, the parameters of
the one that came after it last time are gathered already, and gradients are on their way to the
ranks that own them while the next unit finds its own. MPI goes on only when it is asked, which the
hooks on what autograd saves do.
"""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from distarray.torch.conversations import Coming

if TYPE_CHECKING:
    from distarray.torch.units import Unit

__all__ = ["Landing", "Order", "landed", "poke", "under_way"]


_talking = threading.local()


def under_way(coming: Coming) -> Coming:
    """Note what has been begun, so that `poke` lets it go on."""
    if not hasattr(_talking, "list"):
        _talking.list = []
    _talking.list.append(coming)
    return coming


def poke() -> None:
    """Let what is under way in this thread go on, without waiting."""
    talking = getattr(_talking, "list", None)
    if talking:
        _talking.list = [coming for coming in talking if not coming.poke()]


class Order:
    """In which order units are gathered in a pass; as it was last time it is expected to be."""

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
        """They are on their way; `finish` waits for them."""
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


class _Landed(torch.autograd.Function):  # type: ignore[misc]
    """The parts themselves; their gradients are those that a landing has.

    Autograd goes backward through what was made last first. Made before all else of a pass, this
    is gone through at its end: until then the gradients have time to arrive.
    """

    @staticmethod
    def forward(ctx: Any, landing: Landing, *parts: Tensor) -> tuple[Tensor, ...]:
        """The parts."""
        ctx.landing = landing
        ctx.set_materialize_grads(False)
        return tuple([part.detach() for part in parts])  # no views: values may be assigned

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        """The gradients, waited for; those that came this way are there already."""
        return None, *(ctx.landing.take() or grads)


def landed(landing: Landing, parts: list[Tensor]) -> tuple[Tensor, ...]:
    """Parts whose gradients a landing will have."""
    found: tuple[Tensor, ...] = _Landed.apply(landing, *parts)
    return found
