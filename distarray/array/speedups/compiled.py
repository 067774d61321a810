"""Elementwise operations that are run together in C, by NumPy's own loops.

The pieces are shorter than the tiles of :mod:`distarray.array.tiled`, since a loop costs no call of
Python's: they stay in the first cache. While one is computed with, memory is asked for the next.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array.speedups import used
from distarray.typing import DType

__all__ = ["compiled"]

#: The name of what NumPy's loops are handed out in; another one has another form.
_CAPSULE = '"numpy_1.24_ufunc_call_info"'
_NUMBERS = (bool, int, float, complex)

#: A function, its operands by number, and the type of its result.
Step = tuple[Callable[..., Any], tuple[int, ...], DType]


def compiled(
    types: Sequence[DType],
    constants: Sequence[complex],
    steps: Sequence[Step],
    places: Mapping[int, int],
    buffers: Sequence[DType],
) -> Any:
    """The operations as one object of C's; None if they have to be called one by one.

    Parameters
    ----------
    types : sequence of dtype
        Of the arrays that are read.
    constants : sequence of numbers
        The first has the number -1.
    steps : sequence of Step
    places : mapping
        The buffers of results that lie between steps, by the number of the result.
    buffers : sequence of dtype
        Their types.
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
    """The type of a number, as NumPy asks it: Python's adapt to the arrays."""
    return type(number) if type(number) in _NUMBERS else np.asarray(number).dtype


def _constant(number: complex, dtype: DType) -> Any:
    """An array of one number; None if it does not fit."""
    try:
        return np.array(number, dtype)
    except (OverflowError, TypeError):
        return None


@lru_cache(maxsize=1024)
def _loop(function: Callable[..., Any], kinds: tuple[Any, ...], dtype: DType) -> Any:
    """NumPy's loop of a ufunc and the types of its operands.

    None if there is none for these very types, or if it cannot be called without Python.
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
