"""Threads that run one at a time, each until it waits or ends: in the same order on all ranks.

Otherwise the threads of different ranks would communicate in different orders. Here one thread has
the turn. When it waits (for a future, a queue, an event, a lock, or in a sleep), the thread that
has been ready longest gets the turn. This order depends only on the actions of the program, not on
their duration, so all ranks communicate in the same order. The threads of the program's pools, and
those that the program starts itself, take turns; those of libraries do not.
"""

import itertools
import math
import os
import queue
import selectors
import sys
import threading
import time
from _thread import allocate_lock
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import update_wrapper
from heapq import heappop, heappush
from multiprocessing.pool import ApplyResult
from threading import get_ident
from typing import Any, ParamSpec

from distarray.comm.talkers import MAIN
from distarray.runner.imports import belongs_to_program
from distarray.runner.standing import put_in_place
from distarray.runner.step import in_step

__all__ = ["TURNS", "Bell", "Turns", "install"]

P = ParamSpec("P")

_real_wait = threading.Condition.wait
_real_start = threading.Thread.start
_real_join = threading.Thread.join
_real_sleep = time.sleep
#: Smallest difference by which a time counts as later than another (s).
_MOMENT = 1e-6
#: Maximum seconds that a thread sleeps in a query whose result is still negative.
_TICK = 1e-3


class Seat:
    """State of a thread that takes turns.

    Attributes
    ----------
    go : lock
        Released when the thread gets the turn.
    bell : Bell or None
        The event that the thread waits for; None while it has the turn, or is ready.
    dozes : bool
        True if it has the turn and sleeps, since no other thread is ready.
    holds : int
        Number of `Turns.kept` blocks that it is in, in which it keeps the turn.
    joining : list of Bell or None
        Bells of threads that wait for its end; None afterwards.
    """

    def __init__(self) -> None:
        self.go = allocate_lock()
        self.go.acquire()
        self.bell: Bell | None = None
        self.dozes = False
        self.holds = 0
        self.joining: list[Bell] | None = []


class Bell:
    """Wait of one thread; another thread, with or without a seat, ends it by one `release`."""

    __slots__ = ("rung", "seat", "turns")

    def __init__(self, turns: "Turns", seat: Seat) -> None:
        self.turns, self.seat, self.rung = turns, seat, False

    def release(self) -> None:
        """Wake the thread."""
        self.turns.ring(self)


class Turns:
    """Scheduler of the threads that take turns: the thread that has the turn, and the order."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Reset the scheduler to no threads, as in a forked child."""
        self._lock = allocate_lock()
        self._seats: dict[int, Seat] = {}
        #: Threads that the program has started.
        self._started: list[threading.Thread] = []
        self._ready: deque[Seat] = deque()
        #: Threads by virtual wake-up time; this time advances only when all threads wait.
        self._sleepers: list[tuple[float, int, Bell]] = []
        self._number = itertools.count()
        self._now = 0.0
        self._idle = False
        self._starter = 0

    def begin(self) -> None:
        """Give this thread, the only one so far, a seat and the turn, if it has none."""
        if get_ident() not in self._seats:
            self._seats[get_ident()] = Seat()

    def here(self) -> Seat | None:
        """Return the seat of this thread; None if it takes no turns, or keeps its turn."""
        seat = self._seats.get(get_ident())
        return None if seat is None or seat.holds else seat

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Enter a block whose waits keep the turn, for events that no thread with a seat causes."""
        seat = self._seats.get(get_ident()) or Seat()
        seat.holds += 1
        try:
            yield
        finally:
            seat.holds -= 1

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Enter a block in which threads that this thread starts take turns."""
        self._starter = get_ident()
        try:
            yield
        finally:
            self._starter = 0

    def starts(self) -> bool:
        """Return True if a thread that this thread starts is to take turns."""
        return self._starter == get_ident()

    def start(self, thread: threading.Thread) -> None:
        """Start a thread that takes turns; its first turn comes after those that are ready."""
        seat = Seat()
        run = thread.run

        def seated() -> None:
            self._seats[get_ident()] = seat
            self._await_turn(seat)
            try:
                run()
            finally:
                self._leave(seat)

        thread.run = seated  # type: ignore[method-assign]
        thread._distarray_seat = seat  # type: ignore[attr-defined]
        with self.kept():
            _real_start(thread)
        with self._lock:
            self._ready.append(seat)

    def start_programs(self, thread: threading.Thread) -> None:
        """Start a thread of the program, and let it run first."""
        self.begin()
        self.start(thread)
        self._started.append(thread)
        self.give_way()

    def finish(self) -> None:
        """Wait for the threads that the program has started, as Python does at its end."""
        for thread in iter(self._started):  # which may start others
            if not thread.daemon:
                thread.join()

    def give_way(self) -> None:
        """Let the threads that are ready run first."""
        seat = self.here()
        if seat is None:
            return
        with self._lock:
            if not self._ready:
                return
            self._ready.append(seat)
            following = self._next()
        self._pass_to(following)
        self._await_turn(seat)

    def wait(self, bell: Bell, timeout: float | None = None) -> bool:
        """Wait until a bell of this thread is released, or the timeout; return True if released."""
        seat = bell.seat
        if timeout is not None and timeout <= 0:
            return bell.rung
        began = time.monotonic()
        with self._lock:
            if bell.rung:
                return True
            seat.bell = bell
            if timeout is not None:
                heappush(self._sleepers, (self._now + timeout, next(self._number), bell))
            following = self._next()
        if following is not seat:
            self._pass_to(following)
            self._await_turn(seat)
        if timeout is not None and not bell.rung:
            self._doze(seat, began + timeout - time.monotonic())
        return bell.rung

    def alone(self) -> bool:
        """Return True if no other thread takes turns."""
        return len(self._seats) == 1

    def nap(self, limit: float) -> bool:
        """Let threads run that are ready or have slept enough; return False if there are none."""
        seat = self.here()
        with self._lock:
            waiting = [until for until, _, bell in self._sleepers if bell.seat.bell is bell]
            pause = min(waiting, default=self._now) - self._now
            if seat is None or not (self._ready or waiting):
                return False
        if self._ready:
            self.give_way()
        else:
            self.wait(Bell(self, seat), min(limit, pause + _MOMENT))
        return True

    def join(self, seat: Seat, timeout: float | None) -> None:
        """Wait for the end of a thread that takes turns."""
        mine = self.here()
        if mine is not None and seat.joining is not None:
            bell = Bell(self, mine)
            seat.joining.append(bell)
            self.wait(bell, timeout)

    def ring(self, bell: Bell) -> None:
        """Make the thread that waits for a bell ready; may be called from any thread."""
        with self._lock:
            bell.rung = True
            seat = bell.seat
            if seat.bell is not bell:
                return
            seat.bell = None
            if seat.dozes:
                seat.go.release()
                return
            self._ready.append(seat)
            following = self._next() if self._idle else None
        if following is not None:
            self._pass_to(following)

    def _next(self) -> Seat | None:
        """Return the seat that gets the turn; None if all wait for threads without seats.

        Call it with the lock held.
        """
        self._idle = False
        if self._ready:
            return self._ready.popleft()
        while self._sleepers:
            until, _, bell = heappop(self._sleepers)
            if bell.seat.bell is bell:
                self._now = max(self._now, until)
                bell.seat.dozes = True
                return bell.seat
        self._idle = True
        return None

    def _pass_to(self, following: Seat | None) -> None:
        if following is not None:
            following.go.release()

    def _await_turn(self, seat: Seat) -> None:
        if MAIN.thread == get_ident():
            MAIN.thread = -1
        seat.go.acquire()
        MAIN.thread = get_ident()

    def _doze(self, seat: Seat, seconds: float) -> None:
        """Sleep with the turn, until the bell is released or the time is up."""
        seat.go.acquire(timeout=max(0.0, seconds))
        with self._lock:
            seat.dozes = False
            seat.bell = None
            seat.go.acquire(False)  # it may have been released meanwhile

    def _leave(self, seat: Seat) -> None:
        del self._seats[get_ident()]
        joining, seat.joining = seat.joining or [], None
        for bell in joining:
            bell.release()
        MAIN.thread = -1
        with self._lock:
            following = self._next()
        self._pass_to(following)


TURNS = Turns()


def install() -> None:
    """Make the waits of threads with seats pass their turns."""
    turns = TURNS
    os.register_at_fork(after_in_child=turns.forget)
    ending: Any = threading
    ending._register_atexit(turns.finish)  # a program that fails waits for its threads, too
    threads: Any = threading.Thread
    conditions: Any = threading.Condition
    threads.start, threads.join = _starts(turns), _joins(turns)
    conditions.wait = _waits(turns)
    threads.is_alive = _lives(turns, threads.is_alive)
    for kind, names, not_yet in _QUESTIONS:
        for name in names.split():
            setattr(kind, name, _asked(turns, getattr(kind, name), not_yet))
    selector: Any = selectors.DefaultSelector
    selector.select = _selects(turns, selector.select)
    put_in_place(time, "sleep", _sleeps(turns))


def _waits(turns: Turns) -> Callable[..., bool]:
    def wait(self: threading.Condition, timeout: float | None = None) -> bool:
        """Wait until notified or until a timeout occurs."""
        seat = turns.here()
        if seat is None:
            return _real_wait(self, timeout)
        condition: Any = self
        if not condition._is_owned():
            raise RuntimeError("cannot wait on un-acquired lock")
        bell = Bell(turns, seat)
        condition._waiters.append(bell)
        saved = condition._release_save()
        rung = False
        try:
            rung = turns.wait(bell, timeout)
        finally:
            condition._acquire_restore(saved)
            if not rung and bell in condition._waiters:
                condition._waiters.remove(bell)
        return rung

    return wait


def _starts(turns: Turns) -> Callable[..., None]:
    def start(self: threading.Thread) -> None:
        """Start the thread's activity."""
        if turns.starts():
            turns.start(self)
        elif belongs_to_program(sys._getframe(1)) and in_step() and self.ident is None:
            turns.start_programs(self)
        else:
            with turns.kept():  # the new thread, which has no seat, reports that it has started
                _real_start(self)

    return start


def _joins(turns: Turns) -> Callable[..., None]:
    def join(self: threading.Thread, timeout: float | None = None) -> None:
        """Wait until the thread terminates."""
        seat = getattr(self, "_distarray_seat", None)
        if seat is not None:
            turns.join(seat, timeout)
        _real_join(self, timeout)

    return join


def _lives(turns: Turns, real: Callable[..., bool]) -> Callable[..., bool]:
    def is_alive(self: threading.Thread) -> bool:
        """Return True if the thread is alive."""
        seat = getattr(self, "_distarray_seat", None)
        if seat is None:
            return real(self)
        if seat.joining is not None:
            turns.nap(_TICK)
        return seat.joining is not None

    return is_alive


#: Queries that the program makes without waiting, and tests whether the result is still negative.
_QUESTIONS: list[tuple[Any, str, Callable[..., bool]]] = [
    (threading.Event, "is_set", lambda event: not event._flag),
    (Future, "done running", lambda future: "FINISHED" not in future._state),
    (ApplyResult, "ready", lambda result: not result._event._flag),
    (queue.Queue, "empty qsize get get_nowait", lambda held, *how: not held._qsize()),
    (queue.Queue, "full put put_nowait", lambda held, *item: 0 < held.maxsize <= held._qsize()),
]


#: Results of tasks: `distarray.runner.children` queries them for the program.
_RESULTS = (Future, ApplyResult)


def _asked(turns: Turns, real: Callable[P, Any], not_yet: Callable[..., bool]) -> Callable[P, Any]:
    """Wrap a query: other threads run first if its result is still negative."""

    def ask(*args: P.args, **kwargs: P.kwargs) -> Any:
        by_program = isinstance(args[0], _RESULTS) or belongs_to_program(sys._getframe(1))
        if by_program and turns.here() and not_yet(*args):
            turns.nap(_TICK)
        return real(*args, **kwargs)

    return update_wrapper(ask, real)


def _selects(turns: Turns, real: Callable[..., Any]) -> Callable[..., Any]:
    def select(self: selectors.BaseSelector, timeout: float | None = None) -> Any:
        """Wait until some registered file objects become ready."""
        until = None if timeout is None else time.monotonic() + timeout
        while turns.here() is not None:
            found = real(self, 0)
            left = _left(until)
            if found or left <= 0 or not turns.nap(left):
                return found or real(self, None if until is None else left)
        return real(self, timeout)

    return select


def _left(until: float | None) -> float:
    return math.inf if until is None else max(0.0, until - time.monotonic())


def _sleeps(turns: Turns) -> Callable[[float], None]:
    def sleep(seconds: float, /) -> None:
        seat = turns.here()
        if seat is None or seconds <= 0 or turns.alone():
            _real_sleep(seconds)
        else:
            turns.wait(Bell(turns, seat), seconds)

    return sleep
