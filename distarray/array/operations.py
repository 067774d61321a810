"""Deferred elementwise operations: their operands, results and lines of the program.

:mod:`distarray.array.deferred` defers them.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from distarray.array.faults import DETOURS
from distarray.array.leaves import Leaf
from distarray.array.memory import Materialization
from distarray.comm.observed import Display
from distarray.typing import Array, DType, Shape

__all__ = ["KINDS", "SCALARS", "Line", "Operation", "acting", "cast_to", "result_type"]

#: Kinds of data types whose operations can be deferred.
KINDS = frozenset("biufc")
_NUMBERS = frozenset({bool, int, float, complex})
#: Types of scalar operands.
SCALARS = _NUMBERS | {np.dtype(code).type for code in np.typecodes["AllInteger"] + "?efdFD"}
_UFUNCS = frozenset(
    [
        f
        for f in vars(np).values()
        if isinstance(f, np.ufunc) and f.nout == 1 and not f.signature and f not in DETOURS
    ]
)
#: Operations that take about as long as reading their operands.
_CHEAP = frozenset(
    {np.add, np.subtract, np.multiply, np.negative, np.positive, np.absolute, np.square}
    | {np.maximum, np.minimum, np.logical_and, np.logical_or, np.logical_not, np.invert}
    | {np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal}
    | {np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.conjugate}
)
_DEAR = 4
_numbers = count()


class Line(NamedTuple):
    """Line of the program, for warnings, with the display settings in force at the call."""

    path: str
    number: int
    names: dict[str, Any]
    display: Display


class Operation:
    """Deferred operation: a node of an expression graph.

    Attributes
    ----------
    number : int
        Its serial number; operands have lower numbers.
    function : callable
        The function to run, as :func:`acting` returns it.
    operands : tuple
        Leaves, operations and numbers.
    dtype : dtype
        The data type of the result.
    reads : frozenset of Materialization
        All memory that the expression reads.
    shape : tuple of int
        The shape of this rank's block.
    size : int
        Number of operations in the expression, including this one.
    cost : int
        Approximate cost of the expression, in units of one addition.
    line : Line
        The line of the program that calls the operation.
    folds : int
        Number of reductions of the result that did not store it.
    block : array or None
        The result, once computed.
    """

    __slots__ = (
        "block",
        "cost",
        "dtype",
        "folds",
        "function",
        "line",
        "number",
        "operands",
        "reads",
        "shape",
        "size",
    )

    def __init__(
        self, function: Any, operands: tuple[Any, ...], dtype: DType, shape: Shape, line: Line
    ) -> None:
        self.number, self.shape = next(_numbers), shape
        self.function, self.operands, self.dtype, self.line = function, operands, dtype, line
        self.block: Array | None = None
        self.folds = 0
        self.reads: frozenset[Materialization] = frozenset()
        self.size, self.cost = 1, 1 if function in _CHEAP else _DEAR
        for x in operands:
            if type(x) is Leaf:
                self.reads |= {x.memory}
            elif type(x) is Operation and x.block is None:
                self.reads |= x.reads
                self.size += x.size
                self.cost += x.cost

    def done(self, block: Array) -> None:
        """Store the result, and drop the operands."""
        self.block, self.operands, self.reads, self.size = block, (), frozenset(), 1


# -- functions other than ufuncs -------------------------------------------------------------------


class Loop:
    """Elementwise function with the calling convention of a ufunc.

    Parameters
    ----------
    function : callable
        Takes the operands.
    nin : int
        Number of operands.
    """

    def __init__(self, function: Callable[..., Any], nin: int) -> None:
        self._function, self.nin = function, nin
        self.__name__ = function.__name__

    def __call__(self, *operands: Any, out: Array | None = None) -> Any:
        value = self._function(*operands)
        if out is None:
            return value
        out[...] = value
        return out


class Cast:
    """Conversion to a data type, with the calling convention of a ufunc."""

    nin = 1
    __name__ = "cast"

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype

    def __call__(self, x: Array, out: Array | None = None) -> Any:
        if out is None:
            return x.astype(self.dtype)
        np.copyto(out, x, "unsafe")
        return out


@lru_cache(maxsize=64)
def cast_to(dtype: DType) -> Cast:
    """Return the conversion to a data type."""
    return Cast(dtype)


_LOOPS: dict[Any, Any] = {np.where: Loop(np.where, 3), np.clip: Loop(np.clip, 3)}


def acting(function: Any) -> Any:
    """Return the callable that runs for a function, with NumPy's `nin` and ``out=``.

    The result is None if calls of the function are not deferred.
    """
    if function in _UFUNCS or type(function) is Cast:
        return function
    return _LOOPS.get(function)


# -- data types of results -------------------------------------------------------------------------


def result_type(function: Any, operands: Sequence[Any]) -> DType | None:
    """Return the data type of a result; None if the operation must run at once.

    An operation must run at once if NumPy raises an error for it, or if the values of the elements
    affect its data type or its errors.
    """
    kinds = tuple([x.dtype if hasattr(x, "dtype") else type(x) for x in operands])
    if int in kinds and any(getattr(kind, "kind", "") in "biu" for kind in kinds):
        samples = [x if type(x) in _NUMBERS else np.empty(0, x.dtype) for x in operands]
        return _asked(function, samples)  # NumPy's result depends on the value of the int
    return _known_type(function, kinds)


@lru_cache(maxsize=1024)
def _known_type(function: Any, kinds: tuple[Any, ...]) -> DType | None:
    return _asked(
        function, [np.empty(0, kind) if isinstance(kind, np.dtype) else kind(1) for kind in kinds]
    )


def _asked(function: Any, samples: list[Any]) -> DType | None:
    try:
        with np.errstate(all="ignore"):
            dtype: DType = function(*samples).dtype
    except Exception:
        return None
    refuses = function is np.power and dtype.kind in "iu"  # negative exponents raise
    return dtype if dtype.kind in KINDS and dtype.isnative and not refuses else None
