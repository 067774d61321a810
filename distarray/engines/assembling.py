"""Arrays made of parts: where the whole goes, and all parts sent there in one exchange."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import (
    DistArray,
    default_layout,
    empty,
    movement,
)
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Layout
from distarray.plan.joining import joined_layout

__all__ = ["Part", "assemble", "fill_parts", "placed_by_size"]

#: An operand and the index of its first element in the result.
Part = tuple[tuple[int, ...], DistArray]


def assemble(
    shape: tuple[int, ...],
    dtype: Any,
    parts: Sequence[Part],
    mesh: DeviceMesh,
    layout: Layout | None = None,
) -> DistArray:
    """An array that consists of parts.

    Parameters
    ----------
    shape, dtype
        Of the result.
    parts : sequence of (origin, DistArray)
        Boxes that cover the result, or as much of it as is wanted; no pending folds.
    mesh : DeviceMesh
        The one that they are on.
    layout : Layout, optional
        Of the result; the one for which least is moved if not given, and a default layout if the
        parts do not say where to cut.

    Returns
    -------
    DistArray

    Cost
    ----
    One exchange. For each part one message a pair of ranks at most, with what the receiver lacks.
    """
    if layout is None:
        layout = joined_layout(shape, tuple([(x.layout, origin) for origin, x in parts]))
    if layout is None or layout.is_replicated:
        layout = placed_by_size(shape, dtype, [x for _, x in parts], mesh)
    result = empty(layout, dtype, mesh)
    fill_parts(result, parts)
    return result


def placed_by_size(
    shape: Sequence[int], dtype: Any, operands: Sequence[DistArray], mesh: DeviceMesh
) -> Layout:
    """Where a result goes that no operand says where to cut: divided if it alone is large."""
    layout = default_layout(tuple(shape), np.dtype(dtype).itemsize, mesh)
    everywhere = [x.nbytes for x in operands if x.layout.is_replicated]
    if any(nbytes >= config.replicate_below for nbytes in everywhere):
        return Layout.replicated(tuple(shape), mesh.shape)
    return layout


def fill_parts(result: DistArray, parts: Sequence[Part]) -> None:
    """Assign each part to its box of an array, all in one exchange."""
    found = []
    for origin, part in parts:
        if part.size:
            entries = [(a, 1, n) for a, n in zip(origin, part.shape, strict=True)]
            box = result.sliced(tuple(entries))
            found.append((box.block, box.layout, part.to_local(), part.layout))
    movement.assign_each(found, result.mesh)
