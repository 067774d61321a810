"""Guard against SIGTERM, which ends a job: the measurements are saved first.

A rank that waits inside MPI runs no Python code, and therefore no signal handler. But the
interpreter writes the signal's number to a pipe at once, and a thread of the guard reads it.
"""

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType

from distarray.comm import thread_start

__all__ = ["Guard"]


class Guard:
    """Guard that calls a function when SIGTERM is to end the process, and then lets it end.

    It is active only in the main thread, and only if the program has set no handler for the signal.

    Parameters
    ----------
    act : callable
        Called in another thread, once.
    """

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act
        self._ends: tuple[int, int] | None = None
        self._over = False
        self._told = False
        self._thread = threading.Thread(target=self._read, name="distarray-guard", daemon=True)

    def begin(self) -> None:
        """Install the signal handler and the pipe, and start the thread that reads it."""
        here = threading.current_thread() is threading.main_thread()
        if not here or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before != -1:  # another library uses the wakeup descriptor
            signal.set_wakeup_fd(before)
            os.close(reading)
            os.close(writing)
            return
        self._ends = reading, writing
        signal.signal(signal.SIGTERM, self._note)
        _standing.append(self)
        if thread_start.try_start(self._thread) is not None:  # no thread would act on the signal
            self._leave()
            os.close(reading)
            os.close(writing)
            self._ends = None

    def end(self) -> None:
        """Remove the handler; does not return if the process is being terminated."""
        if self._ends is None or self._over:
            return
        if self._told and self._stands():
            self._thread.join()  # the thread runs `act` and ends the process
        self._leave()
        os.write(self._ends[1], b"\0")

    def _leave(self) -> None:
        self._over = True
        if self in _standing:
            _standing.remove(self)
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGTERM) == self._note:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _note(self, number: int, frame: FrameType | None) -> None:
        """Wake the thread; the interpreter's own byte may go to asyncio instead."""
        assert self._ends is not None
        self._told = True
        os.write(self._ends[1], bytes([number]))

    def _stands(self) -> bool:
        """Return True if this guard's handler is still installed."""
        return not self._over and signal.getsignal(signal.SIGTERM) == self._note

    def _read(self) -> None:
        assert self._ends is not None
        reading, writing = self._ends
        while not self._over:
            number = os.read(reading, 1)
            if number == bytes([signal.SIGTERM]) and self._stands():
                try:
                    self._act()
                finally:
                    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)  # the default: ends all
                    os.kill(os.getpid(), signal.SIGTERM)
        os.close(reading)
        os.close(writing)


#: Active guards.
_standing: list[Guard] = []


def _in_forked_child() -> None:
    """Remove the guards in a forked child, so that SIGTERM ends it as usual."""
    for guard in _standing:
        guard._leave()


os.register_at_fork(after_in_child=_in_forked_child)
