"""Event loop of the program (`asyncio`): rank 0's clock, and its order of timers and threads.

A loop continues with the task whose timer or thread is ready first. Ranks that continue with
different tasks would make the same calls in different orders, and messages of different tasks would
be matched with each other. Once a loop waits for a file or socket, each rank has its own order: the
amount of data that arrives at once differs between ranks.
"""

import math
import selectors
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from functools import partial, update_wrapper
from threading import get_ident
from types import ModuleType
from typing import Any, Protocol

from distarray.comm.talkers import MAIN
from distarray.runner.answers import Answers
from distarray.runner.imports import when_imported
from distarray.runner.step import the_program_calls
from distarray.runner.turns import TURNS

__all__ = ["install"]

_real_select: Callable[..., Any] = selectors.DefaultSelector.select
_real_clock = time.monotonic
_real_sleep = time.sleep
#: Seconds that a rank sleeps before it checks again for a call that rank 0 has received.
_TICK = 1e-3
#: Attribute of a loop that holds its `Order`.
_ORDER = "_distarray_order"


class Loop(Protocol):
    """Attributes of an `asyncio` event loop that this module uses."""

    _ready: deque[Any]

    def is_closed(self) -> bool:
        """Return True if the loop was closed."""

    def _write_to_self(self) -> None:
        """Wake the loop."""


class Order:
    """State that the ranks agree on in a loop.

    Attributes
    ----------
    agreed : bool
        True while the ranks agree.
    calls : deque
        Calls by threads that take no turns; they wait for rank 0's calls.
    now : float or None
        Rank 0's time at its last check, until the loop reads the time.
    """

    def __init__(self) -> None:
        self.agreed = True
        self.calls: deque[Any] = deque()
        self.now: float | None = None

    def end(self, loop: Loop) -> None:
        """Leave the order to each rank."""
        self.agreed = False
        while self.calls:
            loop._ready.append(self.calls.popleft())


def install(answers: Answers) -> None:
    """Replace functions of `asyncio` when the program imports it."""
    when_imported("asyncio", partial(_replace, answers))


def _replace(answers: Answers, asyncio: ModuleType) -> None:
    loop: Any = asyncio.base_events.BaseEventLoop
    loop.time = _telling(loop.time, answers)
    loop.call_soon_threadsafe = _calling(loop.call_soon_threadsafe, asyncio.Handle)
    selector: Any = selectors.DefaultSelector
    selector.select = _selecting(selector.select, answers)
    ours = _completing(asyncio)
    asyncio.as_completed = asyncio.tasks.as_completed = ours  # type: ignore[attr-defined]


def _telling(real: Callable[[Loop], float], answers: Answers) -> Callable[[Loop], float]:
    def time(self: Loop) -> float:
        """Return the time of the loop's clock."""
        order: Order | None = vars(self).get(_ORDER)
        if order is None or not order.agreed:
            return real(self)
        frame = sys._getframe(1)
        if frame.f_code.co_name == "_run_once":  # how long it may wait; then, which timers are due
            told, order.now = order.now, None
            return real(self) if told is None else told
        if not the_program_calls(frame):
            return real(self)
        now: float = answers.ask(lambda: real(self))
        return now

    return update_wrapper(time, real)


def _calling(real: Callable[..., Any], make: Callable[..., Any]) -> Callable[..., Any]:
    def call_soon_threadsafe(
        self: Loop, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> Any:
        """Like call_soon(), but thread-safe."""
        order: Order | None = vars(self).get(_ORDER)
        in_turn = TURNS.here() is not None or get_ident() == MAIN.thread
        if order is None or not order.agreed or in_turn or self.is_closed():
            return real(self, callback, *args, context=context)
        handle = make(callback, args, self, context)
        order.calls.append(handle)
        self._write_to_self()
        return handle

    return update_wrapper(call_soon_threadsafe, real)


def _selecting(usual: Callable[..., Any], answers: Answers) -> Callable[..., Any]:
    def select(self: selectors.BaseSelector, timeout: float | None = None) -> Any:
        """Wait until some registered file objects become ready."""
        frame = sys._getframe(1)
        is_loop = frame.f_globals.get("__name__") == "asyncio.base_events"
        if not is_loop or not the_program_calls(frame):
            return usual(self, timeout)
        loop = frame.f_locals["self"]
        order: Order = vars(loop).setdefault(_ORDER, Order())
        if order.agreed and len(self.get_map()) > 1:  # more than the pipe by which threads wake it
            order.end(loop)
        if not order.agreed:
            return usual(self, timeout)
        woken = _look(self, timeout, order, answers)
        while len(order.calls) < woken[1]:
            _real_sleep(_TICK)
        loop._ready.extend([order.calls.popleft() for _ in range(woken[1])])
        # Where it was woken before, the loop finds nothing to read, which is no error.
        return [(key, key.events) for key in self.get_map().values() if woken[0]]

    return update_wrapper(select, usual)


def _look(
    selector: selectors.BaseSelector, timeout: float | None, order: Order, answers: Answers
) -> tuple[bool, int]:
    """Return True if rank 0's loop was woken, and the number of calls by threads on rank 0.

    If it was not woken, threads that take turns run first.
    """
    until = math.inf if timeout is None else _real_clock() + timeout

    def look(seconds: float) -> tuple[bool, int, float, float]:
        ready = bool(_real_select(selector, None if seconds == math.inf else seconds))
        now = _real_clock()
        return ready, len(order.calls), until - now, now

    ready, calls, left, order.now = answers.ask(lambda: look(0.0))
    while not ready and not calls and left > 0:
        if not TURNS.nap(left):
            ready, calls, _, order.now = answers.ask(lambda: look(max(0.0, until - _real_clock())))
            break
        ready, calls, left, order.now = answers.ask(lambda: look(0.0))
    return ready, calls


def _completing(asyncio: ModuleType) -> Callable[..., Any]:
    real: Callable[..., Any] = asyncio.as_completed

    def as_completed(fs: Iterable[Any], **named: object) -> Any:
        single = asyncio.isfuture(fs) or asyncio.iscoroutine(fs)  # it refuses these
        if the_program_calls(sys._getframe(1)) and not single:
            # It makes tasks from a set, whose order is that of addresses.
            fs = [asyncio.ensure_future(one) for one in dict.fromkeys(fs)]
        return real(fs, **named)

    return update_wrapper(as_completed, real)
