"""Random numbers in functions that each rank calls alone, perhaps more often than other ranks.

A generator from outside such a function is shared: its state is the same on all ranks. If each rank
drew from it for its own calls, all ranks would get the same numbers, and the states would differ
afterwards. Therefore such a draw raises an error. The function's caller can let every rank make all
calls instead (:func:`distarray.engines.mapping.loops.by_all_if_drawn`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from distarray.errors import ChanceError

__all__ = ["Watched", "apart", "home", "home_of_copy", "verify_home", "watched"]


class Watched(Protocol):
    """Generator that cannot raise the error by itself, such as Python's `random`."""

    def mark(self) -> Any:
        """Return the state of the generator."""

    def restore(self, mark: Any) -> None:
        """Return the generator to an earlier state."""


#: Generators that are checked after each function that a rank calls alone.
watched: list[Watched] = []
_apart: ContextVar[object | None] = ContextVar("distarray_apart", default=None)


def home() -> object | None:
    """Return a mark of the code that makes a generator; None if all ranks execute it in step."""
    return _apart.get()


def home_of_copy(shared: bool) -> object | None:
    """Return the home of a copy of a generator; other ranks may have received copies, too.

    `shared` is True if all ranks made the generator in step. Otherwise the copies differ between
    ranks, too.
    """
    return _apart.get() if shared else _apart.get() or object()


def verify_home(made: object | None) -> None:
    """Raise if a generator made at `made` (see :func:`home`) is drawn from in other code.

    Raises
    ------
    ChanceError
        If the generator was made outside of a function that ranks call alone and is drawn from
        inside it, or vice versa.
    """
    if _apart.get() is not made:
        raise ChanceError(shared=made is None)


@contextmanager
def apart() -> Iterator[None]:
    """Run a block of code that each rank runs alone.

    Raises
    ------
    ChanceError
        At the end, if the block has drawn from a watched generator, whose state is restored.
    """
    marks = [source.mark() for source in watched]
    token = _apart.set(object())
    try:
        yield
    finally:
        _apart.reset(token)
        moved = [(s, m) for s, m in zip(watched, marks, strict=True) if s.mark() != m]
        for source, mark in moved:
            source.restore(mark)
    if moved:
        raise ChanceError(shared=True)
