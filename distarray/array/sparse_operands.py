"""Operators beside scipy's sparse arrays and matrices.

These know NumPy's arrays, and no others: they leave the operation to the other operand, or compare
nothing. So they are given the whole array, and answer as they answer NumPy's.
"""

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array.base import Base
from distarray.typing import ArrayLike

__all__ = ["beside_sparse", "is_sparse"]

#: What Python calls where the ufunc's operator was asked.
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
    """Whether an operand is one of scipy's sparse arrays or matrices, or of a derived type."""
    kind: Any = type(operand)
    return _is_sparse(kind)


@lru_cache(maxsize=256)
def _is_sparse(kind: type) -> bool:
    return hasattr(kind, "tocsr") and any(
        base.__module__.startswith("scipy.sparse") for base in kind.__mro__
    )


def beside_sparse(ufunc: np.ufunc, x: Base, other: ArrayLike, reflected: bool) -> Any:
    """The result of an operator for an array and a sparse one, as scipy gives it for NumPy's.

    Cost
    ----
    A gather of the array, which is said as for every library.
    """
    act = _OPERATORS.get(ufunc)
    if act is None:
        return NotImplemented
    whole = np.asarray(x)
    return act(other, whole) if reflected else act(whole, other)
