"""Results of rank 0 for all ranks: the clock, a directory's files, the outcome of a change.

Rank 0 broadcasts ("posts") its result and continues. The other ranks look up the result by the
place of the program that makes the query, and by the number of queries made there so far. So rank 0
may make a query alone (``if rank == 0:``): the other ranks do not look up that result, and it
affects no other query.
"""

import pickle
import struct
import sys
import time
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Protocol, TypeVar

from distarray.runner.step import place

__all__ = ["Answers", "Communicator", "Talk"]

#: This module's functions wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True

_HEAD = struct.Struct("<QQQ")
#: Bytes of a message; the result follows the head in it, if it fits.
_BLOCK = 128
_ROOM = _BLOCK - _HEAD.size
#: Number of pending posts at which rank 0 waits for the other ranks, and how long (s).
_MOST = 64
_PATIENCE = 0.5
_real_clock = time.monotonic
Key = tuple[int, int]
T = TypeVar("T")


class Communicator(Protocol):
    """Subset of ``mpi4py.MPI.Intracomm`` that the runner's communicators are made from."""

    def Dup(self) -> Any:
        """Return a communicator over the same ranks, with separate messages."""

    def Get_rank(self) -> int:
        """Return the number of this rank."""

    def Get_size(self) -> int:
        """Return the number of ranks."""


class Talk(Protocol):
    """Communicator of the ranks' runners."""

    rank: int
    size: int

    def barrier(self) -> None:
        """Wait for every rank."""

    def broadcast_object(self, obj: T, root: int) -> T:
        """Broadcast an object from one rank to all."""


class Answers:
    """Results of rank 0, broadcast to the other ranks of one job.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Duplicated for the results alone.
    note : callable
        ``comm.calls.note``, which reports waits to the watch. It is passed because its module
        imports NumPy, which must be imported later.
    """

    def __init__(self, comm: Communicator, note: Callable[..., None]) -> None:
        self._comm = comm.Dup()
        self._meeting = comm.Dup()  # separate, since posts may be pending on the other one
        self.number = 0
        self.among: Any = None
        self._note = note
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()
        #: By place of the program: its number, and the count of queries made there.
        self._places: dict[tuple[Any, ...], list[int]] = {}
        self._found: dict[Key, bytes] = {}
        self._going: deque[Any] = deque()
        #: True if rank 0 has waited in vain for the other ranks to receive its posts.
        self._ahead = False
        self._posted = 0
        self._taken = 0

    def ask(self, act: Callable[[], Any], about: str = "") -> Any:
        """Return rank 0's result of `act` on all ranks, or raise its exception.

        `about` distinguishes queries that are made at one place of the program.
        """
        if self.size == 1:
            return act()
        where = place(sys._getframe(1))
        key = self._key((about, *where) if about else where)
        if self.rank:
            self._note(self, "ask", None, 0)
            value, error = pickle.loads(self._find(key))
            if error is not None:
                raise error
            return value
        try:
            value = act()
        except Exception as error:
            self._post(key, _packed(None, error))
            raise
        self._post(key, _packed(value, None))
        return value

    def settled(self, value: T) -> T:
        """Return rank 0's value if the values of the ranks differ; collective."""
        if self.size == 1:
            return value
        self._note(self, "settled", None)
        mark = blake2b(pickle.dumps(value), digest_size=8).digest()
        if len(set(self._meeting.allgather(mark))) == 1:
            return value
        common: T = self._meeting.bcast(value, 0)
        return common

    def meet(self) -> None:
        """Wait for all ranks."""
        self._note(self, "meet", None)
        self._meeting.Barrier()

    def finish(self, line: Talk) -> None:
        """Receive the results that this rank has not looked up; collective, at the end."""
        posted = line.broadcast_object(self._posted, 0)
        while self.rank and self._taken < posted:
            self._take()
        self._found.clear()
        for request, _ in self._going:
            request.Wait()

    def _key(self, where: tuple[Any, ...]) -> Key:
        known = self._places.get(where)
        if known is None:
            digest = blake2b(repr(where).encode(), digest_size=8).digest()
            known = self._places[where] = [int.from_bytes(digest, "little"), 0]
        known[1] += 1
        return known[0], known[1]

    def _post(self, key: Key, data: bytes) -> None:
        block = bytearray(_BLOCK)
        block[: _HEAD.size] = _HEAD.pack(*key, len(data))
        if len(data) <= _ROOM:
            block[_HEAD.size : _HEAD.size + len(data)] = data
        self._going.append((self._comm.Ibcast(block, 0), block))
        if len(data) > _ROOM:
            self._going.append((self._comm.Ibcast(data, 0), data))
        self._posted += 1
        if not self.poke():
            self._keep_pace()

    def poke(self) -> bool:
        """Let the pending posts progress; return True if few are left."""
        going = self._going
        while going and going[0][0].Test():
            going.popleft()
        self._ahead = self._ahead and len(going) > _MOST
        return len(going) <= _MOST

    def _keep_pace(self) -> None:
        """Wait briefly for the other ranks, since MPI progresses only while it is called.

        After a wait in vain rank 0 does not wait again: it is then making queries alone.
        """
        until = _real_clock() + _PATIENCE
        while not self._ahead and not self.poke():
            self._ahead = _real_clock() > until

    def _find(self, key: Key) -> bytes:
        while key not in self._found:
            self._take()
        return self._found.pop(key)

    def _take(self) -> None:
        """Receive the next result."""
        block = bytearray(_BLOCK)
        self._comm.Ibcast(block, 0).Wait()
        number, turn, length = _HEAD.unpack_from(block)
        data = block[_HEAD.size : _HEAD.size + length]
        if length > _ROOM:
            data = bytearray(length)
            self._comm.Ibcast(data, 0).Wait()
        self._taken += 1
        self._found[number, turn] = bytes(data)


def _packed(value: Any, error: Exception | None) -> bytes:
    try:
        return pickle.dumps((value, error))
    except Exception as fault:
        told = error or fault
        return pickle.dumps((None, RuntimeError(f"{type(told).__name__}: {told}")))
