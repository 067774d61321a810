"""Conversions of elements to Python objects: `int()`, `bool()`, `item`, `tolist` and others.

An array of the wrong size raises NumPy's error, without reading any element.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array.base import Base, readable
from distarray.array.exporting import gathered

__all__ = ["Scalars"]


class Scalars(Base):
    """Conversions of :class:`numpy.ndarray` to Python objects.

    They communicate unless the array is replicated: every rank gets the same object.
    """

    __slots__ = ()

    def item(self: Any, *args: int | tuple[int, ...]) -> Any:
        """Return one element as a Python scalar; communicates unless the array is replicated."""
        if not args:
            if self.size != 1:
                raise ValueError("can only convert an array of size 1 to a Python scalar")
            return self.full().item()
        key = args[0] if len(args) == 1 else args
        if not isinstance(key, tuple):
            position = operator.index(key)
            if not -self.size <= position < self.size:
                raise IndexError(f"index {position} is out of bounds for size {self.size}")
            key = tuple([int(i) for i in np.unravel_index(position % self.size, self.shape)])
        elif len(key) != self.ndim:
            raise ValueError("incorrect number of indices for array")
        return self[(*key, ...)].full().item()

    def tolist(self) -> Any:
        """Return nested lists of Python scalars, on every rank; collective like ``full``."""
        return gathered(readable(self), "x.tolist()", aloud=False).tolist()

    def _scalar(self, what: Callable[[Any], Any]) -> Any:
        """Return `what(block)`, for conversions that need a single element."""
        if self.layout.is_replicated:
            return what(self.mesh.to_host(self.block))
        if self.size != 1:
            # NumPy's own error for arrays of other sizes, without reading any element.
            return what(np.broadcast_to(np.zeros((), self.dtype), self.shape))
        return what(self.full())

    def __bool__(self) -> bool:
        return self._scalar(bool)  # type: ignore[no-any-return]

    def __int__(self) -> int:
        return self._scalar(int)  # type: ignore[no-any-return]

    def __float__(self) -> float:
        return self._scalar(float)  # type: ignore[no-any-return]

    def __complex__(self) -> complex:
        return self._scalar(complex)  # type: ignore[no-any-return]

    def __index__(self) -> int:
        return self._scalar(operator.index)  # type: ignore[no-any-return]

    def __round__(self: Any, ndigits: int | None = None) -> Any:
        if isinstance(self.block, np.generic):
            return round(self.block, ndigits) if ndigits is not None else round(self.block)  # type: ignore[call-overload]
        return np.round(self, ndigits or 0)

    def __format__(self, spec: str) -> str:
        if self.layout.is_replicated:
            return format(self.mesh.to_host(self.block), spec)
        if not spec:
            return str(self)
        raise TypeError("unsupported format string passed to DistArray.__format__")

    def __hash__(self) -> int:
        if isinstance(self.block, np.generic):
            return hash(self.block)
        raise TypeError("unhashable type: 'DistArray'")
