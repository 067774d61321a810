"""What contractions do to their arguments before any element is touched."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, wrap
from distarray.comm import DeviceMesh
from distarray.plan import broadcast_shapes

__all__ = ["common_shape", "moved_axes", "numbers", "probe", "raise_as_numpy", "read", "shadow"]


def read(*operands: Any, out: Any = None) -> tuple[list[DistArray], DeviceMesh]:
    """Operands as distributed arrays of numbers, and the mesh they share with `out`.

    Raises
    ------
    TypeError
        If an operand holds Python objects, which have no place in a message, or `out` is no array.
    """
    into = getattr(out, "_block", out)
    if out is not None and (isinstance(into, np.generic) or not hasattr(into, "dtype")):
        raise TypeError("return arrays must be of ArrayType")
    mesh = common_mesh(*operands, out)
    found = [as_distarray(x, mesh) for x in operands]
    for x in found:
        numbers(x.dtype)
    return found, mesh


def numbers(dtype: np.dtype[Any]) -> None:
    """Refuse a dtype of Python objects."""
    if dtype.hasobject:
        raise TypeError(
            "arrays of Python objects cannot be contracted: ranks exchange numbers only"
        )


@lru_cache(maxsize=1024)
def probe(function: Callable[..., Any], *dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that a function of NumPy gives for arrays of these dtypes; its own errors else."""
    return function(*[np.ones(1, dtype) for dtype in dtypes]).dtype  # type: ignore[no-any-return]


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape that shapes broadcast to; None if they do not."""
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        return None


def shadow(x: DistArray) -> np.ndarray[Any, Any]:
    """An array of the same shape and dtype that takes no memory, for checks of metadata."""
    return _shadow(x._layout.shape, x._block.dtype)


@lru_cache(maxsize=256)
def _shadow(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.zeros((), dtype), shape)  # cannot be written to


def raise_as_numpy(function: Callable[..., Any], *args: Any, **kwargs: Any) -> NoReturn:
    """Let NumPy word the error for a call whose metadata is known to be wrong."""
    function(*[shadow(x) if isinstance(x, DistArray) else x for x in args], **kwargs)
    raise ValueError(f"{function.__name__}: the operands do not fit together")


def moved_axes(x: DistArray, axes: Sequence[int]) -> DistArray:
    """The array with its dimensions permuted; a view."""
    if tuple(axes) == tuple(range(x.ndim)):
        return x
    return wrap(x._block.transpose(axes), x._layout.transpose(axes), x._mesh)
