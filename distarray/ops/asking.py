"""What an elementwise operation is asked before it runs: data types, masks, arrays for results.

All is decided from metadata, so that all ranks raise alike, what NumPy raises.
"""

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from distarray.array import DistArray, as_distarray
from distarray.array.blocks import refuse_read_only
from distarray.comm import DeviceMesh
from distarray.plan import broadcast_shapes, shape_text

__all__ = ["as_axis", "as_mask", "check_shapes", "check_writeable", "condition", "result_types"]


def result_types(
    function: Callable[..., Any],
    operands: Sequence[Any],
    outs: Sequence[Any],
    keywords: dict[str, Any],
) -> list[Any]:
    """Data types of the results, from a call with empty arrays; or NumPy's exception.

    Operands are arrays or Python's numbers; `outs` may be arrays of NumPy's as well.
    """
    probes = [np.empty((0,), x.dtype) if hasattr(x, "dtype") else x for x in operands]
    given = [None if out is None else np.empty((0,), out.dtype) for out in outs]
    if given:
        keywords = {**keywords, "out": tuple(given) if len(given) > 1 else given[0]}
    value = function(*probes, **keywords)
    return [v.dtype for v in (value if isinstance(value, tuple) else (value,))]


def refuse_shapes(
    function: Callable[..., Any], operands: Sequence[Any], outs: Sequence[Any], keywords: Any
) -> None:
    """Raise what NumPy raises for operands that do not broadcast; it may look at types first."""

    def hollow(x: Any) -> Any:
        return as_strided(np.zeros(1, x.dtype), x.shape, (0,) * x.ndim) if hasattr(x, "ndim") else x

    given = tuple([hollow(out) for out in outs])
    if given:
        keywords = {**keywords, "out": given if len(given) > 1 else given[0]}
    try:
        function(*[hollow(x) for x in operands], **keywords)
    except Exception as error:
        raise error from None  # told once, whatever the caller is about


def as_axis(axis: Any) -> int:
    """An axis as NumPy's functions in C read it: a truth value is none."""
    if isinstance(axis, (bool, np.bool_)):
        raise TypeError("an integer is required for the axis")
    return index(axis)


def condition(where: Any) -> Any:
    """A condition with a data type: what is no array is converted to truth values."""
    is_array = hasattr(where, "dtype") and not isinstance(where, np.generic)
    return where if is_array else np.asarray(where, bool)


def as_mask(where: Any, mesh: DeviceMesh) -> DistArray:
    """A mask as an array; raises what NumPy raises if it holds no truth values."""
    mask = condition(where)
    if mask.dtype.kind != "b":
        raise TypeError(
            f"Cannot cast array data from {mask.dtype!r} to dtype('bool') according to the rule "
            "'safe'"
        )
    return as_distarray(mask, mesh)


def check_writeable(outs: Sequence[Any]) -> None:
    """Raise what NumPy raises about given arrays before it looks at anything else."""
    for out in outs:
        if not isinstance(out, DistArray) or isinstance(out._block, np.generic):
            raise TypeError("return arrays must be of ArrayType")
        if out._layout.partials:
            out._settle()
        refuse_read_only(out._block, "output array is read-only")


def check_shapes(arrays: Sequence[Any], outs: Sequence[Any]) -> None:
    """Raise what NumPy raises if results do not fit into the given arrays."""
    shapes = [x.shape if hasattr(x, "shape") else np.shape(x) for x in arrays]
    shape = broadcast_shapes(*shapes)
    shape = broadcast_shapes(shape, *[out.shape for out in outs])  # one for all
    for out in outs:
        if out.shape != shape:
            listed = " ".join([shape_text(each) for each in (*shapes, out.shape)])
            raise ValueError(
                f"non-broadcastable output operand with shape {shape_text(out.shape)} doesn't "
                f"match the broadcast shape {shape_text(shape)} (operands {listed})"
            )
