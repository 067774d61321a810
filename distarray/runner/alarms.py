"""Handlers of signals: a timer's signal that the program handles ends the job.

A signal arrives at a different place of the program on each rank, such as after a different number
of loop iterations. The changes that a handler makes would then differ between the ranks, and so
would the results, without an error. A timer that never goes off has no effect.

All other signals are left to the program: many end it, and then all ranks. The runner records that
a handler has run, and reports it if ranks wait for one another.
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

#: Signals of timers (``signal.alarm``, ``signal.setitimer``).
_TIMED = (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF)
#: Seconds that the other ranks wait for rank 0 to report.
_PATIENCE = 2.0

Handler = Callable[[int, FrameType | None], Any] | int | None

_real_sleep = time.sleep


class Noted:
    """Handler of the program for a signal that is not a timer's."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record the signal, and call the program's handler."""
        signals.handled(number, frame)
        self.handler(number, frame)


class Alarm:
    """Handler of the program for a timer's signal."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any], rank: int) -> None:
        self.handler = handler
        self._rank = rank

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End the job; in a process that the program started, call the program's handler."""
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
    """Replace `signal.signal` and `signal.getsignal`, to wrap the program's handlers."""
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
    """Return a handler as the program passed it."""
    return handler.handler if isinstance(handler, (Alarm, Noted)) else handler
