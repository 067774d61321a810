"""Following a program: by every line it comes to, or by looking now and then where it is.

Since Python 3.12 the interpreter tells of the lines of chosen functions, which are the program's
own; the library's and all others run as always. Before, it could only be asked to tell of
everything, which takes many times as long: there a thread looks now and then.
"""

import os
import sys
from threading import Lock, Thread, get_ident
from time import perf_counter
from types import CodeType
from typing import Any, TypeAlias

from distarray.comm import hooks, thread_start
from distarray.comm.frames import current_frames
from distarray.comm.user_lines import is_house, is_library, is_ours, user_frames
from distarray.profiling.measured import Line
from distarray.profiling.recorder import Recorder, program_line
from distarray.profiling.statements import line_of

__all__ = ["Follower", "follow", "is_counted"]

#: Seconds between two looks at the beginning, and at most; and their share of the time so far. A
#: look takes a moment of this rank and, where ranks wait for one another, of the others as well.
_SHORTEST, _LONGEST, _SHARE = 1e-2, 4e-2, 4e-2
#: The interpreter's interface for tools, and numbers of tools that are not taken by custom.
_monitoring: Any = getattr(sys, "monitoring", None)
_NUMBERS = (2, 3, 4)
_NAME = "distarray"

_lock = Lock()
_tool = -1
_followed: dict[int, list[Recorder]] = {}
#: The lines that have been met.
_lines: dict[tuple[CodeType, int], Line] = {}


class Follower:
    """Follows a thread's program for a recorder, from the beginning until `stop`."""

    def stop(self) -> None:
        """Follow it no more."""


def is_counted() -> bool:
    """Whether every line can be followed here."""
    if _monitoring is None:
        return False
    return _tool >= 0 or any(_monitoring.get_tool(number) is None for number in _NUMBERS)


def follow(recorder: Recorder) -> Follower:
    """Begin to follow the program of this thread."""
    return _EveryLine(recorder) if recorder.part.counted else _Looks(recorder)


# -- every line ------------------------------------------------------------------------------------


class _EveryLine(Follower):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        with _lock:
            if not _followed:
                _begin()
            _followed.setdefault(recorder.thread, []).append(recorder)
        for frame in user_frames(sys._getframe(1)):
            if not (is_library(frame) or is_ours(frame.f_code.co_filename)):
                _tell_of(frame.f_code)

    def stop(self) -> None:
        """Follow it no more."""
        with _lock:
            recorders = _followed.get(self._recorder.thread, [])
            if self._recorder in recorders:
                recorders.remove(self._recorder)
            if not recorders:
                _followed.pop(self._recorder.thread, None)
            if not _followed:
                _end()


#: What the interpreter may answer.
_Answer: TypeAlias = Any


def _begin() -> None:
    """Take a tool's number, and have the interpreter tell when a function begins."""
    global _tool
    events = _monitoring.events
    _tool = next(number for number in _NUMBERS if _monitoring.get_tool(number) is None)
    _monitoring.use_tool_id(_tool, _NAME)
    for event, act in (
        (events.PY_START, _on_start),
        (events.LINE, _on_line),
        (events.PY_RETURN, _on_return),
        (events.PY_YIELD, _on_return),
    ):
        _monitoring.register_callback(_tool, event, act)
    _monitoring.set_events(_tool, events.PY_START)
    _monitoring.restart_events()


def _end() -> None:
    global _tool
    number, _tool = _tool, -1
    if number < 0:
        return
    _monitoring.set_events(number, 0)
    for code in _told:
        _monitoring.set_local_events(number, code, 0)
    _lines.clear()
    _told.clear()
    _monitoring.free_tool_id(number)


_told: set[CodeType] = set()


def _tell_of(code: CodeType) -> None:
    """Have the interpreter tell of the lines of a function."""
    if code not in _told:
        _told.add(code)
        events = _monitoring.events
        wanted = events.LINE | events.PY_RETURN | events.PY_YIELD
        _monitoring.set_local_events(_tool, code, wanted)


def _on_start(code: CodeType, instruction: int) -> _Answer:
    frame = sys._getframe(1)
    if not (is_house(frame) or is_library(frame) or is_ours(code.co_filename)):
        _tell_of(code)
    return _monitoring.DISABLE  # this function is known from now on


def _on_line(code: CodeType, number: int) -> _Answer:
    recorders = _followed.get(get_ident())
    if recorders is not None:
        now = perf_counter()
        line = _lines.get((code, number))
        if line is None:
            line = _lines[code, number] = line_of(code.co_filename, number)
        for recorder in recorders:
            recorder.moved(line, now, True)


def _on_return(code: CodeType, instruction: int, value: object) -> _Answer:
    recorders = _followed.get(get_ident())
    if recorders is not None:
        now = perf_counter()
        line = program_line(sys._getframe(1).f_back)
        for recorder in recorders:
            recorder.moved(line, now, False)


# -- looks -----------------------------------------------------------------------------------------


class _Looks(Follower):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._enough = Lock()  # free once it is enough
        self._enough.acquire()
        self._thread = Thread(target=self._look, name="distarray-profile", daemon=True)
        error = thread_start.try_start(self._thread)
        if error is not None:
            hooks.say(f"the lines of this rank are not followed: {error}")

    def stop(self) -> None:
        """Follow it no more."""
        self._enough.release()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> None:
        recorder, interval = self._recorder, _SHORTEST
        while not self._enough.acquire(timeout=interval):
            # No frame is kept until the next look: it would keep the arrays that it refers to.
            recorder.current = program_line(current_frames().get(recorder.thread))
            now = perf_counter()
            recorder.charge(recorder.current, now)
            interval = max(_SHORTEST, min(_LONGEST, _SHARE * (now - recorder.part.begun)))


def _in_forked_child() -> None:
    """A child is not followed: what it does is not the rank's."""
    global _lock
    _lock = Lock()
    _followed.clear()
    if _tool >= 0:
        _end()


os.register_at_fork(after_in_child=_in_forked_child)
