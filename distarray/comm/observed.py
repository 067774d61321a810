"""Detection of a program that can observe warnings: it records them, or lets them raise.

Under Python's own filters a warning is a line on standard error, which one rank may write alone. If
a filter turns warnings into errors, or something other than Python's own display receives them
(``catch_warnings(record=True)``, ``logging.captureWarnings``, a replaced ``showwarning``), the
program may act on a warning. Then all ranks have to know of the warning.

Every operation on cut arrays checks this, so the result is kept for as long as nothing changes.

Ranks that are threads share Python's filters. A change by one rank, or by a library that it calls,
would affect the other ranks in the middle of other calls. So these ranks use the filters and the
display that were in force when they began.
"""

import gc
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "Display",
    "as_under",
    "disregard",
    "display",
    "every_warning",
    "fixed",
    "is_observed",
    "printers",
]

#: Categories of warnings about elements, which one rank may have alone.
_CATEGORIES = (RuntimeWarning, np.exceptions.ComplexWarning, np.exceptions.RankWarning)
_names: dict[str, Any] = vars(warnings)
#: Replacements of ``warnings.showwarning`` that only print; the runner adds its own.
printers: list[Callable[..., Any]] = []
#: Modules whose ``showwarning`` passes warnings about elements to the previous ``showwarning``.
_PASSING = frozenset({"astropy.logger"})
#: The file of pytest that records the warnings of a test, for its own summary.
_PYTEST = "_pytest/warnings.py"


class Display(NamedTuple):
    """Filters and display of warnings at one time.

    Attributes
    ----------
    filters : list
        A copy of ``warnings.filters``.
    receive, show : callable
        ``warnings._showwarnmsg_impl`` and ``warnings.showwarning``.
    observed : bool
        True if the program can observe warnings.
    """

    filters: list[Any]
    receive: Any
    show: Any
    observed: bool


_last = Display([object()], None, None, False)
_disregarded = _last
#: Fields of `_last`, as every operation compares them.
_filters, _receive, _show, _observed = _last
#: Filters that let every warning through, the program's filters meanwhile, and the number of
#: threads that use the first list.
_every: list[Any] = []
_programs: list[Any] = []
_users = 0
_lock = Lock()
#: Display that ranks use if they are threads, and the number of worlds of such ranks.
_fixed: ContextVar[Display | None] = ContextVar("distarray_display", default=None)
_worlds = 0
#: Function that returns the thread's own filters and record, in Pythons that have them; else None.
_context: Callable[[], Any] | None = (
    warnings._get_context  # type: ignore[attr-defined]
    if getattr(sys.flags, "context_aware_warnings", 0)
    else None
)


def is_observed() -> bool:
    """Return True if the program can observe warnings."""
    if (
        _names["filters"] == _filters
        and _names["_showwarnmsg_impl"] is _receive
        and _names["showwarning"] is _show
    ):
        return _observed
    return display().observed


def display() -> Display:
    """Return the filters and the display in force."""
    begun_with = _fixed.get()
    if begun_with is not None:
        return begun_with
    receive, show, filters = [_names[x] for x in ("_showwarnmsg_impl", "showwarning", "filters")]
    filters = [*(_programs if filters is _every else filters)]
    if _context is None and (filters, receive, show) == _last[:3]:
        return _last
    recording = (receive, show) != _disregarded[1:3] and (
        _records(receive) or not _only_prints(show)
    )
    if _context is not None:
        recording = recording or _context().log is not None
        filters = [*warnings._get_filters()]  # type: ignore[attr-defined]
    regarded = _without_harness(filters)
    observed = any(_is_noticed(category, regarded, recording) for category in _CATEGORIES)
    return _kept(Display(filters, receive, show, observed))


def _kept(found: Display) -> Display:
    """Keep a display, or the equal one that is disregarded, as the last display in force."""
    global _last, _filters, _receive, _show, _observed
    _last = _disregarded if found[:3] == _disregarded[:3] else found
    _filters, _receive, _show, _observed = _last
    if _context is not None or _worlds:
        _show = object()  # compared anew each time: every thread has its own
    return _last


def _without_harness(filters: list[Any]) -> list[Any]:
    """Return the filters; disregarded filters, which come last, count as only showing warnings."""
    kept, last = [*_disregarded.filters], len(filters)
    while last and filters[last - 1] in kept:
        last -= 1
        while kept.pop() != filters[last]:  # a filter that is set again has gone to the front
            pass
    rest = [("default", *f[1:]) if f[0] == "error" else f for f in filters[last:]]
    return [*filters[:last], *rest]


def disregard() -> None:
    """Count the filters and the display in force as unobserved: they are a test harness's."""
    global _disregarded
    _disregarded = display()._replace(observed=False)
    _kept(_disregarded)


@contextmanager
def fixed() -> Iterator[None]:
    """Use the display now in force, in this context and its copies, whatever a thread changes."""
    if _context is not None:  # changes are local to a thread
        yield
        return
    token = _fixed.set(display())
    _count(1)
    try:
        yield
    finally:
        _count(-1)
        _fixed.reset(token)


def _count(worlds: int) -> None:
    global _worlds
    with _lock:
        _worlds += worlds
        _kept(_last)


@contextmanager
def as_under(then: Display) -> Iterator[None]:
    """Restore earlier filters and an earlier display, for warnings that were postponed."""
    if then is display():
        yield
        return
    kept = [_names[name] for name in ("filters", "_showwarnmsg_impl", "showwarning")]
    _put(*then[:3])
    try:
        yield
    finally:
        _put(*kept)


@contextmanager
def every_warning() -> Iterator[None]:
    """Let every warning through, without forgetting which warnings have been shown."""
    if _context is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            yield
        return
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _programs, _users
    with _lock:
        if not _users:
            _every[:], _programs = [("always", None, Warning, None, 0)], _names["filters"]
            _names["filters"] = _every
        _users += 1


def _leave() -> None:
    global _users
    with _lock:
        _users -= 1
        if not _users:
            _names["filters"] = _programs


def _put(filters: list[Any], receive: Any, show: Any) -> None:
    """Replace filters and display, without forgetting which warnings have been shown."""
    _names["filters"], _names["_showwarnmsg_impl"], _names["showwarning"] = filters, receive, show


def _is_noticed(category: type[Warning], filters: list[Any], recording: bool) -> bool:
    """Return True if a warning of a category may be raised or recorded."""
    for action, text, wanted, module, line in filters:
        if not issubclass(category, wanted):
            continue
        if action == "error" or (recording and action != "ignore"):
            return True
        if text is None and module is None and not line:
            return False
    return recording


def _only_prints(show: Any) -> bool:
    if show is _names.get("_showwarning_orig") or show in printers:
        return True
    return getattr(show, "__module__", None) in _PASSING


def _records(receive: Any) -> bool:
    """Return True if warnings go to a receiver other than Python's display or pytest's summary."""
    if isinstance(receive, FunctionType) and receive.__module__ in ("warnings", "_py_warnings"):
        return False
    record = getattr(receive, "__self__", None)
    if isinstance(record, list) and "_pytest.warnings" in sys.modules:
        return not any(map(_is_pytests, gc.get_referrers(record)))
    return True


def _is_pytests(referrer: object) -> bool:
    """Return True if a referrer is the generator in which pytest keeps the record of a test."""
    code = getattr(referrer, "gi_code", None) or getattr(referrer, "f_code", None)
    return code is not None and code.co_filename.replace("\\", "/").endswith(_PYTEST)
