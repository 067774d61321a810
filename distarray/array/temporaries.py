"""Buffer reuse for temporaries: ``a + b + c`` allocates one new block, not two.

NumPy does the same for its own arrays: it writes the sum with ``c`` into the result of ``a + b``,
to which nothing else refers. NumPy recognizes a temporary by its reference count, and so does this
module. The counts that an operator sees for a temporary and for a variable are measured when this
module is imported. If they are equal, no temporary is reused (Python 3.14 adds no reference for a
variable).
"""

import sys
from opcode import opmap
from sys import getrefcount
from types import CodeType
from typing import Any

import numpy as np

from distarray.layout import LARGE
from distarray.typing import Array

__all__ = ["ASSIGNED", "LARGE", "done"]

_ndarray = np.ndarray
#: Operations on floating-point numbers of one data type whose result has the same type.
_CLOSED = frozenset({np.add, np.subtract, np.multiply, np.true_divide})
_REALS = frozenset({int, float, bool})


class _Probe:
    """Probe for the reference count that an operator sees of either operand.

    Assigning to an item of it records the count that ``__setitem__`` sees of the value.
    """

    seen = 0

    def __setitem__(self, key: int, value: "_Probe") -> None:
        self.seen = getrefcount(value)

    def __add__(self, other: Array | complex) -> int:
        return getrefcount(self)

    def __radd__(self, other: Array | complex) -> int:
        return getrefcount(self)


def _count_of_temporaries() -> int:
    """Return the count that an operator sees of a temporary; 0 if a variable can have it, too."""
    variable = _Probe()
    as_variable = min(variable + 0, 0 + variable)
    as_temporary = max(_Probe() + 0, 0 + _Probe())
    return as_temporary if as_temporary < as_variable else 0


def _count_of_assigned() -> int:
    """Return the count that ``x[key] = value`` sees of a temporary; 0 if a variable can have it."""
    target, variable = _Probe(), _Probe()
    target[0] = variable
    as_variable = target.seen
    target[0] = _Probe()
    return target.seen if target.seen < as_variable else 0


def _references(block: Array) -> int:
    return getrefcount(block)


def _count_of_own_block() -> int:
    """Return the count of a block to which only one array and the inspecting functions refer."""
    array = [np.empty(1)]
    block = array[0]
    return _handed_on(block)


def _handed_on(block: Array) -> int:
    return _references(block)


#: Reference count that ``x[key] = value`` sees of a temporary.
ASSIGNED = _count_of_assigned()
_TEMPORARY = _count_of_temporaries()
_OWN_BLOCK = _count_of_own_block()
_BINARY_OP = opmap.get("BINARY_OP", -1)


def done(ufunc: np.ufunc, x: Any, y: Any, counts: tuple[int, int]) -> Any:
    """Compute ``ufunc(x, y)``, in the block of a temporary operand if possible; return the block.

    Only :func:`~distarray.array.deferred.put_off_or_done` may call this function, since it looks
    for the program's frame at a fixed depth.
    """
    x_count, y_count = counts
    a = x.block if x_count else x
    b = y.block if y_count else y
    if ufunc in _CLOSED:
        if 0 < x_count <= _TEMPORARY and _takes(a, b) and _by_operator():
            return ufunc(a, b, out=a)
        if 0 < y_count <= _TEMPORARY and _takes(b, a) and _by_operator():
            return ufunc(a, b, out=b)
    return ufunc(a, b)


def _takes(block: Array, other: Array | complex) -> bool:
    """Return True if the result fits into the block of a temporary."""
    return _own(block) and _keeps(block, other)


def _own(block: Array) -> bool:
    """Return True if a block owns its memory, is writeable, and only its array refers to it."""
    if type(block) is not _ndarray or getrefcount(block) > _OWN_BLOCK:
        return False
    return block.base is None and block.flags.writeable


def _keeps(block: Array, other: Array | complex) -> bool:
    """Return True if the result has the data type and shape of `block`."""
    if block.dtype.kind not in "fc":
        return False
    if type(other) is _ndarray:
        return bool(other.dtype == block.dtype and other.shape == block.shape)
    return type(other) in _REALS


def _by_operator() -> bool:
    """Return True if the program's own line applies the operator.

    A function in C that adds may hold the only reference to an operand that it still needs. The
    program's frame is then at a call, not at an operator.
    """
    frame = sys._getframe(4)
    return _operation(frame.f_code, frame.f_lasti) == _BINARY_OP


def _operation(code: CodeType, position: int) -> int:
    return code.co_code[position]
