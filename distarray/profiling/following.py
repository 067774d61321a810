"""Line tracing of a program: by an event for each line, or by sampling the stack.

Since Python 3.12 the interpreter reports the lines of chosen functions (`sys.monitoring`). The
chosen functions are the program's own; the library's and all others run at full speed. Earlier
versions can only report the lines of all functions, which is many times slower. There a thread
samples the stack instead.
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

#: Minimum and maximum seconds between two samples, and the interval as a share of the elapsed time.
#: A sample costs time on this rank and, where ranks wait for one another, on the others too.
_SHORTEST, _LONGEST, _SHARE = 1e-2, 4e-2, 4e-2
#: The interpreter's monitoring interface, and tool numbers that no common tool uses.
_monitoring: Any = getattr(sys, "monitoring", None)
_NUMBERS = (2, 3, 4)
_NAME = "distarray"

_lock = Lock()
_tool = -1
_followed: dict[int, list[Recorder]] = {}
#: Lines executed so far, by code object and line number.
_lines: dict[tuple[CodeType, int], Line] = {}


class Follower:
    """Tracer of a thread's program for a recorder, from its creation until `stop`."""

    def stop(self) -> None:
        """Stop tracing."""


def is_counted() -> bool:
    """Return True if every line can be traced in this process."""
    if _monitoring is None:
        return False
    return _tool >= 0 or any(_monitoring.get_tool(number) is None for number in _NUMBERS)


def follow(recorder: Recorder) -> Follower:
    """Begin to trace the program of this thread."""
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
        """Stop tracing this recorder's thread."""
        with _lock:
            recorders = _followed.get(self._recorder.thread, [])
            if self._recorder in recorders:
                recorders.remove(self._recorder)
            if not recorders:
                _followed.pop(self._recorder.thread, None)
            if not _followed:
                _end()


#: Return value of a monitoring callback.
_Answer: TypeAlias = Any


def _begin() -> None:
    """Claim a tool number, register the callbacks, and enable the event for function starts."""
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
    """Enable the line events of a function."""
    if code not in _told:
        _told.add(code)
        events = _monitoring.events
        wanted = events.LINE | events.PY_RETURN | events.PY_YIELD
        _monitoring.set_local_events(_tool, code, wanted)


def _on_start(code: CodeType, instruction: int) -> _Answer:
    frame = sys._getframe(1)
    if not (is_house(frame) or is_library(frame) or is_ours(code.co_filename)):
        _tell_of(code)
    return _monitoring.DISABLE  # no more start events for this function


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


# -- sampling --------------------------------------------------------------------------------------


class _Looks(Follower):
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._enough = Lock()  # released to stop the thread
        self._enough.acquire()
        self._thread = Thread(target=self._look, name="distarray-profile", daemon=True)
        error = thread_start.try_start(self._thread)
        if error is not None:
            hooks.say(f"the lines of this rank are not followed: {error}")

    def stop(self) -> None:
        """Stop sampling."""
        self._enough.release()
        if self._thread.is_alive():
            self._thread.join()

    def _look(self) -> None:
        recorder, interval = self._recorder, _SHORTEST
        while not self._enough.acquire(timeout=interval):
            # Keep no frame until the next sample: it would keep the arrays that it refers to alive.
            recorder.current = program_line(current_frames().get(recorder.thread))
            now = perf_counter()
            recorder.charge(recorder.current, now)
            interval = max(_SHORTEST, min(_LONGEST, _SHARE * (now - recorder.part.begun)))


def _in_forked_child() -> None:
    """Stop tracing in a forked child, whose work does not belong to the rank."""
    global _lock
    _lock = Lock()
    _followed.clear()
    if _tool >= 0:
        _end()


os.register_at_fork(after_in_child=_in_forked_child)
