"""Replacements for private C functions that NumPy's Python code calls, for distributed arrays."""

from typing import Any

import numpy

from distarray.array.core import DistArray
from distarray.array.dressing import bare, first_of, wrapped
from distarray.masked import namespace
from distarray.typing import ArrayLike, DTypeLike

__all__ = ["Converter", "numpy_module"]


def numpy_module() -> Any:
    """Return the module :mod:`distarray.numpy`."""
    return namespace[0]


class Converter:
    """NumPy's ``_array_converter``: convert arguments to arrays, and a result to their class."""

    def __init__(self, *values: ArrayLike) -> None:
        self._values = values
        self._made = [numpy_module().asanyarray(value) for value in values]
        self.scalar_input = tuple(
            [numpy.ndim(value) == 0 and not hasattr(value, "dtype") for value in values]
        )

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, place: int) -> Any:
        return bare(self._made[place])

    def as_arrays(self, *, subok: bool = True, pyscalars: str = "") -> tuple[Any, ...]:
        """Return the arguments as arrays."""
        return tuple([x if subok else bare(x) for x in self._made])

    def result_type(self, extra_dtype: DTypeLike = None, ensure_inexact: bool = False) -> Any:
        """Return the common dtype of the arguments."""
        more = [] if extra_dtype is None else [extra_dtype]
        numbers = [
            value if single and type(value) in (int, float, complex) else x.dtype
            for value, single, x in zip(self._values, self.scalar_input, self._made)
        ]
        found = numpy.result_type(*numbers, *more)
        return numpy.result_type(found, 0.0) if ensure_inexact and found.kind in "biu" else found

    def wrap(self, array: ArrayLike, /, to_scalar: bool | None = None) -> Any:
        """Wrap a result in the class of the argument with the highest priority."""
        single = all(self.scalar_input) if to_scalar is None else to_scalar
        found = wrapped(first_of(self._made), array)
        return found[()] if single and isinstance(found, DistArray) and not found.ndim else found
