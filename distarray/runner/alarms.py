"""Handlers of signals. Of a timer's: ranks that would part are told, and the job ends.

A signal comes at another place of the program on each rank, after another number of rounds of a
loop. What a handler changes would then be different on each, and so would the results, without a
word. A timer that never goes off disturbs nobody.

Other signals are the program's: many end it, and all ranks then. That a handler has run is noted,
and told if ranks wait for one another.
"""

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from distarray.comm import signals
from distarray.comm.hooks import end_all
from distarray.comm.processes import mpi_is_the_parents
from distarray.runner.imports import belongs_to_program
from distarray.runner.standing import put_in_place
from distarray.runner.step import in_step

__all__ = ["install"]

#: The signals of timers (``signal.alarm``, ``signal.setitimer``).
_TIMED = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)
#: How long the other ranks wait for rank 0 to tell (s).
_PATIENCE = 2.0

Handler = Callable[[int, FrameType | None], Any] | int | None

_real_sleep = time.sleep


class Noted:
    """A handler of the program's for another signal."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Note the signal, and handle it."""
        signals.handled(number, frame)
        self.handler(number, frame)


class Alarm:
    """A handler of the program's for a timer's signal."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any], rank: int) -> None:
        self.handler = handler
        self._rank = rank

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End the job; in a process that the program has started, handle the signal."""
        if mpi_is_the_parents():
            self.handler(number, frame)
            return
        if self._rank:
            _real_sleep(_PATIENCE)
        where = "" if frame is None else f" (here at {frame.f_code.co_filename}:{frame.f_lineno})"
        end_all(
            f"the program handles {signal.Signals(number).name}, which comes at another place of "
            f"it on each rank{where}, so that their results would differ: ask time.monotonic() in "
            "the program's loop instead of setting a timer. The job is ended."
        )


def install(rank: int) -> None:
    """Replace `signal.signal` and `signal.getsignal`."""
    put_in_place(signal, "signal", _setting(signal.signal, rank))
    real = signal.getsignal

    def getsignal(signalnum: int) -> Any:
        return _programs(real(signalnum))

    put_in_place(signal, "getsignal", getsignal)


def _setting(real: Callable[..., Any], rank: int) -> Callable[..., Any]:
    def setting(signalnum: int, handler: Handler) -> Any:
        programs = belongs_to_program(sys._getframe(1)) and in_step()
        if programs and callable(handler) and handler is not signal.default_int_handler:
            handler = Alarm(handler, rank) if signalnum in _TIMED else Noted(handler)
        return _programs(real(signalnum, handler))

    return setting


def _programs(handler: Handler) -> Any:
    """A handler as the program has given it."""
    return handler.handler if isinstance(handler, (Alarm, Noted)) else handler
