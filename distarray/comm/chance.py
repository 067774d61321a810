"""Random numbers in functions that each rank calls by itself, one perhaps more often than another.

A generator from outside such a function is shared by the ranks: it stands at the same place on all
of them. Drawn from by each rank for its own calls it would give every rank the same numbers, and
stand at different places afterwards. So that is refused, and who has called the function can let
every rank make all calls instead (:func:`distarray.engines.mapping.loops.by_all_if_drawn`).
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
        """Where it stands."""

    def restore(self, mark: Any) -> None:
        """Go back to where it stood."""


#: What is looked at after each function that a rank has called by itself.
watched: list[Watched] = []
_apart: ContextVar[object | None] = ContextVar("distarray_apart", default=None)


def home() -> object | None:
    """Where a generator is made: None for code that all ranks execute in step."""
    return _apart.get()


def home_of_copy(shared: bool) -> object | None:
    """Where the copy of a generator belongs, which other ranks may have been sent.

    `shared` says whether the generator was made by all ranks in step. If not, its copies are as
    little alike on all ranks.
    """
    return _apart.get() if shared else _apart.get() or object()


def verify_home(made: object | None) -> None:
    """Raise if a generator is not drawn from where it was made, as :func:`home` told.

    Raises
    ------
    ChanceError
        If it is drawn from in a function that ranks call by themselves and was made outside, or
        the other way around.
    """
    if _apart.get() is not made:
        raise ChanceError(shared=made is None)


@contextmanager
def apart() -> Iterator[None]:
    """Run a block that each rank runs by itself.

    Raises
    ------
    ChanceError
        At the end, if the block has drawn from a generator that is watched. It is put back.
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
