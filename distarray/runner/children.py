"""Processes that the program starts: each rank has its own, and all ranks take rank 0's results.

Every rank makes the pools and processes that the program makes, and its children compute as if they
were alone. What they draw, and which of them is first, differs from rank to rank; so what the
program receives of them is what rank 0 has received. What it hands to them is pickled where it
hands it over: pools and queues do that in threads of their own, which cannot gather an array.
"""

import concurrent.futures
import multiprocessing.util
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial, update_wrapper
from multiprocessing import pool as pools
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseProxy
from multiprocessing.process import BaseProcess
from multiprocessing.queues import JoinableQueue, Queue, SimpleQueue
from multiprocessing.reduction import ForkingPickler
from types import FrameType
from typing import Any

import numpy as np

import distarray
from distarray.runner.answers import Answers
from distarray.runner.imports import belongs_to_program
from distarray.runner.step import the_program_calls
from distarray.runner.turns import TURNS

__all__ = ["install", "rank_0s", "submitting", "whole"]

Concerned = Callable[[Any, FrameType], bool]
Dumps = Callable[[Any], Any]

_real_completed = concurrent.futures.as_completed
_real_wait: Any = concurrent.futures.wait
_real_pool: Any = pools.Pool.__init__
_real_start: Any = BaseProcess.start
_real_spawn: Any = multiprocessing.util.spawnv_passfds


def install(answers: Answers) -> None:
    """Have the program's processes give the same results on all ranks."""
    executors, multi = _any(ProcessPoolExecutor), _any(pools.Pool)
    executors.submit = submitting(ProcessPoolExecutor.submit)
    multi.__init__ = _making(answers)
    for queues in (Queue, JoinableQueue):
        _any(queues).put = _putting(queues.put)
    _any(BaseProcess).start = _start
    _any(concurrent.futures).as_completed = _completing(answers)
    _any(concurrent.futures).wait = _waiting(answers)
    for kind, names, concerned in _RECEIVING:
        for name in names.split():
            _share(kind, name, answers, concerned)
    for results in (pools.IMapIterator, pools.IMapUnorderedIterator):
        _any(results).__next__ = results.next
    if answers.rank:
        _any(multiprocessing.util).spawnv_passfds = _quietly


def _any(value: Any) -> Any:
    return value


def rank_0s(answers: Answers, act: Callable[[], Any]) -> Any:
    """What `act`, which all ranks do, gives on rank 0, or raises there."""
    value: Any = None
    failure: BaseException | None = None
    with TURNS.kept():
        try:
            value = act()
        except Exception as error:
            failure = error
    answers.meet()  # what a child has written before, all ranks' children have

    def outcome() -> tuple[bool, Any]:
        if failure is not None:
            raise failure
        return (False, None) if isinstance(value, BaseProxy) else (True, value)

    same, shared = answers.ask(outcome)
    return shared if same else value


def _share(kind: Any, name: str, answers: Answers, concerned: Concerned) -> None:
    """Have a method give what it gives on rank 0 where the program calls it."""
    real = getattr(kind, name, None)
    if real is None:
        return

    def shared(self: Any, *args: Any, **kwargs: Any) -> Any:
        frame = sys._getframe(1)
        if concerned(self, frame) and the_program_calls(frame):
            return rank_0s(answers, lambda: real(self, *args, **kwargs))
        return real(self, *args, **kwargs)

    setattr(kind, name, update_wrapper(shared, real))


def _always(self: Any, frame: FrameType) -> bool:
    return True


def _directly(self: Any, frame: FrameType) -> bool:
    """What the standard library receives, it receives of a process of this rank's."""
    return belongs_to_program(frame)


def _is_shared(future: Any, frame: FrameType | None = None) -> bool:
    return "_distarray_shared" in future.__dict__


def _of_shared_pool(result: Any, frame: FrameType) -> bool:
    return hasattr(result._cache, "_distarray_shared")


#: By what the program receives something of its processes.
_RECEIVING: list[tuple[Any, str, Concerned]] = [
    (Queue, "get empty qsize", _directly),
    (SimpleQueue, "get empty", _directly),
    (Connection.__mro__[1], "recv recv_bytes poll", _directly),
    (BaseProcess, "join is_alive", _directly),
    (BaseProxy, "_callmethod", _always),
    (Future, "result exception done", _is_shared),
    (pools.ApplyResult, "get ready wait successful", _of_shared_pool),
    (pools.IMapIterator, "next", _of_shared_pool),
    (pools.IMapUnorderedIterator, "next", _of_shared_pool),
]


# -- handing over ---------------------------------------------------------------------------------


def whole(value: Any) -> Any:
    """Arguments with NumPy's arrays in the place of distributed ones, which are gathered here."""
    if type(value) in (list, tuple):
        return type(value)([whole(item) for item in value])
    if type(value) is dict:
        return {key: whole(item) for key, item in value.items()}
    return np.array(value) if isinstance(value, distarray.DistArray) else value


class _Sealed(tuple):  # type: ignore[type-arg]
    """What is pickled already, and comes out as what it was; as a tuple, its beginning."""

    data: bytes

    def __reduce__(self) -> Any:
        return pickle.loads, (self.data,)


def _sealed(
    value: Any, beginning: tuple[Any, ...] = (), dumps: Dumps = ForkingPickler.dumps
) -> Any:
    """A value pickled now; itself if it cannot be, which is told where it was to be pickled."""
    try:
        data = bytes(dumps(value))
    except Exception:
        return value
    sealed = _Sealed(beginning)
    sealed.data = data
    return sealed


def submitting(real: Callable[..., Any], dumps: Dumps = ForkingPickler.dumps) -> Callable[..., Any]:
    """The method `submit` of executors that have processes, and by what they pickle."""
    sealed = partial(_sealed, dumps=dumps)

    def submit(self: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Submit a callable to be executed with the given arguments."""
        if not the_program_calls(sys._getframe(1)):
            return real(self, fn, *args, **kwargs)
        self._initargs = whole(self._initargs)
        named = {name: sealed(value) for name, value in kwargs.items()}
        future: Any = real(self, sealed(fn), *map(sealed, args), **named)
        future._distarray_shared = True
        return future

    return update_wrapper(submit, real)


def _putting(real: Callable[..., None]) -> Callable[..., None]:
    def put(self: Any, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put an item into the queue."""
        if the_program_calls(sys._getframe(1)):
            obj = _sealed(obj)
        real(self, obj, block, timeout)

    return update_wrapper(put, real)


def _start(self: Any) -> None:
    """Start child process."""
    if the_program_calls(sys._getframe(1)):  # a forked child finds its arguments in memory
        self._args, self._kwargs = whole(self._args), whole(self._kwargs)
    _real_start(self)


class _Tasks:
    """The queue of a pool's tasks, of which each is pickled before it is put there."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def put(self, item: Any) -> None:
        """Pickle, and put."""
        if item is not None:
            tasks, set_length = item
            item = [_sealed(task, tuple(task[:2])) for task in tasks], set_length
        self._real.put(item)


def _making(answers: Answers) -> Callable[..., None]:
    def begin(self: Any, *args: Any, **kwargs: Any) -> None:
        """Make a pool of processes."""
        shared = not isinstance(self, pools.ThreadPool) and the_program_calls(sys._getframe(1))
        if shared:
            args, kwargs = whole(args), whole(kwargs)
        _real_pool(self, *args, **kwargs)
        if shared:
            self._taskqueue = _Tasks(self._taskqueue)
            self._cache._distarray_shared = True

    return begin


def _quietly(path: Any, args: Any, passfds: Any) -> Any:
    """Start a process that has nowhere to write: rank 0's children are heard."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    try:
        return _real_spawn(path, args, passfds)
    finally:
        os.dup2(kept, 2)
        os.close(kept)


# -- waiting for several --------------------------------------------------------------------------


def _numbered(futures: Iterable[Any]) -> tuple[list[Any], bool]:
    """The futures, each once, in one order on all ranks; and whether any is a process's."""
    found = list(dict.fromkeys(futures))
    shared = any(_is_shared(future) for future in found)
    if shared:  # those of threads take their turns first: when they end, a process's do not tell
        _real_wait([future for future in found if not _is_shared(future)])
    return found, shared


def _completing(answers: Answers) -> Callable[..., Iterator[Any]]:
    def as_completed(fs: Iterable[Any], timeout: float | None = None) -> Iterator[Any]:
        """An iterator over the given futures that yields each as it completes."""
        futures, shared = _numbered(fs)
        if not shared or not the_program_calls(sys._getframe(1)):
            return _real_completed(futures, timeout)
        return _in_rank_0s_order(answers, futures, timeout)

    return as_completed


def _in_rank_0s_order(answers: Answers, futures: list[Any], timeout: float | None) -> Iterator[Any]:
    completed = _real_completed(futures, timeout)
    place = {id(future): number for number, future in enumerate(futures)}
    for _ in futures:
        yield futures[rank_0s(answers, lambda: place[id(next(completed))])]


def _waiting(answers: Answers) -> Callable[..., Any]:
    def wait(fs: Any, timeout: float | None = None, return_when: str = "ALL_COMPLETED") -> Any:
        """Wait for the futures in the given sequence to complete."""
        futures, shared = _numbered(fs)
        if not shared or not the_program_calls(sys._getframe(1)):
            return _real_wait(futures, timeout, return_when)
        found = _real_wait(futures, timeout, return_when)
        ready = answers.ask(lambda: [future in found.done for future in futures])
        parts = [{f for f, is_done in zip(futures, ready) if is_done is b} for b in (True, False)]
        return type(found)(*parts)

    return wait
