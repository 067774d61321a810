"""numpy.lib.recfunctions of one array of records, which NumPy's take for a list of arrays.

They look whether they got an array of NumPy's own. A distributed one is put into a list here, where
it is an operand as any other.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy.lib.recfunctions

from distarray.array import DistArray
from distarray.typing import ArrayLike

__all__: list[str] = []


def _of_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's that takes one distributed array, too."""

    @wraps(function)
    def joined(arrays: ArrayLike, *args: object, **kwargs: object) -> Any:
        given = (arrays,) if isinstance(arrays, DistArray) else arrays
        return function(given, *args, **kwargs)

    return joined


for _name in ("merge_arrays", "stack_arrays"):
    _function = getattr(numpy.lib.recfunctions, _name)
    setattr(numpy.lib.recfunctions, _name, _of_arrays(_function))
