"""Line of the user's program that runs, as ``file:line`` and as the expression on it.

Frames of this library, of NumPy, of torch and of the modules through which they call are not the
user's. They are internal; names in this module call them the house's.
"""

import io
import linecache
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from types import CodeType, FrameType

__all__ = [
    "add_to_house",
    "called",
    "is_house",
    "is_installed",
    "is_library",
    "known",
    "passage",
    "place",
    "place_of",
    "places",
    "expression",
    "is_ours",
    "of_program",
    "program_frame",
    "source",
    "user_frames",
    "user_line",
    "warn_program",
]

_HOUSE = {
    *(__name__.partition(".")[0], "contextlib", "contextvars", "functools", "importlib", "numpy"),
    *("runpy", "threading", "torch"),
}
#: Prefix of modules in which Python makes the functions of named tuples.
_MADE = "namedtuple_"
#: The library's own directory.
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
#: Cache by module name: True if the module is internal.
known: dict[str | None, bool] = {}
#: Installed packages that belong to the program, by name; the runner adds to them.
of_program: set[str] = set()
#: Names of directories below which modules are installed.
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
#: Directories of Python's own modules. `sysconfig` has them as well, but takes long to import.
_STANDARD = (
    os.path.dirname(os.__file__) + os.sep,
    os.path.join(sys.base_exec_prefix, sys.platlibdir, _VERSION) + os.sep,
)
#: Largest number of characters of a program line that are shown.
_WIDTH = 60


def is_house(frame: FrameType) -> bool:
    """Return True if a frame is the library's, or between the library and the user."""
    name = frame.f_globals.get("__name__", "")
    found = known.get(name)
    return passage(name) if found is None else found


def passage(name: str | None) -> bool:
    """Return True if a module of this name is internal; keep the result in `known`."""
    first = name.partition(".")[0] if isinstance(name, str) else ""
    known[name] = ours = first in _HOUSE or first.startswith(_MADE)
    return ours


def add_to_house(*packages: str) -> None:
    """Count the modules of packages that execute the program as internal, from now on."""
    _HOUSE.update(packages)
    known.clear()


def is_ours(path: str) -> bool:
    """Return True if a file belongs to this library."""
    return path.startswith(_HERE)


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the user's frames, the innermost first."""
    while frame is not None:
        if not is_house(frame):
            yield frame
        frame = frame.f_back


def program_frame(frame: FrameType) -> FrameType:
    """Return the program's innermost frame: neither internal nor in an installed library.

    If only libraries run, return their innermost frame.
    """
    nearest = None
    for here in user_frames(frame):
        if not is_library(here):
            return here
        nearest = nearest or here
    return nearest or frame


def is_library(frame: FrameType) -> bool:
    """Return True if a frame is in an installed library that is not the program's own."""
    name = frame.f_globals.get("__name__") or ""
    path = frame.f_code.co_filename
    if path == "<string>":  # made by a module while it runs
        path = frame.f_globals.get("__file__") or path
    return name.partition(".")[0] not in of_program and is_installed(path)


@lru_cache(maxsize=1024)
def is_installed(path: str) -> bool:
    """Return True if a file belongs to a library, or to the interpreter itself."""
    parts = path.replace("\\", "/").split("/")
    return path.startswith((*_STANDARD, "<frozen ")) or not _INSTALLED.isdisjoint(parts)


def warn_program(text: str, category: type[Warning]) -> None:
    """Warn at the program's line, however many library frames are between."""
    frame = program_frame(sys._getframe(1))
    scope = frame.f_globals
    warnings.warn_explicit(
        text,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        scope.get("__name__", "__main__"),
        scope.setdefault("__warningregistry__", {}),
    )


def user_line(short: bool = False) -> str:
    """Return ``file:line`` of the program; of the outermost frame if no frame is the user's."""
    here = program_frame(sys._getframe(1))
    while is_house(here) and here.f_back is not None:
        here = here.f_back
    path = here.f_code.co_filename
    return f"{_short(path) if short else path}:{here.f_lineno}"


def places(frame: FrameType | None, most: int = 4) -> list[str]:
    """Return the user's lines on the stack of a frame, the innermost first."""
    found = []
    for here in user_frames(frame):
        found.append(place(here.f_code, here.f_lasti))
        if len(found) == most:
            break
    return found


def place(code: CodeType, instruction: int) -> str:
    """Return an instruction as ``file:line``; a path in the working directory is relative."""
    return place_of(code.co_filename, _position(code, instruction)[0])


def place_of(path: str, number: int) -> str:
    """Return a line of a file as ``file:line``; a path in the working directory is relative."""
    return f"{_short(path)}:{number}"


def expression(code: CodeType, instruction: int) -> str:
    """Return the expression that an instruction belongs to, as far as it is on its first line."""
    first, last, start, stop = _position(code, instruction)
    lines = source(code.co_filename)
    line = lines[first - 1] if 0 < first <= len(lines) else ""
    if start is not None and stop is not None:
        text = line.encode()[start : stop if last == first else None].decode(errors="replace")
    else:
        text = line
    text = text.strip()
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def called(text: str) -> str:
    """Return the function that an expression calls, ``np.sum`` of ``np.sum(x)``; else the text."""
    head, bracket, _ = text.partition("(")
    plain = bracket and head.replace(".", "").replace("_", "").isalnum()
    return head if plain else text


def _position(code: CodeType, instruction: int) -> tuple[int, int, int | None, int | None]:
    for number, (first, last, start, stop) in enumerate(code.co_positions()):
        if 2 * number >= instruction and first is not None:
            return first, last or first, start, stop
    return code.co_firstlineno, code.co_firstlineno, None, None


@lru_cache(maxsize=64)
def source(path: str) -> Sequence[str]:
    """Return the lines of a file, read without `open`, which the runner makes collective."""
    kept = linecache.cache.get(path)
    if kept is not None and len(kept) > 1:
        return kept[2]
    try:
        with io.open_code(os.path.abspath(path)) as file:
            return file.read().decode(errors="replace").splitlines()
    except (OSError, ValueError):
        return ()


def _short(path: str) -> str:
    try:
        near = os.path.relpath(path)
    except (OSError, ValueError):
        return path
    return path if near.startswith(os.pardir) or path.startswith("<") else near
