"""Strategy for in-place shuffles: every rank makes all of NumPy's swaps, on an index array.

A sequence of swaps cannot be divided among the ranks. Each rank makes them all and takes its part
of the result. Only elements that are distributed move between ranks.
"""

from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray, call, to_layout
from distarray.config import config
from distarray.engines.drawing.outputs import of_whole
from distarray.engines.reshaping import in_line, refitted
from distarray.errors import GatherLimitError
from distarray.typing import Array

__all__ = ["check_limit", "permuted_lanes", "reordered"]

_INDEX = np.dtype(np.intp)


def check_limit(name: str, count: int) -> None:
    """Raise if an array of `count` indices on every rank exceeds `config.fallback_limit`."""
    nbytes = count * _INDEX.itemsize
    if nbytes > config.fallback_limit:
        raise GatherLimitError(
            f"{name} swaps {count} elements as NumPy does, on an array of {nbytes} bytes on each "
            f"rank, but config.fallback_limit is {config.fallback_limit}; "
            "distarray.random.default_rng permutes by position, with other numbers and without "
            "such an array"
        )


def reordered(x: DistArray, order: Array, axis: int) -> DistArray:
    """Reorder the slices of a distributed array along an axis; the layout is kept.

    Cost
    ----
    No communication if the axis is whole on every rank; else one exchange of the slices.
    """
    taken: DistArray = call(np.take, x, order, axis)
    return to_layout(taken, x.layout)


def permuted_lanes(source: Any, x: DistArray, axis: int | None) -> DistArray:
    """Permute each slice along an axis independently; permute all elements if `axis` is None."""
    check_limit("permuted", prod(x.shape))
    if axis is None:
        order = source.permuted(np.arange(x.size))
        flat = x if x.ndim == 1 else in_line(x)
        taken = call(np.take, flat.plain(), order, 0)
        return to_layout(refitted(taken, x.shape).plain(), x.layout)
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    lanes = np.broadcast_to(np.arange(x.shape[axis]).reshape(shape), x.shape)
    own = of_whole(source.permuted(lanes, axis=axis), x.mesh, x.layout.canonical())
    taken = call(np.take_along_axis, x, own, axis)
    return to_layout(taken, x.layout)
