"""Checks by NumPy itself before an operation runs: data types, masks, output arrays.

Every check uses metadata only, so that all ranks raise the same error: NumPy's.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from distarray.array import DistArray, as_distarray
from distarray.array.base import check_out
from distarray.array.portable import refuse_read_only
from distarray.comm import DeviceMesh
from distarray.plan import broadcast_shapes, shape_text
from distarray.typing import Array, ArrayLike, Casting, DType

__all__ = [
    "as_axis",
    "as_mask",
    "check_cast",
    "check_shapes",
    "check_writeable",
    "condition",
    "hollow",
    "keeps_dims",
    "refuse_shapes",
    "result_types",
    "tiny",
]


def keeps_dims(keepdims: Any) -> bool:
    """Return True if a reduction keeps its dimensions; raise NumPy's error for invalid values.

    NumPy's ufuncs accept integers, which do not include NumPy's own bool type. Functions that
    reduce without a ufunc (`argmax`, `median`) accept any object with a truth value.
    """
    if type(keepdims) is bool:
        return keepdims
    if keepdims is np._NoValue:
        return False
    return bool(np.add.reduce(np.zeros(1), keepdims=keepdims).ndim)


def result_types(
    function: Callable[..., Any],
    operands: Sequence[Any],
    outs: Sequence[Any],
    keywords: dict[str, Any],
) -> list[Any]:
    """Return data types of the results, from a call with empty arrays; or raise NumPy's error.

    Operands are arrays or Python numbers; `outs` may also be NumPy arrays.
    """
    probes = [np.empty((0,), x.dtype) if hasattr(x, "dtype") else x for x in operands]
    given = [None if out is None else np.empty((0,), out.dtype) for out in outs]
    if given:
        keywords = {**keywords, "out": tuple(given) if len(given) > 1 else given[0]}
    value = function(*probes, **keywords)
    return [v.dtype for v in (value if isinstance(value, tuple) else (value,))]


def refuse_shapes(
    function: Callable[..., Any],
    operands: Sequence[Any],
    outs: Sequence[Any],
    keywords: Mapping[str, Any],
) -> None:
    """Raise NumPy's error for operands that do not broadcast; it may check types first."""
    given = tuple([_emptied(out) for out in outs])
    if given:
        keywords = {**keywords, "out": given if len(given) > 1 else given[0]}
    try:
        function(*[_emptied(x) for x in operands], **keywords)
    except Exception as error:
        raise error from None  # without an error that the caller may be handling


def _emptied(x: Any) -> Any:
    return hollow(x.shape, x.dtype) if hasattr(x, "ndim") else x


def as_axis(axis: Any) -> int:
    """Convert an axis as NumPy's C functions do, which raise for a bool."""
    if isinstance(axis, (bool, np.bool_)):
        raise TypeError("an integer is required for the axis")
    return index(axis)


def condition(where: ArrayLike) -> Any:
    """Return a condition with a data type: lists and numbers are converted to bool, as in NumPy.

    An object that provides an array keeps its type, from which NumPy makes only safe casts.
    """
    if hasattr(where, "dtype") and not isinstance(where, np.generic):
        return where
    return np.asarray(where) if _gives_an_array(where) else np.asarray(where, bool)


def _gives_an_array(value: object) -> bool:
    """Return True if an object that is no array has a buffer, or one of NumPy's protocols."""
    if isinstance(value, (list, tuple, str, bytes, np.generic)):
        return False
    if any(hasattr(value, name) for name in ("__array__", "__array_interface__")):
        return True
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def as_mask(where: ArrayLike, mesh: DeviceMesh) -> DistArray:
    """Convert a mask to an array; raise NumPy's error if its data type is not bool."""
    mask = condition(where)
    check_cast(mask.dtype, np.dtype(bool), "safe")
    return as_distarray(mask, mesh)


def check_writeable(outs: Sequence[Any]) -> None:
    """Raise the errors about output arrays that NumPy raises before it checks anything else."""
    for out in outs:
        check_out(out)
        if out.layout.partials:
            out.settle()
        refuse_read_only(out, "output array is read-only")


def check_shapes(arrays: Sequence[Any], outs: Sequence[Any]) -> None:
    """Raise NumPy's error if results do not fit into the output arrays."""
    shapes = [x.shape if hasattr(x, "shape") else np.shape(x) for x in arrays]
    shape = broadcast_shapes(*shapes)
    shape = broadcast_shapes(*shapes, *[out.shape for out in outs])  # one shape for all outputs
    for out in outs:
        if out.shape != shape:
            listed = " ".join([shape_text(each) for each in (*shapes, out.shape)])
            raise ValueError(
                f"non-broadcastable output operand with shape {shape_text(out.shape)} doesn't "
                f"match the broadcast shape {shape_text(shape)} (operands {listed})"
            )


def tiny(shape: Sequence[int], dtype: DType) -> Array:
    """Return zeros of as many dimensions, none longer than 1, to probe NumPy's result or error."""
    return np.zeros([min(extent, 1) for extent in shape], dtype)


def hollow(shape: Sequence[int], dtype: DType) -> Array:
    """Return an array of any shape with memory for one element, to probe NumPy's error."""
    if dtype.kind == "T":  # as_strided does not support strings of variable length
        return np.broadcast_to(np.zeros((), dtype), shape)
    return as_strided(np.zeros(1, dtype), shape, (0,) * len(shape))


def check_cast(source: DType, target: DType, casting: Casting) -> None:
    """Raise NumPy's error if a cast of array data is not allowed."""
    if not np.can_cast(source, target, casting):
        raise TypeError(
            f"Cannot cast array data from {source!r} to {target!r} according to the rule "
            f"{casting!r}"
        )
