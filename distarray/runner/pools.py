"""Thread pools of the program: they run their tasks in turns, in the order of submission.

The pools are the standard library's own; their threads take turns (see `distarray.runner.turns`). A
task begins when it is submitted, and the submitting thread continues when the task ends or waits.
Pools of libraries are unchanged.
"""

import itertools
import os
import queue
import sys
from collections.abc import Callable, Iterable
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
    """Make the threads of the program's pools take turns."""
    executors: Any = ThreadPoolExecutor
    executors.__init__, executors.submit = _init, _submit
    executors._adjust_thread_count = _adjust
    threads, futures = cast("Any", ThreadPool), cast("Any", Future)
    threads.__init__, futures.__hash__ = _pool_init, _hash


def finish() -> None:
    """Shut down as Python does at exit: executors finish their tasks, other pools drop theirs."""
    made: list[Any] = [*_executors]
    for executor in sorted(made, key=lambda executor: executor._distarray_number):
        executor.shutdown(wait=not executor._distarray_daemon)
    TURNS.finish()


def _init(self: ThreadPoolExecutor, *args: Any, **kwargs: Any) -> None:
    """Initialize a new ThreadPoolExecutor instance."""
    _real_init(self, *args, **kwargs)
    if the_program_calls(sys._getframe(1)):
        _seat(self)


def _seat(executor: ThreadPoolExecutor, daemon: bool = False) -> ThreadPoolExecutor:
    """Make the threads of an executor take turns."""
    TURNS.begin()
    names: Any = executor
    names._work_queue = queue.Queue()  # a thread that waits there passes its turn to others
    names._distarray_number = next(_number)
    names._distarray_daemon = daemon
    _executors.add(executor)
    return executor


def _submit(
    self: ThreadPoolExecutor, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Future[Any]:
    """Submit a callable to be executed with the given arguments."""
    future = _real_submit(self, fn, *args, **kwargs)
    if self in _executors and TURNS.here() is not None:
        vars(future)["_distarray_number"] = next(_number)
        TURNS.give_way()
    return future


def _adjust(self: ThreadPoolExecutor) -> None:
    """Start another thread if none is idle."""
    if self not in _executors or TURNS.here() is None:
        _real_adjust(self)
        return
    with TURNS.starting():
        _real_adjust(self)


def _hash(self: Future[Any]) -> int:
    """Return a hash that gives sets of futures one order on all ranks."""
    number: int | None = self.__dict__.get("_distarray_number")
    return object.__hash__(self) if number is None else number


def _pool_init(self: ThreadPool, *args: Any, **kwargs: Any) -> None:
    """Make a pool of threads."""
    if self.__class__ is ThreadPool and the_program_calls(sys._getframe(1)):
        self.__class__ = _Pool
        _Pool.begin(cast("_Pool", self), *args, **kwargs)
    else:
        _real_pool_init(self, *args, **kwargs)


#: Task of a pool: number of its job, number in the job, function, arguments, keyword arguments.
_Task = tuple[int, int, Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class _Pool(ThreadPool):
    """Pool on an executor, as `multiprocessing.pool.ThreadPool`; another one submits the tasks."""

    def begin(
        self,
        processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
    ) -> None:
        """Initialize the pool."""
        count = (os.cpu_count() or 1) if processes is None else processes
        if count < 1:
            raise ValueError("Number of processes must be at least 1")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        names: Any = self
        workers = ThreadPoolExecutor(count, "ThreadPool", initializer, tuple(initargs))
        self._workers = _seat(workers, daemon=True)
        self._hands = _seat(ThreadPoolExecutor(1, "ThreadPool"), daemon=True)
        names._pool, names._processes, names._cache = [None] * count, count, {}
        names._taskqueue = self
        names._state = RUN

    def put(self, work: tuple[Iterable[_Task], Callable[[int], None] | None]) -> None:
        """Accept tasks from the pool's methods."""
        self._hands.submit(self._hand_on, *work)

    def _hand_on(self, tasks: Iterable[_Task], set_length: Callable[[int], None] | None) -> None:
        count = 0
        for task in tasks:
            if self._ended():
                return
            count = task[1] + 1
            future = self._workers.submit(self._run, *task)
            future.add_done_callback(partial(self._failed, task))
        if set_length is not None:
            set_length(count)

    def _run(
        self,
        job: int,
        i: int,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        try:
            result: tuple[bool, Any] = True, function(*args, **kwargs)
        except Exception as error:
            result = False, error
        self._tell(job, i, result)

    def _failed(self, task: _Task, future: Future[None]) -> None:
        error = None if future.cancelled() else future.exception()
        if error is not None:
            self._tell(task[0], task[1], (False, error))

    def _tell(self, job: int, i: int, result: tuple[bool, Any]) -> None:
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
