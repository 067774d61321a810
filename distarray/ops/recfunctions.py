"""Functions of numpy.lib.recfunctions that take a structured array or a sequence of arrays.

They recognize a single array only if it is NumPy's own, and would take a distributed array for a
sequence. Here it is put into a tuple, so that it is an operand like any other. Importing NumPy's
module takes a while, so its functions are replaced only when a program imports it.
"""

from collections.abc import Callable
from functools import wraps
from types import ModuleType
from typing import Any

from distarray.array import DistArray
from distarray.lazy import after_import
from distarray.typing import ArrayLike

__all__: list[str] = []


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of NumPy's that also takes one distributed array."""

    @wraps(function)
    def joined(arrays: ArrayLike, *args: object, **kwargs: object) -> Any:
        given = (arrays,) if isinstance(arrays, DistArray) else arrays
        return function(given, *args, **kwargs)

    return joined


def _replace(module: ModuleType) -> None:
    for name in ("merge_arrays", "stack_arrays"):
        setattr(module, name, _of_arrays(getattr(module, name)))


after_import("numpy.lib.recfunctions", _replace)
