"""Elementwise operations that C code runs together, with NumPy's own loops.

The pieces are shorter than the tiles of :mod:`distarray.array.tiled`, since a loop costs no Python
call: they stay in the first-level cache. During the computation of a piece the memory of the next
piece is prefetched.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array.speedups import used
from distarray.typing import DType

__all__ = ["compiled"]

#: Name of the capsule that contains a NumPy loop; a capsule of another name has another format.
_CAPSULE = '"numpy_1.24_ufunc_call_info"'
_NUMBERS = (bool, int, float, complex)

#: A function, the numbers of its operands, and the type of its result.
Step = tuple[Callable[..., Any], tuple[int, ...], DType]


def compiled(
    types: Sequence[DType],
    constants: Sequence[complex],
    steps: Sequence[Step],
    places: Mapping[int, int],
    buffers: Sequence[DType],
) -> Any:
    """Compile the operations to a C object; return None if they must be called one by one.

    Parameters
    ----------
    types : sequence of dtype
        Types of the arrays that are read.
    constants : sequence of numbers
        The first constant has the number -1.
    steps : sequence of Step
    places : mapping
        Number of a result -> its buffer, for results between steps.
    buffers : sequence of dtype
        Types of the buffers.
    """
    if used is None:
        return None
    known = [*types, *[dtype for _, _, dtype in steps]]
    numbers: list[Any] = []
    found = []
    for position, (function, operands, dtype) in enumerate(steps):
        asked = [known[x] if x >= 0 else _kind(constants[-1 - x]) for x in operands]
        loop = _loop(function, tuple(asked), dtype)
        if loop is None:
            return None
        capsule, given = loop
        values = []
        for x, kind in zip(operands, given, strict=True):
            if x < 0:
                numbers.append(_constant(constants[-1 - x], kind))
                x = -len(numbers)
            values.append(x)
        found.append((capsule, (*values, len(types) + position)))
    if any(number is None for number in numbers):
        return None
    between = tuple([places.get(number, -1) for number in range(len(known))])
    return used.Steps(
        tuple(found), tuple(numbers), between, tuple([dtype.itemsize for dtype in buffers])
    )


def _kind(number: complex) -> Any:
    """Return the type of a number for type resolution: Python's numbers adapt to the arrays."""
    return type(number) if type(number) in _NUMBERS else np.asarray(number).dtype


def _constant(number: complex, dtype: DType) -> Any:
    """Return an array of one number; None if the number does not fit."""
    try:
        return np.array(number, dtype)
    except (OverflowError, TypeError):
        return None


@lru_cache(maxsize=1024)
def _loop(function: Callable[..., Any], kinds: tuple[Any, ...], dtype: DType) -> Any:
    """Return NumPy's loop of a ufunc and the types of its operands.

    Return None if there is no loop for exactly these types, or if the loop needs Python.
    """
    if not isinstance(function, np.ufunc):
        return None
    try:
        given, capsule = function._resolve_dtypes_and_context((*kinds, None))  # type: ignore[attr-defined]
        function._get_strided_loop(capsule)  # type: ignore[attr-defined]
    except (AttributeError, TypeError):
        return None
    fits = all(
        dtype == kind or not isinstance(kind, np.dtype)
        for dtype, kind in zip(given, kinds, strict=False)
    )
    if not fits or given[-1] != dtype or _CAPSULE not in repr(capsule):
        return None
    return capsule, given[:-1]
