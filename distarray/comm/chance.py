"""Random numbers in functions that each rank calls by itself, perhaps more often than other ranks.

A generator from outside such a function is shared: its state is the same on all ranks. If each rank
drew from it for its own calls, all would get the same numbers, and the states would differ
afterwards. So that is refused, and the function's caller can let every rank make all calls instead
(:func:`distarray.engines.mapping.loops.by_all_if_drawn`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from distarray.errors import ChanceError

__all__ = ["Watched", "apart", "home", "home_of_copy", "verify_home", "watched"]


class Watched(Protocol):
    """A generator that cannot refuse by itself, such as Python's `random`."""

    def mark(self) -> Any:
        """Its state."""

    def restore(self, mark: Any) -> None:
        """Return to an earlier state."""


#: Generators that are checked after each function that a rank calls by itself.
watched: list[Watched] = []
_apart: ContextVar[object | None] = ContextVar("distarray_apart", default=None)


def home() -> object | None:
    """A mark of where a generator is made: None for code that all ranks execute in step."""
    return _apart.get()


def home_of_copy(shared: bool) -> object | None:
    """The home of a copy of a generator; other ranks may have been sent copies, too.

    `shared` says whether all ranks made the generator in step. If not, the copies differ between
    ranks, too.
    """
    return _apart.get() if shared else _apart.get() or object()


def verify_home(made: object | None) -> None:
    """Raise if a generator made at `made` (see :func:`home`) is drawn from elsewhere.

    Raises
    ------
    ChanceError
        If it was made outside of a function that ranks call by themselves and is drawn from in it,
        or the other way around.
    """
    if _apart.get() is not made:
        raise ChanceError(shared=made is None)


@contextmanager
def apart() -> Iterator[None]:
    """Run a block that each rank runs by itself.

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
