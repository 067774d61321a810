"""Locks of the program: a thread that waits for a lock passes its turn to other threads."""

import queue
import threading
import time
from collections import deque
from types import TracebackType
from typing import Any

from distarray.runner.imports import replace
from distarray.runner.turns import TURNS, Bell

__all__ = ["Lock", "RLock", "install"]

_real_lock = threading.Lock


class Lock:
    """Lock that passes the turn while it waits, as ``threading.Lock``."""

    def __init__(self) -> None:
        self._lock = _real_lock()
        self._waiting: deque[Bell] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; return True if that succeeded."""
        seat = TURNS.here()
        if not blocking or seat is None:
            return self._lock.acquire(blocking, timeout)
        until = None if timeout < 0 else time.monotonic() + timeout
        while not self._lock.acquire(False):
            bell = Bell(TURNS, seat)
            self._waiting.append(bell)
            if not TURNS.wait(bell, None if until is None else until - time.monotonic()):
                self._waiting.remove(bell)
                return self._lock.acquire(False)
        return True

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()
        if self._waiting:
            self._waiting.popleft().release()

    def locked(self) -> bool:
        """Return True if the lock is held."""
        return self._lock.locked()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]


_PythonRLock: Any = threading._RLock


class RLock(_PythonRLock):  # type: ignore[misc]
    """Reentrant lock that passes the turn while it waits, as ``threading.RLock``."""

    def __init__(self) -> None:
        super().__init__()
        self._block = Lock()


def install() -> None:
    """Give the program these locks, and queues built on them."""
    simple: Any = queue
    replace(threading, Lock=Lock, RLock=RLock)
    replace(queue, SimpleQueue=simple._PySimpleQueue)
