"""The short ways of small arrays, in C, where the package was built with a compiler.

In loops over small arrays that every rank has whole, most of the time goes to asking whether NumPy
can answer at once. The C files ask this for the methods that are decorated with :func:`quick`,
and leave all other calls to these. A program gets the same with and without them.
"""

from collections.abc import Callable
from functools import update_wrapper, wraps
from typing import Any, TypeVar, cast

from distarray.array.unhashable import made_again
from distarray.config import in_force

try:
    from distarray.array.speedups import _ways
except ImportError:  # there was no compiler
    _ways = None  # type: ignore[assignment]

__all__ = ["again_if_unhashable", "is_built", "quick", "used"]

_Method = TypeVar("_Method", bound=Callable[..., Any])

#: Whether there is a compiled module.
is_built = _ways is not None
#: That module, if it is used.
used: Any = _ways if in_force().speedups else None


def quick(kind: str, numpys: Callable[..., Any] | None = None) -> Callable[[_Method], _Method]:
    """Decorate a method of DistArray: calls that NumPy can answer at once do not reach it.

    Parameters
    ----------
    kind : str
        The way, by its name in ``module.c``.
    numpys : callable, optional
        The ufunc, or the method of :class:`numpy.ndarray`, that answers.
    """

    def decorate(method: _Method) -> _Method:
        if used is None:
            return again_if_unhashable(method)
        way: Any = update_wrapper(used.Way(kind, method, numpys), method)
        return cast(_Method, way)

    return decorate


def again_if_unhashable(method: _Method) -> _Method:
    """Decorate a function that takes objects of any type; the ways in C do the same by themselves.

    See :mod:`distarray.array.unhashable`.
    """

    @wraps(method)
    def act(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except TypeError:
            found = made_again(method, args, named)
            if found is None:
                raise
            return found[0]

    return cast("_Method", act)
