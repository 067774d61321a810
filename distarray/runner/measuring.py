"""Profile of a whole program: ``python -m distarray --profile script.py``."""

import sys
from typing import TYPE_CHECKING

from distarray.runner.ending import Outcome

if TYPE_CHECKING:
    from distarray.profiling import Profile

__all__ = ["begin", "end"]

_profiles: list["Profile"] = []


def begin(path: str) -> None:
    """Start measuring, if there is a path for the page; collective."""
    if path:
        from distarray.profiling import Profile

        _profiles.append(Profile(path))
        _profiles[0].begin()


def end(outcome: Outcome) -> None:
    """Stop measuring: rank 0 writes the page, and prints the table on standard error.

    If the program has failed, ranks wait for one another only briefly. A rank that cannot send its
    part to rank 0 writes a page of its own.
    """
    if not _profiles:
        return
    profile = _profiles.pop()
    last = outcome.text.strip().splitlines()
    ended = "" if not outcome.code else (last[-1] if last else f"exit status {outcome.code}")
    main = sys.modules.get("__main__")
    profile.end(ended, {} if main is None else vars(main))
    profile.tell()
