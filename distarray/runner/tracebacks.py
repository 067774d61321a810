"""Tracebacks as the runner prints them: the program's frames, and this library's in one line."""

import contextlib
import functools
import os
import threading
import traceback
from types import TracebackType

import numpy as np

from distarray.comm import hooks
from distarray.comm.user_lines import is_ours
from distarray.config import config

__all__ = ["install", "written"]

_RUNNER = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: Modules between the program and its callees; they are folded with ours if adjacent to them.
_BETWEEN = (os.path.dirname(np.__file__) + os.sep,) + tuple(
    [str(module.__file__) for module in (contextlib, functools, threading)]
)
_full = False
#: Hint on how to show the folded frames.
_way = " (--full-traceback shows them)"


def install(full: bool, way: str = _way) -> None:
    """Fold the tracebacks of this job, including those in threads.

    Parameters
    ----------
    full : bool
        Show all frames instead.
    way : str
        Hint on how to show the folded frames; printed after their number.
    """
    global _full, _way
    _full, _way = full, way
    hooks.written = written


def written(error: BaseException, tb: TracebackType | None = None) -> str:
    """Format the traceback of an error, without the runner's frames."""
    config.print_gathered = False  # a message must not wait for ranks that did not fail
    report = traceback.TracebackException(type(error), error, tb or error.__traceback__)
    _cut(report, set())
    return "".join(report.format())


def _cut(report: traceback.TracebackException, seen: set[int]) -> None:
    if id(report) in seen:
        return
    seen.add(id(report))
    frames = [frame for frame in report.stack or () if not frame.filename.startswith(_RUNNER)]
    report.stack = _Stack(frames if _full else _folded(frames))
    if not frames:
        report.stack = None  # type: ignore[assignment]  # no header then
    related = [report.__cause__, report.__context__, *(getattr(report, "exceptions", None) or ())]
    for other in related:
        if other is not None:
            _cut(other, seen)


class _Fold(traceback.FrameSummary):
    """Placeholder for frames that are not shown; its line number is the number of frames."""


class _Stack(traceback.StackSummary):
    """Stack with placeholders for frames that are not shown."""

    def format_frame_summary(self, frame_summary: traceback.FrameSummary, **style: bool) -> str:
        """Format the lines of a frame."""
        if not isinstance(frame_summary, _Fold):
            return super().format_frame_summary(frame_summary, **style)
        count = frame_summary.lineno
        return f"  ... {count} frame{'s' * (count != 1)} inside distarray{_way}\n"


def _folded(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Replace each run of this library's frames by one; keep all frames if there are no others."""
    shown: list[traceback.FrameSummary] = []
    run: list[traceback.FrameSummary] = []
    for frame in frames:
        if _passes_on(frame.filename):
            run.append(frame)
        else:
            shown += [*_one(run), frame]
            run = []
    return [*shown, *_one(run)] if shown else frames


def _one(run: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Fold a run of frames if any of them is ours."""
    if any(is_ours(frame.filename) for frame in run):
        return [_Fold("<distarray>", len(run), "", line="")]
    return run


def _passes_on(path: str) -> bool:
    return is_ours(path) or path.startswith(_BETWEEN)
