"""Values of the registry trait `small`: functions that compute on small arrays.

See :mod:`distarray.array.at_hand`, which calls them with blocks.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from distarray.config import in_force
from distarray.typing import ArrayLike, Function

__all__ = ["SPREADING", "WIDE", "WRITERS", "bounded", "of_product", "spreads", "writer"]

#: Functions whose operands may have any shapes, since there is no result.
WRITERS: set[Callable[..., Any]] = set()
#: Functions other than ufuncs whose operands broadcast.
SPREADING: set[Callable[..., Any]] = set()
#: Bytes per element of most types.
WIDE = 8


def spreads(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the trait `small` of a row whose operands broadcast."""
    own: Callable[..., Any] = getattr(function, "_implementation", function)
    SPREADING.add(own)
    return own


def writer(function: Function) -> Function:
    """Decorate the trait `small` of a row that writes to its first operand and returns nothing."""
    WRITERS.add(function)
    return function


def bounded(function: Callable[..., Any], elements: Callable[..., int]) -> Callable[..., Any]:
    """Return the trait `small` of a row whose result may be much larger than its operands.

    Parameters
    ----------
    function : callable
        NumPy's function, or a function to be called in its place.
    elements : callable
        Function of the arguments that returns the number of elements of the result, or an upper
        bound.
    """
    own = getattr(function, "_implementation", function)

    def small(*args: ArrayLike, **kwargs: ArrayLike) -> Any:
        if elements(*args, **kwargs) > in_force().replicate_below // WIDE:
            return NotImplemented
        return own(*args, **kwargs)

    return small


def of_product(*args: ArrayLike, **kwargs: ArrayLike) -> int:
    """Return the product of the operands' sizes: the number of elements of an outer product."""
    return prod([value.size for value in args if isinstance(value, np.ndarray)])
