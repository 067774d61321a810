"""Putting a function of ours where a module has one of its own."""

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

__all__ = ["StandIn", "put_in_place"]


class StandIn(staticmethod):  # type: ignore[type-arg]
    """A function that a class may hold as it holds a builtin one (it does not bind).

    It is pickled by the name of the module's: a child process finds the real one there.
    """

    def __reduce__(self) -> str:
        return str(self.__name__)


def put_in_place(module: Any, name: str, ours: Callable[..., Any]) -> None:
    """Replace a function of a module, if it has it, by one that looks like it."""
    real = getattr(module, name, None)
    if real is not None:
        update_wrapper(ours, real)
        ours.__module__ = module.__name__  # not that of the C module behind it
        setattr(module, name, StandIn(ours))
