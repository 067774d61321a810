"""What differs from process to process and must not from rank to rank: order, the clock, a name.

A program that branches on one of these would take different branches on different ranks, and the
ranks would wait for one another for ever.
"""

import ctypes
import datetime
import gc
import importlib
import os
import resource
import sys
import time
import uuid
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from distarray.comm.processes import mpi_is_the_parents
from distarray.runner.answers import Answers
from distarray.runner.imports import belongs_to_program, replace_builtin
from distarray.runner.standing import StandIn, put_in_place
from distarray.runner.step import in_step

__all__ = ["install", "same_order"]

CLOCKS = ("monotonic", "perf_counter", "process_time", "thread_time", "time")
#: What is told of the time by `time` itself unless it is handed one, and at which position.
CALENDARS = {"asctime": 0, "ctime": 0, "gmtime": 0, "localtime": 0, "strftime": 1}
#: Other questions to which each process has an answer of its own.
OTHERS = {
    os: ("getloadavg", "times"),
    resource: ("getrusage",),
    uuid: ("getnode", "uuid1", "uuid6", "uuid7"),
}

_real_getpid = os.getpid
_real_kill = os.kill
_real_time = time.time


def same_order() -> None:
    """Begin anew with a fixed hash seed, so that sets of strings have one order on all ranks.

    The seed is read when the interpreter starts, so this replaces the process, unless the
    environment has a seed already. To be called before MPI starts.
    """
    seed = os.environ.get("PYTHONHASHSEED", "random")
    if seed == "random" and not sys.flags.ignore_environment and sys.executable:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def install(answers: Answers, process: int) -> None:
    """Let the program read rank 0's clock, and its number of the `process`."""
    for name in (*CLOCKS, *(f"{name}_ns" for name in CLOCKS)):
        _replace(time, name, answers)
    for name, position in CALENDARS.items():
        _replace(time, name, answers, position)
    for module, names in OTHERS.items():
        for name in names:
            _replace(module, name, answers)
    _replace_days(answers)
    _replace_number(process)
    _replace_identities(answers)
    if "timeit" in sys.modules:  # it keeps the clock in tables
        importlib.reload(sys.modules["timeit"])


def _asks(depth: int) -> bool:
    """Whether the program asks, in step with the other ranks; or `timeit` on its behalf."""
    frame = sys._getframe(depth + 1)
    timed = frame.f_globals.get("__name__") == "timeit"
    return (timed or belongs_to_program(frame)) and in_step()


def _replace(module: Any, name: str, answers: Answers, position: int | None = None) -> None:
    """Have a function of a module answered by rank 0, unless the time is in its arguments."""
    real = getattr(module, name, None)
    if real is None:
        return

    def answered(*args: Any, **kwargs: Any) -> Any:
        given = position is not None and len(args) > position and args[position] is not None
        if given or not _asks(1):
            return real(*args, **kwargs)
        return answers.ask(lambda: real(*args, **kwargs))

    put_in_place(module, name, answered)


def _replace_days(answers: Answers) -> None:
    """The same for `datetime`, whose classes are C's: they stay, with other functions in them."""

    def now(cls: Any, tz: Any = None) -> Any:
        return cls.fromtimestamp(answers.ask(_real_time), tz)

    def utcnow(cls: Any) -> Any:
        return now(cls, datetime.UTC).replace(tzinfo=None)

    def today(cls: Any) -> Any:
        return cls.fromtimestamp(answers.ask(_real_time))

    named: dict[Any, dict[str, Callable[..., Any]]] = {
        datetime.datetime: {"now": now, "today": today, "utcnow": utcnow},
        datetime.date: {"today": today},
    }
    for kind, functions in named.items():
        spaces = [found for found in gc.get_referents(kind.__dict__) if type(found) is dict]
        if len(spaces) != 1:
            return  # not CPython's: each rank has its own
        for name, function in functions.items():
            if name in spaces[0]:
                spaces[0][name] = classmethod(_asking(function, spaces[0][name]))
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _asking(function: Callable[..., Any], real: Any) -> Callable[..., Any]:
    def asked(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if _asks(1):
            return function(cls, *args, **kwargs)
        return real.__get__(None, cls)(*args, **kwargs)

    return asked


def _replace_identities(answers: Answers) -> None:
    """Give the program rank 0's `id` of an object, so that what is sorted by it is alike."""

    def identity(obj: object, /) -> Any:
        return answers.ask(lambda: id(obj)) if in_step() else id(obj)

    replace_builtin("id", StandIn(update_wrapper(identity, id)))


def _replace_number(process: int) -> None:
    """The program's number is rank 0's: it is used in names of files. Signals find their way."""

    def getpid() -> int:
        own = not belongs_to_program(sys._getframe(1)) or mpi_is_the_parents()
        return _real_getpid() if own else process

    def kill(pid: int, signal: int, /) -> None:
        own = pid == process and belongs_to_program(sys._getframe(1)) and not mpi_is_the_parents()
        _real_kill(_real_getpid() if own else pid, signal)

    put_in_place(os, "getpid", getpid)
    put_in_place(os, "kill", kill)
