"""Operations that are put off: their time is that of the line at which they run.

Which lines they stand on is kept beside it. While somebody measures, the programs of
:mod:`distarray.array.programs` tell of the operations that they are made of.
"""

from collections.abc import Sequence
from threading import Lock, get_ident
from typing import Any

from distarray.array.operations import Operation
from distarray.array.programs import Program
from distarray.profiling.recorder import Recorder
from distarray.profiling.statements import line_of

__all__ = ["watch", "watch_no_more"]

_lock = Lock()
_watching: list[Recorder] = []
_plain: Any = Program.__init__


def watch(recorder: Recorder) -> None:
    """Tell a recorder which operations run in its thread."""
    with _lock:
        _watching.append(recorder)
        Program.__init__ = _told  # type: ignore[method-assign]


def watch_no_more(recorder: Recorder) -> None:
    """Tell it no more."""
    with _lock:
        if recorder in _watching:
            _watching.remove(recorder)
        if not _watching:
            Program.__init__ = _plain  # type: ignore[method-assign]


def _told(self: Program, ends: Sequence[Operation]) -> None:
    _plain(self, ends)
    thread, listening = get_ident(), list(_watching)
    if any(recorder.thread == thread for recorder in listening):
        lines = dict.fromkeys([line_of(place.path, place.number) for place in self.lines()])
        for recorder in listening:
            if recorder.thread == thread:
                recorder.ran(lines)
