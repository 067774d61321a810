"""Deferred operations in a profile: their time counts for the line at which they run.

The lines that wrote the operations are recorded separately. While a recorder is active, the
programs of :mod:`distarray.array.programs` report the operations of which they consist.
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
    """Report to a recorder which deferred operations run in its thread."""
    with _lock:
        _watching.append(recorder)
        Program.__init__ = _told  # type: ignore[method-assign]


def watch_no_more(recorder: Recorder) -> None:
    """Stop reporting to a recorder."""
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
