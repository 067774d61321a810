"""Replacement of functions of modules."""

from collections.abc import Callable
from functools import update_wrapper
from types import ModuleType
from typing import Any

__all__ = ["StandIn", "put_in_place"]


class StandIn(staticmethod):  # type: ignore[type-arg]
    """Function that does not bind as a class attribute, as builtin functions do not.

    It is pickled by its name in the module: a child process finds the real function there.
    """

    def __reduce__(self) -> str:
        return str(self.__name__)


def put_in_place(module: ModuleType, name: str, ours: Callable[..., Any]) -> None:
    """Replace a function of a module, if present, by one with the same metadata."""
    real = getattr(module, name, None)
    if real is not None:
        update_wrapper(ours, real)
        ours.__module__ = module.__name__  # not the C module that defines it
        setattr(module, name, StandIn(ours))
