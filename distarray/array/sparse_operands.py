"""Operators with scipy's sparse arrays and matrices as other operand.

Sparse types accept only NumPy's arrays: for other arrays they decline the operation, or compare
nothing. So this library passes them the whole array, and the result is scipy's for a NumPy array.
"""

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array.base import Base
from distarray.typing import ArrayLike

__all__ = ["beside_sparse", "is_sparse"]

#: Python operator for each ufunc of an operator.
_OPERATORS: dict[np.ufunc, Callable[[Any, Any], Any]] = {
    np.less: operator.lt,
    np.less_equal: operator.le,
    np.equal: operator.eq,
    np.not_equal: operator.ne,
    np.greater: operator.gt,
    np.greater_equal: operator.ge,
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.remainder: operator.mod,
    np.power: operator.pow,
}


def is_sparse(operand: ArrayLike) -> bool:
    """Return True if an operand is a sparse array or matrix of scipy, or of a derived type."""
    kind: Any = type(operand)
    return _is_sparse(kind)


@lru_cache(maxsize=256)
def _is_sparse(kind: type) -> bool:
    return hasattr(kind, "tocsr") and any(
        base.__module__.startswith("scipy.sparse") for base in kind.__mro__
    )


def beside_sparse(ufunc: np.ufunc, x: Base, other: ArrayLike, reflected: bool) -> Any:
    """Apply an operator to an array and a sparse operand; the result is scipy's for a NumPy array.

    Cost
    ----
    A gather of the array, with the same warning as for every library.
    """
    act = _OPERATORS.get(ufunc)
    if act is None:
        return NotImplemented
    whole = np.asarray(x)
    return act(other, whole) if reflected else act(whole, other)
