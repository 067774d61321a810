"""Ranks as threads of one process: the same communication without MPI, for tests.

A rank that skips a collective, calls another collective, or waits for a message that no rank sends
gets an error: at once if it is certain that no message will come, otherwise after a timeout.
"""

import contextvars
import itertools
import pickle
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from distarray.comm import objects, observed, thread_start
from distarray.comm.algorithms import split_views
from distarray.comm.group import Array, Group, Pair
from distarray.comm.pending import FINISHED, Pending
from distarray.comm.talkers import Talker
from distarray.errors import DistArrayError, DivergenceError

__all__ = ["BrokenWorldError", "ThreadGroup", "current_world", "run_threads"]

Result = TypeVar("Result")
T = TypeVar("T")

_current: contextvars.ContextVar["ThreadGroup | None"] = contextvars.ContextVar(
    "distarray_thread_world", default=None
)


class BrokenWorldError(DistArrayError, RuntimeError):
    """Error of a rank that waits for another rank in vain."""


@dataclass
class _World:
    """State that all groups of one run share: one lock, and the ranks that wait."""

    size: int
    timeout: float
    serial: int = field(default_factory=itertools.count().__next__)
    condition: threading.Condition = field(default_factory=threading.Condition)
    waiting: dict[int, Callable[[], object]] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    broken: str | None = None

    def fail(self, reason: str) -> None:
        """End all waits; call with the lock held."""
        self.broken = self.broken or reason
        self.condition.notify_all()

    def finish(self, rank: int) -> None:
        """Record that a rank's program has ended."""
        with self.condition:
            self.finished.add(rank)
            self._look_for_deadlock()
            self.condition.notify_all()

    def wait(self, rank: int, ready: Callable[[], object], what: str) -> None:
        """Wait until `ready()`; call with the lock held."""
        if ready():
            return
        self.waiting[rank] = ready
        try:
            self._look_for_deadlock()
            arrived = self.condition.wait_for(lambda: ready() or self.broken, self.timeout)
        finally:
            del self.waiting[rank]
        if not ready():
            if not arrived:
                self.fail(f"rank {rank} waited {self.timeout} s for {what}")
            raise BrokenWorldError(f"rank {rank} waits for {what} in vain: {self.broken}")

    def _look_for_deadlock(self) -> None:
        stuck = len(self.waiting) + len(self.finished) >= self.size
        if stuck and self.waiting and not any(ready() for ready in self.waiting.values()):
            ended = f"ranks {sorted(self.finished)} have ended" if self.finished else "all wait"
            self.fail(f"no rank can go on ({ended})")


@dataclass
class _Round:
    """One collective: the values that the ranks contribute, and the result."""

    brought: dict[int, tuple[str, Any]] = field(default_factory=dict)
    error: BaseException | None = None
    values: list[Any] | None = None
    left: int = 0


class _Room:
    """State that the members of one group share."""

    def __init__(self, world: _World, ranks: tuple[int, ...]) -> None:
        self.world = world
        self.ranks = ranks
        self.rounds: dict[int, _Round] = {}
        self.boxes: dict[tuple[int, int], deque[Array]] = {}
        self.rooms: dict[tuple[int, ...], _Room] = {}
        self.posts: deque[tuple[int, bytes]] = deque()


class ThreadGroup(Group):
    """Group whose ranks are threads; made by :func:`run_threads`."""

    in_one_process = True

    def __init__(self, room: _Room, rank: int, talker: Talker) -> None:
        super().__init__(rank, len(room.ranks))
        self.talker = talker
        self._room = room
        self._world = room.world
        self._calls = 0
        self.place = (room.world.serial, room.ranks[rank])

    @property
    def world_ranks(self) -> tuple[int, ...]:
        """The members as ranks of the thread world."""
        return self._room.ranks

    def post(self, data: bytes) -> Pending:
        """Begin to send bytes to rank 0."""
        self._room.posts.append((self.rank, data))
        return FINISHED

    def posted(self) -> list[tuple[int, bytes]]:
        """Return the posted messages that have arrived, each with its rank."""
        return [self._room.posts.popleft() for _ in range(len(self._room.posts))]

    def _meet(self, call: str, value: T) -> list[T]:
        """Contribute a value; return all ranks' values in rank order. All make the same call."""
        self.check_talker()
        room, world = self._room, self._world
        with world.condition:
            number = self._calls
            self._calls += 1
            meeting = room.rounds.setdefault(number, _Round())
            meeting.brought[self.rank] = (call, value)
            if len(meeting.brought) == self.size:
                _conclude(meeting)
                world.condition.notify_all()
            else:
                me = room.ranks[self.rank]
                world.wait(
                    me, lambda: meeting.values is not None or meeting.error is not None, call
                )
            meeting.left += 1
            if meeting.left == self.size:
                del room.rounds[number]
        if meeting.error is not None:
            raise DivergenceError(str(meeting.error))
        assert meeting.values is not None
        return meeting.values

    def _exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> None:
        self.check_talker()
        room, world = self._room, self._world
        parcels = [(peer, _parcel_or_error(view)) for peer, view in sends]
        with world.condition:
            for peer, parcel in parcels:
                room.boxes.setdefault((self.rank, peer), deque()).append(parcel)
            if parcels:
                world.condition.notify_all()
            got = []
            for peer, view in receives:
                box = room.boxes.setdefault((peer, self.rank), deque())
                text = f"a message from rank {peer} ({view.dtype} {view.shape})"
                world.wait(room.ranks[self.rank], box.__len__, text)
                got.append(box.popleft())
        for parcel in [*got, *[parcel for _, parcel in parcels]]:
            if isinstance(parcel, TypeError):  # as with MPI, on senders and receivers
                raise parcel
        for (peer, view), parcel in zip(receives, got, strict=True):
            if parcel.size != view.size or parcel.dtype.itemsize != view.dtype.itemsize:
                raise DivergenceError(
                    f"rank {peer} sent {parcel.dtype} {parcel.shape} where rank {self.rank} "
                    f"expected {view.dtype} {view.shape}"
                )
            view[...] = parcel.reshape(view.shape)

    def _allgather(self, block: Array) -> Array:
        call = f"allgather of {block.dtype} {block.shape}"
        return np.stack(self._meet(call, _parcel(block)))

    def _allgather_varied(self, block: Array, counts: Sequence[int] | None) -> list[Array]:
        call = f"allgather of {block.dtype} (*, {str(block.shape[1:])[1:]}"
        parts = self._meet(call, _parcel(block))
        lengths = [len(part) for part in parts]
        if counts is not None and list(counts) != lengths:
            raise DivergenceError(f"allgather: {list(counts)} rows announced, {lengths} came")
        return split_views(np.concatenate(parts), lengths)

    def _broadcast(self, block: Array, root: int) -> None:
        call = f"broadcast of {block.dtype} {block.shape} from rank {root}"
        parcel = _parcel(block)
        values = self._meet(call, parcel if self.rank == root else None)
        if self.rank != root:
            block[...] = values[root]

    def _allgather_object(self, obj: T) -> list[T]:
        return [pickle.loads(data) for data in self._meet("allgather_object", pickle.dumps(obj))]

    def _broadcast_object(self, obj: T | None, root: int) -> T:
        data = pickle.dumps(obj) if self.rank == root else b""
        values = self._meet(f"broadcast_object from rank {root}", data)
        if self.rank != root:
            obj = pickle.loads(values[root])
        return obj  # type: ignore[return-value]

    def _barrier(self) -> None:
        self._meet("barrier", None)

    def _alltoall_counts(self, counts: Array) -> Array:
        rows = self._meet("alltoall", np.array(counts))
        return np.array([row[self.rank] for row in rows])

    def _subset(self, ranks: tuple[int, ...]) -> "ThreadGroup":
        room = self._room
        with self._world.condition:
            if ranks not in room.rooms:
                room.rooms[ranks] = _Room(self._world, tuple(room.ranks[r] for r in ranks))
            return ThreadGroup(room.rooms[ranks], ranks.index(self.rank), self.talker)

    def abort(self, code: int = 1) -> None:
        """End all waits of this world with an error."""
        with self._world.condition:
            self._world.fail(f"rank {self._room.ranks[self.rank]} aborted with code {code}")


def _parcel(view: Array) -> Array:
    """Copy a view for sending: the caller may change the original once the call returns."""
    if view.dtype.hasobject:
        return objects.unpacked(objects.packed(view))
    return np.array(view, order="C")


def _parcel_or_error(view: Array) -> Any:
    """Copy a view as :func:`_parcel`; if elements cannot be sent, return the error to be sent."""
    try:
        return _parcel(view)
    except TypeError as error:
        return error


def _conclude(meeting: _Round) -> None:
    """Set the result of a collective, once all ranks have called it."""
    calls = {rank: call for rank, (call, _) in sorted(meeting.brought.items())}
    if len(set(calls.values())) > 1:
        lines = "".join(f"\n    rank {rank}  {call}" for rank, call in calls.items())
        meeting.error = DivergenceError(f"the ranks are not making the same call:{lines}")
    else:
        meeting.values = [meeting.brought[rank][1] for rank in calls]


def current_world() -> ThreadGroup | None:
    """Return the group of all thread ranks of this thread's run; None outside of a run.

    Examples
    --------
    >>> run_threads(3, lambda group: current_world() is group)
    [True, True, True]
    >>> current_world() is None
    True
    """
    return _current.get()


def run_threads(
    n: int, program: Callable[[ThreadGroup], Result], timeout: float = 10.0
) -> list[Result]:
    """Run `program` on `n` ranks, each a thread of this process.

    Parameters
    ----------
    n : int
        Number of ranks.
    program : callable
        Called with the rank's group, in a copy of the caller's context (settings, traces). Filters
        of warnings that it sets are not observed: ranks that share filters use the caller's
        filters.
    timeout : float
        Seconds that a rank waits for other ranks before it fails. It fails at once if all other
        ranks wait, too, or have ended.

    Returns
    -------
    list
        The values that the program returned, in rank order.

    Raises
    ------
    BaseException
        The first failure that is not a consequence of another rank's failure.

    Examples
    --------
    >>> from distarray.comm import DeviceMesh, run_threads
    >>> def program(group):
    ...     mesh = DeviceMesh(group, (2, 2), ("dp", "tp"))
    ...     return mesh.coords
    >>> run_threads(4, program)
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    world = _World(n, timeout)
    room = _Room(world, tuple(range(n)))
    results: list[Any] = [None] * n
    failures: list[tuple[int, BaseException]] = []

    def body(rank: int) -> None:
        group = ThreadGroup(room, rank, Talker(threading.get_ident()))
        _current.set(group)
        try:
            results[rank] = program(group)
        except BaseException as error:
            failures.append((rank, error))
        finally:
            world.finish(rank)

    with observed.fixed() if n > 1 else nullcontext():
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(body, rank),
                name=f"rank-{rank}",
                daemon=True,
            )
            for rank in range(n)
        ]
        for rank, thread in enumerate(threads):
            error = thread_start.try_start(thread)
            if error is not None:  # the other ranks must not wait for this rank
                failures.append((rank, error))
                world.finish(rank)
        for thread in threads:
            if thread.ident is not None:
                thread.join()
    if failures:
        raise _cause(failures)
    return results


def _cause(failures: list[tuple[int, BaseException]]) -> BaseException:
    """Return the failure to report: the first that is no consequence of another failure."""
    real = [pair for pair in failures if not isinstance(pair[1], BrokenWorldError)]
    rank, error = (real or failures)[0]
    error.add_note(f"(on thread rank {rank})")
    return error
