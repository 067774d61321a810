"""Arguments of contractions: operands as distributed arrays, and NumPy's errors about them."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.array.base import check_out
from distarray.array.probes import hollow
from distarray.array.views import permuted
from distarray.comm import DeviceMesh
from distarray.plan import broadcast_shapes
from distarray.typing import Array, ArrayLike, DType, Shape

__all__ = ["common_shape", "moved_axes", "numbers", "probe", "raise_as_numpy", "read", "shadow"]


def read(
    *operands: ArrayLike, out: DistArray | Array | None = None
) -> tuple[list[DistArray], DeviceMesh]:
    """Return the operands as distributed numeric arrays, and their common mesh (with `out`).

    Raises
    ------
    TypeError
        If an operand contains Python objects.
    """
    if out is not None:
        check_out(out)
    mesh = common_mesh(*operands) if out is None else common_mesh(*operands, out)
    found = [as_distarray(x, mesh) for x in operands]
    for x in found:
        numbers(x.dtype)
    return found, mesh


def numbers(dtype: DType) -> None:
    """Raise TypeError for a dtype of Python objects."""
    if dtype.hasobject:
        raise TypeError(
            "arrays of Python objects cannot be contracted: ranks exchange numbers only"
        )


@lru_cache(maxsize=1024)
def probe(function: Callable[..., Any], *dtypes: DType) -> DType:
    """Return the data type of a NumPy function's result for these operands, or raise its error."""
    found: DType = function(*[np.ones(1, dtype) for dtype in dtypes]).dtype
    return found


def common_shape(*shapes: Shape) -> Shape | None:
    """Return the shape that the shapes broadcast to, or None if they do not broadcast."""
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        return None


def shadow(x: DistArray) -> Array:
    """Return an array of the same shape and data type that takes no memory, for metadata checks."""
    return hollow(x.layout.shape, x.block.dtype)


def raise_as_numpy(function: Callable[..., Any], *args: Any, **kwargs: Any) -> NoReturn:
    """Raise NumPy's error for a call whose metadata is known to be wrong."""
    function(*[shadow(x) if isinstance(x, DistArray) else x for x in args], **kwargs)
    raise ValueError(f"{function.__name__}: the operands do not fit together")


def moved_axes(x: DistArray, axes: Sequence[int]) -> DistArray:
    """Permute the dimensions, as a view; return the array itself if the order is unchanged."""
    return x if tuple(axes) == tuple(range(x.ndim)) else permuted(x, axes)
