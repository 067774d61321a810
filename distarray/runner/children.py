"""Processes that the program starts: each rank has its own, and all ranks use rank 0's results.

Every rank creates the pools and processes that the program creates, and their children compute
alone. Their random numbers and their order differ from rank to rank. So the program receives on all
ranks the data that rank 0 has received. Arguments are pickled where the program passes them: pools
and queues would pickle them in threads of their own, which cannot gather an array.
"""

import concurrent.futures
import multiprocessing.util
import os
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial, update_wrapper
from multiprocessing import pool as pools
from multiprocessing.connection import Connection
from multiprocessing.managers import BaseProxy
from multiprocessing.process import BaseProcess
from multiprocessing.queues import JoinableQueue, Queue, SimpleQueue
from multiprocessing.reduction import ForkingPickler
from types import FrameType
from typing import Any, ParamSpec

import numpy as np

import distarray
from distarray.runner.answers import Answers
from distarray.runner.imports import belongs_to_program
from distarray.runner.step import the_program_calls
from distarray.runner.turns import TURNS

__all__ = ["install", "rank_0s", "submitting", "whole"]

Concerned = Callable[[Any, FrameType], bool]
Dumps = Callable[[Any], Any]
P = ParamSpec("P")
Futures = Iterable[Future[Any]]

_real_completed = concurrent.futures.as_completed
_real_wait: Any = concurrent.futures.wait
_real_pool: Any = pools.Pool.__init__
_real_start: Any = BaseProcess.start
_real_spawn: Any = multiprocessing.util.spawnv_passfds


def install(answers: Answers) -> None:
    """Make the program's processes give the same results on all ranks."""
    for kind, names, concerned in _RECEIVING:
        for name in names.split():
            _share(kind, name, answers, concerned)
    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        (ProcessPoolExecutor, "submit", submitting(ProcessPoolExecutor.submit)),
        (pools.Pool, "__init__", _making(answers)),
        *[(queues, "put", _putting(queues.put)) for queues in (Queue, JoinableQueue)],
        (BaseProcess, "start", _start),
        (concurrent.futures, "as_completed", _completing(answers)),
        (concurrent.futures, "wait", _waiting(answers)),
        (pools.IMapIterator, "__next__", pools.IMapIterator.next),
        (pools.IMapUnorderedIterator, "__next__", pools.IMapUnorderedIterator.next),
    ]
    if answers.rank:
        replaced.append((multiprocessing.util, "spawnv_passfds", _quietly))
    for owner, name, function in replaced:
        setattr(owner, name, function)


def rank_0s(answers: Answers, act: Callable[[], Any]) -> Any:
    """Call `act` on all ranks; return rank 0's result, or raise its exception, on all ranks."""
    value: Any = None
    failure: BaseException | None = None
    with TURNS.kept():
        try:
            value = act()
        except Exception as error:
            failure = error
    answers.meet()  # files that children have written now exist for all ranks

    def outcome() -> tuple[bool, Any]:
        if failure is not None:
            raise failure
        return (False, None) if isinstance(value, BaseProxy) else (True, value)

    same, shared = answers.ask(outcome)
    return shared if same else value


def _share(kind: type, name: str, answers: Answers, concerned: Concerned) -> None:
    """Make a method that the program calls return rank 0's result on all ranks."""
    real = getattr(kind, name, None)
    if real is not None:
        setattr(kind, name, update_wrapper(_shared(real, answers, concerned), real))


def _shared(real: Callable[P, Any], answers: Answers, concerned: Concerned) -> Callable[P, Any]:
    def shared(*args: P.args, **kwargs: P.kwargs) -> Any:
        frame = sys._getframe(1)
        if concerned(args[0], frame) and the_program_calls(frame):
            return rank_0s(answers, lambda: real(*args, **kwargs))
        return real(*args, **kwargs)

    return shared


def _always(self: BaseProxy, frame: FrameType) -> bool:
    return True


def _directly(self: Any, frame: FrameType) -> bool:
    """Return True if the program calls directly; the standard library receives on its own rank."""
    return belongs_to_program(frame)


def _is_shared(future: Future[Any], frame: FrameType | None = None) -> bool:
    return "_distarray_shared" in future.__dict__


def _of_shared_pool(result: Any, frame: FrameType) -> bool:
    return hasattr(result._cache, "_distarray_shared")


#: Methods by which the program receives data from its processes.
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


# -- sending to processes --------------------------------------------------------------------------


def whole(value: Any) -> Any:
    """Gather the distributed arrays in arguments into NumPy arrays."""
    if type(value) in (list, tuple):
        return type(value)([whole(item) for item in value])
    if type(value) is dict:
        return {key: whole(item) for key, item in value.items()}
    return np.array(value) if isinstance(value, distarray.DistArray) else value


class _Sealed(tuple):  # type: ignore[type-arg]
    """Value that is already pickled; as a tuple, the first items of the value."""

    data: bytes

    def __reduce__(self) -> Any:
        return pickle.loads, (self.data,)


def _sealed(
    value: Any, beginning: tuple[Any, ...] = (), dumps: Dumps = ForkingPickler.dumps
) -> Any:
    """Pickle early; on failure return the value, so that the error is raised at the usual place."""
    try:
        data = bytes(dumps(value))
    except Exception:
        return value
    sealed = _Sealed(beginning)
    sealed.data = data
    return sealed


def submitting(real: Callable[..., Any], dumps: Dumps = ForkingPickler.dumps) -> Callable[..., Any]:
    """Make the method `submit` of executors of processes, which pickle by `dumps`."""
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
    def put(self: "Queue[Any]", obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Put an item into the queue."""
        if the_program_calls(sys._getframe(1)):
            obj = _sealed(obj)
        real(self, obj, block, timeout)

    return update_wrapper(put, real)


def _start(self: BaseProcess) -> None:
    """Start child process."""
    if the_program_calls(sys._getframe(1)):  # a forked child finds its arguments in memory
        process: Any = self
        process._args, process._kwargs = whole(process._args), whole(process._kwargs)
    _real_start(self)


class _Tasks:
    """Queue of a pool's tasks, which pickles each task before queueing it."""

    def __init__(self, real: "SimpleQueue[Any]") -> None:
        self._real = real

    def put(self, item: tuple[Iterable[Any], Callable[..., None] | None] | None) -> None:
        """Pickle tasks, and put them into the queue."""
        if item is not None:
            tasks, set_length = item
            item = [_sealed(task, tuple(task[:2])) for task in tasks], set_length
        self._real.put(item)


def _making(answers: Answers) -> Callable[..., None]:
    def begin(self: pools.Pool, *args: Any, **kwargs: Any) -> None:
        """Make a pool of processes."""
        shared = not isinstance(self, pools.ThreadPool) and the_program_calls(sys._getframe(1))
        if shared:
            args, kwargs = whole(args), whole(kwargs)
        _real_pool(self, *args, **kwargs)
        if shared:
            names: Any = self
            names._taskqueue = _Tasks(names._taskqueue)
            names._cache._distarray_shared = True

    return begin


def _quietly(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Start a process without standard error, so that only rank 0's children print errors."""
    kept, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    os.close(null)
    try:
        return int(_real_spawn(path, args, passfds))
    finally:
        os.dup2(kept, 2)
        os.close(kept)


# -- waiting for several futures -------------------------------------------------------------------


def _numbered(futures: Iterable[Future[Any]]) -> tuple[list[Future[Any]], bool]:
    """Return the futures once each, in one order on all ranks, and True if any is a process's."""
    found = list(dict.fromkeys(futures))
    shared = any(_is_shared(future) for future in found)
    if shared:  # threads finish in turns first, whenever the processes do
        _real_wait([future for future in found if not _is_shared(future)])
    return found, shared


def _completing(answers: Answers) -> Callable[..., Iterator[Any]]:
    def as_completed(fs: Futures, timeout: float | None = None) -> Iterator[Future[Any]]:
        """An iterator over the given futures that yields each as it completes."""
        futures, shared = _numbered(fs)
        if not shared or not the_program_calls(sys._getframe(1)):
            return _real_completed(futures, timeout)
        return _in_rank_0s_order(answers, futures, timeout)

    return as_completed


def _in_rank_0s_order(
    answers: Answers, futures: list[Future[Any]], timeout: float | None
) -> Iterator[Future[Any]]:
    completed = _real_completed(futures, timeout)
    place = {id(future): number for number, future in enumerate(futures)}
    for _ in futures:
        yield futures[rank_0s(answers, lambda: place[id(next(completed))])]


def _waiting(answers: Answers) -> Callable[..., Any]:
    def wait(fs: Futures, timeout: float | None = None, return_when: str = "ALL_COMPLETED") -> Any:
        """Wait for the futures in the given sequence to complete."""
        futures, shared = _numbered(fs)
        if not shared or not the_program_calls(sys._getframe(1)):
            return _real_wait(futures, timeout, return_when)
        found = _real_wait(futures, timeout, return_when)
        ready = answers.ask(lambda: [future in found.done for future in futures])
        parts = [{f for f, is_done in zip(futures, ready) if is_done is b} for b in (True, False)]
        return type(found)(*parts)

    return wait
