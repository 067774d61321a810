"""What NumPy's functions in Python ask of its C code, for distributed arrays."""

from typing import Any

import numpy

from distarray.array.core import DistArray
from distarray.array.dressing import bare, first_of, wrapped
from distarray.masked import namespace
from distarray.typing import ArrayLike, DTypeLike

__all__ = ["Converter", "numpy_module"]


def numpy_module() -> Any:
    """Our module of NumPy's names."""
    return namespace[0]


class Converter:
    """NumPy's ``_array_converter``: arguments as arrays, and a result of their class."""

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
        """The arguments as arrays."""
        return tuple([x if subok else bare(x) for x in self._made])

    def result_type(self, extra_dtype: DTypeLike = None, ensure_inexact: bool = False) -> Any:
        """The type that the arguments have together."""
        more = [] if extra_dtype is None else [extra_dtype]
        numbers = [
            value if single and type(value) in (int, float, complex) else x.dtype
            for value, single, x in zip(self._values, self.scalar_input, self._made)
        ]
        found = numpy.result_type(*numbers, *more)
        return numpy.result_type(found, 0.0) if ensure_inexact and found.kind in "biu" else found

    def wrap(self, array: ArrayLike, /, to_scalar: bool | None = None) -> Any:
        """The array as the first of the arguments' classes gives it."""
        single = all(self.scalar_input) if to_scalar is None else to_scalar
        found = wrapped(first_of(self._made), array)
        return found[()] if single and isinstance(found, DistArray) and not found.ndim else found
