"""Pending conversations: begun and not finished, such as a fold while the program computes."""

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

#: Its functions wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True


class Pending:
    """A conversation under way; the base class is one that is already over.

    Every rank of the group calls `wait` once it needs the result; the order does not matter.
    """

    __slots__ = ()

    def poke(self) -> bool:
        """Let it progress as far as it can without waiting; return whether it is over."""
        return True

    def wait(self) -> None:
        """Return when it is over."""


FINISHED = Pending()


class Requested(Pending):
    """One MPI request, and the array that must live as long.

    Attributes
    ----------
    call : tuple or None
        The conversation that it belongs to, as :func:`distarray.comm.calls.latest` gives it.
    """

    __slots__ = ("_kept", "_request", "call")

    def __init__(self, request: "MPI.Request", kept: Array) -> None:
        self._request: MPI.Request | None = request
        self._kept: Array | None = kept
        self.call = calls.latest()

    def poke(self) -> bool:
        """Test the request: MPI progresses only when it is called."""
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
    """Several pending conversations, over when all are."""

    __slots__ = ("_left",)

    def __init__(self, parts: Sequence[Pending]) -> None:
        self._left = list(parts)

    def poke(self) -> bool:
        """Let each progress; return whether all are over."""
        self._left = [part for part in self._left if not part.poke()]
        return not self._left

    def wait(self) -> None:
        """Wait for each."""
        while self._left:
            self._left.pop().wait()


class Finishing(Pending):
    """A pending conversation, and a function to be called once it is over."""

    __slots__ = ("_finish", "_first")

    def __init__(self, first: Pending, finish: Callable[[], None]) -> None:
        self._first = first
        self._finish: Callable[[], None] | None = finish

    def poke(self) -> bool:
        """Let it progress; `finish` is called by `wait` alone."""
        return self._first.poke()

    def wait(self) -> None:
        """Wait, then call `finish`, once; nothing is kept afterwards."""
        self._first.wait()
        if self._finish is not None:
            finish, self._finish, self._first = self._finish, None, FINISHED
            finish()


class Lasting(Pending):
    """A pending conversation that any thread may wait for, and that ends also if nobody does.

    Its arrays are kept until then.
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
        """Let it progress, unless another thread does; return whether it is over."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._left.poke()
        finally:
            self._lock.release()

    def wait(self) -> None:
        """Wait for it."""
        with self._lock:
            self._left.wait()
            self._left = FINISHED


_lasting: WeakSet[Lasting] = WeakSet()
#: Conversations whose `Lasting` is gone while they were under way.
_dropped: deque[Pending] = deque()


def _taken() -> Iterator[Pending]:
    """The dropped conversations, each of which one thread alone gets."""
    with suppress(IndexError):  # another thread was faster
        for _ in range(len(_dropped)):
            yield _dropped.popleft()


def end_lasting() -> None:
    """Wait for all conversations that last: a child process, or MPI's end, would lose them."""
    for pending in (*_lasting, *_taken()):
        pending.wait()


os.register_at_fork(before=end_lasting)
