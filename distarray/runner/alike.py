"""One clock, one process number and one order of sets for all ranks.

These differ between processes. A program that branches on one of them would take different branches
on different ranks, and the ranks would wait for one another forever.
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
from types import ClassMethodDescriptorType, ModuleType
from typing import Any, Concatenate, ParamSpec

from distarray.comm.processes import mpi_is_the_parents
from distarray.runner.answers import Answers
from distarray.runner.imports import belongs_to_program, replace_builtin
from distarray.runner.standing import StandIn, put_in_place
from distarray.runner.step import in_step

__all__ = ["install", "same_order"]

CLOCKS = ("monotonic", "perf_counter", "process_time", "thread_time", "time")
#: Functions of `time` that use the current time by default, and the position of the time argument.
CALENDARS = {"asctime": 0, "ctime": 0, "gmtime": 0, "localtime": 0, "strftime": 1}
#: Other functions with a different result on each process.
OTHERS = {
    os: ("getloadavg", "times"),
    resource: ("getrusage",),
    uuid: ("getnode", "uuid1", "uuid6", "uuid7"),
}

P = ParamSpec("P")
Moment = type[datetime.datetime]

_real_getpid = os.getpid
_real_kill = os.kill
_real_time = time.time


def same_order() -> None:
    """Restart with a fixed hash seed, so that sets of strings have one order on all ranks.

    The interpreter reads the seed when it starts, so this replaces the process, unless the
    environment already has a seed. Call it before MPI starts.
    """
    seed = os.environ.get("PYTHONHASHSEED", "random")
    if seed == "random" and not sys.flags.ignore_environment and sys.executable:
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def install(answers: Answers, process: int) -> None:
    """Give the program rank 0's clock and rank 0's process number."""
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
    """Return True if the program, or `timeit` for it, calls in step with the other ranks."""
    frame = sys._getframe(depth + 1)
    timed = frame.f_globals.get("__name__") == "timeit"
    return (timed or belongs_to_program(frame)) and in_step()


def _replace(module: ModuleType, name: str, answers: Answers, position: int | None = None) -> None:
    """Give all ranks rank 0's result of a function, unless the time is in its arguments."""
    real = getattr(module, name, None)
    if real is None:
        return
    put_in_place(module, name, _answered(real, answers, position))


def _answered(real: Callable[P, Any], answers: Answers, position: int | None) -> Callable[P, Any]:
    def answered(*args: P.args, **kwargs: P.kwargs) -> Any:
        given = position is not None and len(args) > position and args[position] is not None
        if given or not _asks(1):
            return real(*args, **kwargs)
        return answers.ask(lambda: real(*args, **kwargs))

    return answered


def _replace_days(answers: Answers) -> None:
    """Replace class methods of `datetime`; its classes, which are C types, remain."""

    def now(cls: Moment, tz: datetime.tzinfo | None = None) -> datetime.datetime:
        return cls.fromtimestamp(answers.ask(_real_time), tz)

    def utcnow(cls: Moment) -> datetime.datetime:
        return now(cls, datetime.UTC).replace(tzinfo=None)

    def today(cls: type[datetime.date]) -> datetime.date:
        return cls.fromtimestamp(answers.ask(_real_time))

    named: dict[Any, dict[str, Callable[..., Any]]] = {
        datetime.datetime: {"now": now, "today": today, "utcnow": utcnow},
        datetime.date: {"today": today},
    }
    for kind, functions in named.items():
        spaces = [found for found in gc.get_referents(kind.__dict__) if type(found) is dict]
        if len(spaces) != 1:
            return  # not CPython: each rank has its own time
        for name, function in functions.items():
            if name in spaces[0]:
                spaces[0][name] = classmethod(_asking(function, spaces[0][name]))
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


def _asking(
    function: Callable[Concatenate[type, P], Any], real: ClassMethodDescriptorType
) -> Callable[Concatenate[type, P], Any]:
    def asked(cls: type, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        if _asks(1):
            return function(cls, *args, **kwargs)
        return real.__get__(None, cls)(*args, **kwargs)

    return asked


def _replace_identities(answers: Answers) -> None:
    """Give the program rank 0's `id` of an object, so that sorting by it is equal on all ranks."""

    def identity(obj: object, /) -> Any:
        return answers.ask(lambda: id(obj)) if in_step() else id(obj)

    replace_builtin("id", StandIn(update_wrapper(identity, id)))


def _replace_number(process: int) -> None:
    """Give the program rank 0's process number, used in file names, and redirect signals to it."""

    def getpid() -> int:
        own = not belongs_to_program(sys._getframe(1)) or mpi_is_the_parents()
        return _real_getpid() if own else process

    def kill(pid: int, signal: int, /) -> None:
        own = pid == process and belongs_to_program(sys._getframe(1)) and not mpi_is_the_parents()
        _real_kill(_real_getpid() if own else pid, signal)

    put_in_place(os, "getpid", getpid)
    put_in_place(os, "kill", kill)
