"""Types that signatures are written with; :mod:`numpy.typing` has the others.

They are for readers and type checkers. CuPy's arrays count as NumPy's, which they are written like.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike as HostArrayLike
from numpy.typing import DTypeLike, NDArray

if TYPE_CHECKING:
    from types import EllipsisType

    from distarray.array.core import DistArray
    from distarray.layout import Placement

__all__ = [
    "Array",
    "ArrayLike",
    "Axes",
    "Axis",
    "Casting",
    "DType",
    "DTypeLike",
    "Function",
    "Index",
    "IndexEntry",
    "Order",
    "Out",
    "Placements",
    "Shape",
    "ShapeLike",
]

#: A local block, or another array in the memory of one rank.
Array: TypeAlias = NDArray[Any]
#: What operations take: a distributed array, or whatever NumPy makes an array of.
ArrayLike: TypeAlias = "DistArray | HostArrayLike"
#: One dimension, or None for all; and several of them.
Axis: TypeAlias = int | None
Axes: TypeAlias = int | Sequence[int] | None
DType: TypeAlias = np.dtype[Any]
Shape: TypeAlias = tuple[int, ...]
ShapeLike: TypeAlias = int | Sequence[int]
Order: TypeAlias = Literal["C", "F", "A", "K"]
Casting: TypeAlias = Literal["no", "equiv", "safe", "same_kind", "unsafe"]
#: The arrays that results are written to, as ufuncs take them.
Out: TypeAlias = "DistArray | Array | tuple[DistArray | Array | None, ...] | None"
Placements: TypeAlias = "Sequence[Placement] | Placement"
#: What stands between brackets: an entry for each dimension, or one alone.
IndexEntry: TypeAlias = "int | slice | EllipsisType | ArrayLike | None"
Index: TypeAlias = "IndexEntry | tuple[IndexEntry, ...]"
#: What a decorator takes and gives back.
Function = TypeVar("Function", bound=Callable[..., Any])
