"""What has been begun and not finished: a fold that goes on while the program computes."""

from collections.abc import Callable, Sequence
from typing import Any

from distarray.comm import calls

__all__ = ["FINISHED", "Finishing", "Pending", "Requested", "Several"]

#: Its functions wait for other ranks (see :mod:`distarray.comm.stacks`).
WAITS_FOR_RANKS = True


class Pending:
    """A conversation under way. The base class stands for one that is over.

    Every rank of the group calls `wait` once it needs the result; the order does not matter.
    """

    __slots__ = ()

    def poke(self) -> bool:
        """Let it go on as far as it can without waiting; whether it is over."""
        return True

    def wait(self) -> None:
        """Return when it is over."""


FINISHED = Pending()


class Requested(Pending):
    """One MPI request, and the array that must live as long.

    Attributes
    ----------
    call : tuple or None
        The conversation that it belongs to, as ``distarray.comm.calls`` keeps it.
    """

    __slots__ = ("_kept", "_request", "call")

    def __init__(self, request: Any, kept: Any) -> None:
        self._request = request
        self._kept = kept
        self.call = calls.latest()

    def poke(self) -> bool:
        """Ask MPI, which goes on only when it is asked."""
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
    """Some that are over when all are."""

    __slots__ = ("_left",)

    def __init__(self, parts: Sequence[Pending]) -> None:
        self._left = list(parts)

    def poke(self) -> bool:
        """Let each go on."""
        self._left = [part for part in self._left if not part.poke()]
        return not self._left

    def wait(self) -> None:
        """Wait for each."""
        while self._left:
            self._left.pop().wait()


class Finishing(Pending):
    """Another one, and what is to be done once it is over."""

    __slots__ = ("_finish", "_first")

    def __init__(self, first: Pending, finish: Callable[[], None]) -> None:
        self._first = first
        self._finish: Callable[[], None] | None = finish

    def poke(self) -> bool:
        """Go on; the finish waits for `wait`."""
        return self._first.poke()

    def wait(self) -> None:
        """Wait, then finish, once; nothing is kept afterwards."""
        self._first.wait()
        if self._finish is not None:
            finish, self._finish, self._first = self._finish, None, FINISHED
            finish()
