"""Temporary files: rank 0 chooses their names, so that they are shared as all files of the job."""

import os
import tempfile
from collections.abc import Iterator
from typing import Any

from distarray.runner.caller import Caller, caller
from distarray.runner.paths import Path, Paths

__all__ = ["install"]

_real_names: Any = tempfile._get_candidate_names  # type: ignore[attr-defined]
_real_unlink = os.unlink
#: Helper that removes a file when it is closed, and its methods that keep ``os.unlink``.
_closer: Any = tempfile._TemporaryFileCloser  # type: ignore[attr-defined]
_METHODS = ("close", "cleanup")


class _Names(Iterator[str]):
    """Iterator of names that rank 0 draws, where all ranks draw together."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    def __next__(self) -> str:
        names = _real_names()
        who = Caller.BY_ITSELF if self._paths.busy else caller()
        if who not in (Caller.PROGRAM, Caller.LIBRARY):
            return str(next(names))
        found: str = self._paths.ask_about("", who, lambda: next(names))
        return found


def install(paths: Paths) -> None:
    """Make rank 0 name temporary files, and remove those that are removed when closed."""
    names = _Names(paths)
    tempfile._get_candidate_names = lambda: names  # type: ignore[attr-defined]

    def unlink(path: Path) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            if paths.is_root:
                raise

    for name in _METHODS:
        method: Any = getattr(_closer, name, None)
        held = getattr(method, "__defaults__", None) or ()
        if _real_unlink in held:
            method.__defaults__ = tuple([unlink if d is _real_unlink else d for d in held])
