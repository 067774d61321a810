"""What is done for large arrays or long loops alone, done always, so that small tests see it."""

from typing import Any

__all__ = ["everything_is_kept", "everything_waits"]


def everything_waits(replace: Any = setattr) -> None:
    """Put off what can be, also where warnings would be noticed to come late."""
    from distarray.array import casting, deferred, operators, temporaries

    for module in (casting, operators, temporaries):
        replace(module, "LARGE", 0)
    replace(deferred, "LEAST", 0)
    replace(deferred, "_warnings_are_watched", lambda: False)


def everything_is_kept(replace: Any = setattr) -> None:
    """Fetch and keep cut arrays from the second access on, also if the code names blocks."""
    from distarray.array import mirrors

    replace(mirrors, "FEW", 1)
    replace(mirrors, "WORTH", 0)
    replace(mirrors, "names_blocks", lambda: False)
