"""Thread pools that the program makes run their tasks in turns, in the order of submission.

They are the standard library's own; their threads take turns (see `distarray.runner.turns`). A task
begins when it is submitted, and whoever has submitted it goes on when it ends or waits. Pools of
libraries stay as they are.
"""

import itertools
import os
import queue
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from multiprocessing.pool import CLOSE, RUN, TERMINATE, ThreadPool
from typing import Any, cast
from weakref import WeakSet

from distarray.runner.step import the_program_calls
from distarray.runner.turns import TURNS

__all__ = ["finish", "install"]

_real_init = ThreadPoolExecutor.__init__
_real_submit = ThreadPoolExecutor.submit
_real_adjust: Any = ThreadPoolExecutor._adjust_thread_count
_real_pool_init: Any = ThreadPool.__init__

_executors: WeakSet[ThreadPoolExecutor] = WeakSet()
_number = itertools.count(1)


def install() -> None:
    """Have the program's pools take turns."""
    executors: Any = ThreadPoolExecutor
    executors.__init__, executors.submit = _init, _submit
    executors._adjust_thread_count = _adjust
    threads, futures = cast("Any", ThreadPool), cast("Any", Future)
    threads.__init__, futures.__hash__ = _pool_init, _hash


def finish() -> None:
    """Do what Python does at its end: executors finish their tasks, other pools give theirs up."""
    made: list[Any] = [*_executors]
    for executor in sorted(made, key=lambda executor: executor._distarray_number):
        executor.shutdown(wait=not executor._distarray_daemon)
    TURNS.finish()


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    """Initialize a new ThreadPoolExecutor instance."""
    _real_init(self, *args, **kwargs)
    if the_program_calls(sys._getframe(1)):
        _seat(self)


def _seat(executor: Any, daemon: bool = False) -> Any:
    """Have the threads of an executor take turns."""
    TURNS.begin()
    executor._work_queue = queue.Queue()  # where a thread waits, and leaves its turn to others
    executor._distarray_number = next(_number)
    executor._distarray_daemon = daemon
    _executors.add(executor)
    return executor


def _submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Submit a callable to be executed with the given arguments."""
    future: Any = _real_submit(self, fn, *args, **kwargs)
    if self in _executors and TURNS.here() is not None:
        future._distarray_number = next(_number)
        TURNS.give_way()
    return future


def _adjust(self: Any) -> None:
    """Start another thread if none is idle."""
    if self not in _executors or TURNS.here() is None:
        _real_adjust(self)
        return
    with TURNS.starting():
        _real_adjust(self)


def _hash(self: Any) -> int:
    """Sets of futures are gone through in one order on all ranks."""
    number: int | None = self.__dict__.get("_distarray_number")
    return object.__hash__(self) if number is None else number


def _pool_init(self: Any, *args: Any, **kwargs: Any) -> None:
    """Make a pool of threads."""
    if self.__class__ is ThreadPool and the_program_calls(sys._getframe(1)):
        self.__class__ = _Pool
        _Pool.begin(cast("Any", self), *args, **kwargs)
    else:
        _real_pool_init(self, *args, **kwargs)


class _Pool(ThreadPool):
    """A pool of the other kind, on an executor; another one hands the tasks on one by one."""

    def begin(
        self, processes: int | None = None, initializer: Any = None, initargs: Any = ()
    ) -> None:
        """What makes it."""
        count = (os.cpu_count() or 1) if processes is None else processes
        if count < 1:
            raise ValueError("Number of processes must be at least 1")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        names: Any = self
        workers = ThreadPoolExecutor(count, "ThreadPool", initializer, initargs)
        self._workers = _seat(workers, daemon=True)
        self._hands = _seat(ThreadPoolExecutor(1, "ThreadPool"), daemon=True)
        names._pool, names._processes, names._cache = [None] * count, count, {}
        names._taskqueue = self
        names._state = RUN

    def put(self, work: Any) -> None:
        """What the methods of a pool hand to its threads."""
        self._hands.submit(self._hand_on, *work)

    def _hand_on(self, tasks: Any, set_length: Any) -> None:
        count = 0
        for task in tasks:
            if self._ended():
                return
            count = task[1] + 1
            future = self._workers.submit(self._run, *task)
            future.add_done_callback(partial(self._failed, task))
        if set_length is not None:
            set_length(count)

    def _run(self, job: Any, i: int, function: Any, args: Any, kwargs: Any) -> None:
        try:
            result: tuple[bool, Any] = True, function(*args, **kwargs)
        except Exception as error:
            result = False, error
        self._tell(job, i, result)

    def _failed(self, task: Any, future: Any) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._tell(task[0], task[1], (False, error))

    def _tell(self, job: Any, i: int, result: tuple[bool, Any]) -> None:
        names: Any = self
        if job in names._cache:
            names._cache[job]._set(i, result)

    def _ended(self) -> bool:
        names: Any = self
        return bool(names._state == TERMINATE)

    def close(self) -> None:
        """Prevent any more tasks from being submitted to the pool."""
        names: Any = self
        names._state = names._state if self._ended() else CLOSE

    def terminate(self) -> None:
        """Stop without completing outstanding work."""
        names: Any = self
        names._state = TERMINATE
        for executor in (self._hands, self._workers):
            executor.shutdown(wait=False, cancel_futures=True)

    def join(self) -> None:
        """Wait for the threads to exit; after `close` or `terminate`."""
        names: Any = self
        if names._state == RUN:
            raise ValueError("Pool is still running")
        for executor in (self._hands, self._workers):
            executor.shutdown()
