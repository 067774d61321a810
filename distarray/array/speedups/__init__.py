"""Fast paths of small arrays in C, if the package was built with a compiler.

In loops over small arrays that every rank has whole, most of the time is spent on checking that
NumPy can compute the result at once. C code makes this check for the methods that are decorated
with :func:`quick`, and calls those methods in all other cases. Results are the same with and
without the C code.
"""

from collections.abc import Callable
from functools import update_wrapper, wraps
from typing import Any, TypeVar, cast

from distarray.array.unhashable import made_again
from distarray.config import in_force

try:
    from distarray.array.speedups import _ways
except ImportError:  # the package was built without a compiler
    _ways = None  # type: ignore[assignment]

__all__ = ["again_if_unhashable", "is_built", "quick", "used"]

_Method = TypeVar("_Method", bound=Callable[..., Any])

#: True if there is a compiled module.
is_built = _ways is not None
#: The compiled module, if it is used.
used: Any = _ways if in_force().speedups else None


def quick(kind: str, numpys: Callable[..., Any] | None = None) -> Callable[[_Method], _Method]:
    """Decorate a method of DistArray: calls that NumPy can compute at once do not reach it.

    Parameters
    ----------
    kind : str
        Name of the fast path in ``module.c``.
    numpys : callable, optional
        The ufunc, or the method of :class:`numpy.ndarray`, that computes the result.
    """

    def decorate(method: _Method) -> _Method:
        if used is None:
            return again_if_unhashable(method)
        way: Any = update_wrapper(used.Way(kind, method, numpys), method)
        return cast(_Method, way)

    return decorate


def again_if_unhashable(method: _Method) -> _Method:
    """Decorate a function that accepts objects of any type; the C code does the same by itself.

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
