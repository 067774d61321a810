"""Functions that make arrays, under names that can be called directly."""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import signature
from typing import Any, TypeVar, cast

from distarray.array.registry import call, implements
from distarray.layout import Fold

__all__ = ["creates"]

Function = TypeVar("Function", bound=Callable[..., Any])


def creates(
    numpy_function: Callable[..., Any], through: Iterable[Fold] = (), at: bool = False
) -> Callable[[Function], Function]:
    """Register a creation function, and give it out under a name that can be called directly.

    Called directly, it goes through the registry too, so that pending folds among its arguments
    are settled as they are when NumPy's function of that name is called.
    """

    def register(function: Function) -> Function:
        like = "like" in signature(function).parameters
        implements(numpy_function, through=through, at=at, like=like)(function)

        @wraps(function)
        def public(*args: Any, **kwargs: Any) -> Any:
            return call(numpy_function, *args, **kwargs)

        return cast(Function, public)

    return register
