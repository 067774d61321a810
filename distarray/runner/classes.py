"""Classes of the program: what their ``__array__`` returns is an array of NumPy's for NumPy.

In the program ``np.asarray`` makes distributed arrays, and NumPy does not take these from
``__array__``.
"""

import builtins
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, cast

from distarray.runner.imports import replace_builtin
from distarray.runner.standing import StandIn

__all__ = ["install"]

_real_build: Any = builtins.__build_class__


def install() -> None:
    """Let the program's class statements make such classes."""
    replace_builtin("__build_class__", StandIn(build_class))


@wraps(_real_build)
def build_class(*args: Any, **kwargs: Any) -> Any:
    """Make a class, as the interpreter does for a class statement."""
    made = _real_build(*args, **kwargs)
    method = getattr(made, "__dict__", {}).get("__array__")
    if callable(method) and isinstance(made, type):
        cast("Any", made).__array__ = _giving_numpys(method)
    return made


def _giving_numpys(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, whose distributed array is gathered unless this library asks for it."""

    @wraps(method)
    def __array__(*args: Any, **kwargs: Any) -> Any:
        from distarray.array import DistArray  # not before `open` has been replaced
        from distarray.array.creation import given_by

        found = method(*args, **kwargs)
        if isinstance(found, DistArray) and sys._getframe(1).f_code is not given_by.__code__:
            return found.__array__()
        return found

    return __array__
