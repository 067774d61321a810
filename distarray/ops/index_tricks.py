"""``r_`` and ``c_``: arrays written as indices, joined along an axis."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from distarray.array import DistArray
from distarray.array.placing import plain
from distarray.ops.conversion import array
from distarray.ops.ranges import arange, linspace
from distarray.typing import ArrayLike

__all__ = ["c_", "r_"]


#: Item between the brackets: an interval, values, or the directive, which comes first.
_Item: TypeAlias = "slice | str | ArrayLike"


class _Concatenator:
    """Joiner of the items in brackets; see :class:`numpy.lib.index_tricks.AxisConcatenator`.

    A first item like ``"0,2,1"`` sets the axis, the minimum number of dimensions, and the place of
    the dimensions of items that have fewer.
    """

    def __init__(self, axis: int, ndmin: int = 1, trans1d: int = -1) -> None:
        self._settings = axis, ndmin, trans1d

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: _Item | tuple[_Item, ...]) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        axis, ndmin, trans1d = self._settings
        if items and isinstance(items[0], str):
            axis, ndmin, trans1d = _directive(items[0], axis, ndmin, trans1d)
            items = items[1:]
        if any(isinstance(item, str) for item in items):
            raise ValueError("special directives must be the first entry.")
        parts = [_part(item, ndmin, trans1d) for item in items]
        types = [part.dtype if isinstance(part, DistArray) else part for part in parts]
        dtype = np.result_type(*types) if types else None
        arrays = [array(part, dtype, copy=None, ndmin=ndmin) for part in parts]
        return np.concatenate(arrays, axis=axis)


def _directive(text: str, axis: int, ndmin: int, trans1d: int) -> tuple[int, int, int]:
    if text in ("r", "c"):
        raise ValueError(
            f"the directive {text!r} asks for a matrix, which is made here of the array: "
            "np.asmatrix(np.r_[...]), or with .T for a column"
        )
    try:
        numbers = [int(word) for word in text.split(",")]
    except ValueError:
        raise ValueError(f"unknown special directive {text!r}") from None
    if len(numbers) > 3:
        raise ValueError(f"unknown special directive {text!r}")
    settings = axis, ndmin, trans1d
    return (*numbers, *settings[len(numbers) :])  # type: ignore[return-value]


def _part(item: _Item, ndmin: int, trans1d: int) -> Any:
    """Return one item as an array; NumPy's and Python's scalars stay, for type promotion."""
    if isinstance(item, slice):
        values = _interval(item)
        if ndmin > 1:
            values = array(values, copy=None, ndmin=ndmin)
            values = values if trans1d == -1 else values.swapaxes(-1, trans1d)
        return values
    value = plain(item)
    if type(value) in np.ScalarType:
        return value
    values = array(value, copy=None)
    missing = ndmin - values.ndim
    values = array(values, copy=None, ndmin=ndmin)
    if trans1d != -1 and missing > 0:
        first = trans1d if trans1d >= 0 else trans1d + missing + 1
        axes = list(range(ndmin))
        values = values.transpose(axes[:first] + axes[missing:] + axes[first:missing])
    return values


def _interval(part: slice) -> Any:
    start = 0 if part.start is None else part.start
    step = 1 if part.step is None else plain(part.step)
    if isinstance(step, (complex, np.complexfloating)):
        count: Any = abs(step)
        return linspace(start, part.stop, num=int(count))
    return arange(start, part.stop, step)


#: Join along the first axis, and along the last; see :data:`numpy.r_` and :data:`numpy.c_`.
r_ = _Concatenator(0)
c_ = _Concatenator(-1, ndmin=2, trans1d=0)
