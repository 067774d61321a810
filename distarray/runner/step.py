"""Code that all ranks execute in step: tests for the current code, and its place in the program."""

from collections.abc import Callable
from threading import get_ident
from types import FrameType
from typing import Any

from distarray.comm.talkers import MAIN
from distarray.runner.imports import belongs_to_program

__all__ = ["begin", "in_step", "place", "the_program_calls"]

_by_itself: Callable[[], Any] = lambda: None  # noqa: E731 - replaced by `begin`
#: Number of the program's innermost calls that identify a place.
_CALLS = 32
#: Libraries to which the program submits tasks.
_OF_TASKS = ("asyncio.", "concurrent.", "multiprocessing.", "loky.", "joblib.externals.loky.")


def begin() -> None:
    """Start to detect functions that a rank calls independently; see `distarray.comm.own_mesh`."""
    global _by_itself
    from distarray.comm import own_mesh  # imports NumPy, before which `open` must be replaced

    _by_itself = own_mesh


def in_step() -> bool:
    """Return True in the main thread, while all ranks execute the same code ("in step").

    The result is False in threads, child processes, and functions that the ranks call unequally
    often.
    """
    return get_ident() == MAIN.thread and _by_itself() is None


def the_program_calls(frame: FrameType | None) -> bool:
    """Return True if the program, in step with the other ranks, called such a library.

    Between `frame` and the program there may be only frames of these libraries.
    """
    while frame is not None and not belongs_to_program(frame):
        name: str = frame.f_globals.get("__name__") or ""
        if not f"{name}.".startswith(_OF_TASKS):
            return False
        frame = frame.f_back
    return frame is not None and in_step()


def place(frame: FrameType | None) -> tuple[Any, ...]:
    """Return the calls of the program that led to `frame`, the same on all ranks."""
    found: list[Any] = []
    while frame is not None and len(found) < 3 * _CALLS:
        if belongs_to_program(frame):
            code = frame.f_code
            found += (code.co_filename, code.co_firstlineno, frame.f_lasti)
        frame = frame.f_back
    return tuple(found)
