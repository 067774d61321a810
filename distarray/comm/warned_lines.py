"""Warnings at the user's line, shown once per line of the user.

NumPy's C code gives a warning the line of the Python frame that called it, which is in this
library. `warnings.warn` counts frames, and their number depends on the path to a function. So all
warnings are first raised where they arise, and moved when they are about to be shown: code that
does not warn has no cost. A warning is moved by raising it once more, with the user's file, line
and module. So the user's filters decide, and the registry of the user's module records which
warnings have been shown.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple

from distarray.comm import observed
from distarray.comm.user_lines import is_house, is_ours, user_frames

__all__ = ["Line", "install", "line_of", "taken", "warn_user"]

_REGISTER = "__warningregistry__"


class Line(NamedTuple):
    """Line of the program, as a warning names it."""

    path: str
    number: int
    module: str


_show: Any = None
#: Function that takes the warnings of this thread in place of the program.
_taker: ContextVar[Callable[[warnings.WarningMessage], None] | None] = ContextVar(
    "distarray_taker", default=None
)


def install() -> None:
    """Move warnings from now on; a second call does nothing."""
    global _show
    if _show is not None or not hasattr(warnings, "_showwarnmsg"):
        return
    _show, warnings._showwarnmsg = warnings._showwarnmsg, _move_or_show
    # No filter may drop a warning by this library's name before it has been moved to the user's
    # module.
    warnings.filterwarnings("default", module=rf"{__name__.partition('.')[0]}(\.|\Z)")


def _move_or_show(said: warnings.WarningMessage) -> None:
    """Move or show a warning, in place of ``warnings._showwarnmsg``, which C code calls."""
    taker = _taker.get()
    if taker is not None:
        taker(said)
        return
    origin, user = _way(said.filename, sys._getframe(1))
    if origin is None or user is None:
        _show(said)
        return
    _forget(said, origin)
    _warn_at(user, said.message, said.category, said.source)


def _warn_at(
    user: FrameType, text: Warning | str, category: type[Warning], source: Any = None
) -> None:
    names = user.f_globals
    warnings.warn_explicit(
        text,
        category,
        user.f_code.co_filename,
        user.f_lineno,
        names.get("__name__") or "<string>",
        names.setdefault(_REGISTER, {}),
        source=source,
    )


def warn_user(text: str, category: type[Warning], line: Line | None = None) -> None:
    """Warn at a line; by default at the line that called this library, as NumPy would."""
    if line is None:
        _warn_at(next(user_frames(sys._getframe(1)), sys._getframe(1)), text, category)
        return
    names = vars(sys.modules[line.module]) if line.module in sys.modules else {}
    register = names.setdefault(_REGISTER, {})
    warnings.warn_explicit(text, category, line.path, line.number, line.module, register)


def line_of(said: warnings.WarningMessage) -> Line | None:
    """Return the line that a warning names; None if it is this library's, or NumPy's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != said.filename:
        frame = frame.f_back
    if frame is None or is_house(frame) or _is_ours(frame):
        return None
    return Line(said.filename, said.lineno, frame.f_globals.get("__name__") or "<string>")


@contextmanager
def taken(taker: Callable[[warnings.WarningMessage], None]) -> Iterator[None]:
    """Pass this thread's warnings to a function, whatever the program's filters are.

    Python still remembers which warnings it has shown to the program; ``catch_warnings``, which
    replaces the filters, would make it forget them.
    """
    token = _taker.set(taker)
    try:
        with observed.every_warning():
            yield
    finally:
        _taker.reset(token)


def _way(path: str, frame: FrameType | None) -> tuple[FrameType | None, FrameType | None]:
    """Return the frame that a warning names, and the user's frame that called it through here.

    The second frame is None if the warning names a user's line, or a line of a library which the
    user called without this library.
    """
    while frame is not None and frame.f_code.co_filename != path:
        frame = frame.f_back
    origin, ours = frame, False
    while frame is not None and (is_house(frame) or _is_ours(frame)):
        ours = ours or _is_ours(frame)
        frame = frame.f_back
    return origin, frame if ours else None


def _is_ours(frame: FrameType) -> bool:
    return is_ours(frame.f_code.co_filename)


def _forget(said: warnings.WarningMessage, origin: FrameType) -> None:
    """Let the next warning of the same line through: it may be for another line of the user."""
    if _is_ours(origin):
        origin.f_globals[_REGISTER] = None  # Python then records nothing
        return
    register = origin.f_globals.get(_REGISTER)
    if register:
        register.pop((str(said.message), said.category, said.lineno), None)
