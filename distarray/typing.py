"""Types for signatures, in addition to :mod:`numpy.typing`.

The types are for readers and type checkers. They do not distinguish CuPy's arrays from NumPy's,
since both have the same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeAlias, TypedDict, TypeVar, Union

import numpy as np
from numpy.typing import ArrayLike as HostArrayLike
from numpy.typing import DTypeLike as GivenDType
from numpy.typing import NDArray

if TYPE_CHECKING:
    from distarray.array.core import DistArray
    from distarray.layout import Placement

__all__ = [
    "Args",
    "Array",
    "ArrayKey",
    "ArrayLike",
    "Axes",
    "Axis",
    "Binary",
    "Casting",
    "DType",
    "DTypeLike",
    "ElementKey",
    "Function",
    "Key",
    "Kwargs",
    "Operation",
    "Reducing",
    "Order",
    "Out",
    "Placements",
    "Shape",
    "ShapeLike",
    "UfuncOut",
    "Unary",
]

#: Positional and keyword arguments of a call.
Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
#: Local block, or another array in the memory of one rank.
Array: TypeAlias = NDArray[Any]
#: Operand: a distributed array, or anything that NumPy converts to an array.
ArrayLike: TypeAlias = Union["DistArray", HostArrayLike]
#: Argument ``out=``: the array that a result is written to.
Out: TypeAlias = Optional["DistArray"]
#: Argument ``out=`` of ufuncs, which also take NumPy arrays and tuples.
UfuncOut: TypeAlias = Union["DistArray", Array, tuple["DistArray | Array | None", ...], None]
#: One dimension (`Axis`) or several dimensions (`Axes`); None for all dimensions.
Axis: TypeAlias = int | None
Axes: TypeAlias = int | Sequence[int] | None
DType: TypeAlias = np.dtype[Any]
#: Anything that NumPy converts to a data type, or None for the default.
DTypeLike: TypeAlias = GivenDType | None
Shape: TypeAlias = tuple[int, ...]
ShapeLike: TypeAlias = int | Sequence[int]
Order: TypeAlias = Literal["C", "F", "A", "K"]
Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
Placements: TypeAlias = Union[Sequence["Placement"], "Placement"]


class Reducing(TypedDict, total=False):
    """Keyword arguments of reductions, besides `axis`, `dtype` and `out`."""

    keepdims: bool
    initial: Any
    where: ArrayLike
    correction: float
    mean: ArrayLike


#: Key of ``x[key]``.
Key: TypeAlias = ArrayLike | slice | EllipsisType | tuple[Any, ...] | None
#: Key that selects one element (one index per dimension); key that selects an array.
ElementKey: TypeAlias = int | np.integer | tuple["int | np.integer", ...]
ArrayKey: TypeAlias = Union[slice, EllipsisType, str, list[Any], "DistArray", Array, np.bool, None]
#: Method of a binary operator; method of a unary operator.
Binary: TypeAlias = Callable[[Any, ArrayLike], "DistArray"]
Unary: TypeAlias = Callable[[Any], "DistArray"]
#: Identifier of an operation: a function, or a ufunc and the name of its method.
Operation: TypeAlias = Callable[..., Any] | tuple[np.ufunc, str]
#: Function that a decorator takes and returns.
Function = TypeVar("Function", bound=Callable[..., Any])
