"""``like=``: creation functions delegate to the type of an array of another library."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

from distarray.array.base import Base

P = ParamSpec("P")
T = TypeVar("T")

__all__ = ["obeys_like"]

_OURS = np.ndarray.__array_function__


def obeys_like(numpy_function: Callable[..., Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator: support ``like=`` as NumPy does, for types of other libraries.

    Parameters
    ----------
    numpy_function : callable
        The NumPy function that it replaces, which libraries recognize.

    Raises
    ------
    TypeError
        From the decorated function, if the type has no ``__array_function__`` or declines.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def public(*args: P.args, **kwargs: P.kwargs) -> T:
            like = kwargs.get("like")
            if like is None or isinstance(like, Base):
                return function(*args, **kwargs)
            if getattr(type(like), "__array_function__", None) is _OURS:
                return function(*args, **kwargs)
            named = {name: value for name, value in kwargs.items() if name != "like"}
            made: T = _made_by(like, (own[0], numpy_function), args, named)
            return made

        own: list[Callable[..., Any]] = [public]
        public.own = own  # type: ignore[attr-defined] # the name under which programs know it
        return public

    return decorate


def _made_by(
    like: object,
    names: tuple[Callable[..., Any], ...],
    args: tuple[object, ...],
    named: dict[str, object],
) -> Any:
    """Make the array by the type of `like`, with the first function that the type recognizes."""
    kind: Any = type(like)
    if not hasattr(kind, "__array_function__"):
        raise TypeError(
            "The `like` argument must be an array-like that implements the `__array_function__` "
            "protocol."
        )
    for name in names:
        found = kind.__array_function__(like, name, (kind,), args, named)
        if found is not NotImplemented:
            return found
    raise TypeError(
        f"no implementation found for 'numpy.{names[-1].__name__}' on types that implement "
        f"__array_function__: [{kind!r}]"
    )
