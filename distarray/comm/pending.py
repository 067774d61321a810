"""Pending communication: begun and not finished, such as a fold while the program computes."""

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakSet

from distarray.comm import calls
from distarray.typing import Array

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["FINISHED", "Finishing", "Lasting", "Pending", "Requested", "Several", "end_lasting"]

#: True: functions of this module wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True


class Pending:
    """Communication in progress; an instance of this base class is already complete.

    Every rank of the group calls `wait` when it needs the result; the order does not matter.
    """

    __slots__ = ()

    def poke(self) -> bool:
        """Let the communication progress without waiting; return True if it is complete."""
        return True

    def wait(self) -> None:
        """Return when the communication is complete."""


FINISHED = Pending()


class Requested(Pending):
    """One MPI request, and the array that must exist until the request is complete.

    Attributes
    ----------
    call : tuple or None
        The communication call of the request, as :func:`distarray.comm.calls.latest` returns it.
    """

    __slots__ = ("_kept", "_request", "call")

    def __init__(self, request: "MPI.Request", kept: Array) -> None:
        self._request: MPI.Request | None = request
        self._kept: Array | None = kept
        self.call = calls.latest()

    def poke(self) -> bool:
        """Test the request, because MPI progresses only when called; return True if complete."""
        if self._request is not None and self._request.Test():
            self._request = self._kept = None
        return self._request is None

    def wait(self) -> None:
        """Wait for the request."""
        if self._request is not None:
            calls.waiting()
            self._request.Wait()
            self._request = self._kept = None


class Several(Pending):
    """Several pending communications, complete when all are complete."""

    __slots__ = ("_left",)

    def __init__(self, parts: Sequence[Pending]) -> None:
        self._left = list(parts)

    def poke(self) -> bool:
        """Let each communication progress; return True if all are complete."""
        self._left = [part for part in self._left if not part.poke()]
        return not self._left

    def wait(self) -> None:
        """Wait for all communications."""
        while self._left:
            self._left.pop().wait()


class Finishing(Pending):
    """Pending communication, and a function to be called once it is complete."""

    __slots__ = ("_finish", "_first")

    def __init__(self, first: Pending, finish: Callable[[], None]) -> None:
        self._first = first
        self._finish: Callable[[], None] | None = finish

    def poke(self) -> bool:
        """Let the communication progress; only `wait` calls `finish`."""
        return self._first.poke()

    def wait(self) -> None:
        """Wait, then call `finish` once; keep no reference afterwards."""
        self._first.wait()
        if self._finish is not None:
            finish, self._finish, self._first = self._finish, None, FINISHED
            finish()


class Lasting(Pending):
    """Pending communication that any thread may wait for, and that ends also if no thread waits.

    Its arrays are kept until it is complete.
    """

    __slots__ = ("__weakref__", "_left", "_lock")

    def __init__(self, left: Pending) -> None:
        self._left, self._lock = left, Lock()
        _lasting.add(self)
        _dropped.extend([other for other in _taken() if not other.poke()])

    def __del__(self) -> None:
        if not self._lock.locked() and self._left is not FINISHED:
            _dropped.append(self._left)

    def poke(self) -> bool:
        """Let the communication progress, unless another thread does; return True if complete."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._left.poke()
        finally:
            self._lock.release()

    def wait(self) -> None:
        """Wait for the communication."""
        with self._lock:
            self._left.wait()
            self._left = FINISHED


_lasting: WeakSet[Lasting] = WeakSet()
#: Communications in progress whose `Lasting` has been deleted.
_dropped: deque[Pending] = deque()


def _taken() -> Iterator[Pending]:
    """Yield the dropped communications, each in one thread only."""
    with suppress(IndexError):  # another thread was faster
        for _ in range(len(_dropped)):
            yield _dropped.popleft()


def end_lasting() -> None:
    """Wait for all lasting communications: a child process, or MPI's end, would lose them."""
    for pending in (*_lasting, *_taken()):
        pending.wait()


os.register_at_fork(before=end_lasting)
