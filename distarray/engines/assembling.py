"""Assembly of an array from parts: the layout of the result, and one exchange for all parts."""

from collections.abc import Sequence

import numpy as np

from distarray.array import DistArray, default_layout, empty, movement, wrap
from distarray.comm import DeviceMesh
from distarray.config import config
from distarray.layout import Layout
from distarray.plan.joining import joined_layout
from distarray.typing import DTypeLike, Shape

__all__ = ["Part", "assemble", "fill_parts", "placed_by_size"]

#: An operand and the index of its first element in the result.
Part = tuple[tuple[int, ...], DistArray]


def assemble(
    shape: Shape,
    dtype: DTypeLike,
    parts: Sequence[Part],
    mesh: DeviceMesh,
    layout: Layout | None = None,
    order: Sequence[int] = (),
) -> DistArray:
    """Return a new array that consists of the given parts.

    Parameters
    ----------
    shape, dtype
        Shape and data type of the result.
    parts : sequence of (origin, DistArray)
        Boxes that cover the result, or the region of it to be filled; without pending folds.
    mesh : DeviceMesh
        The mesh of the parts.
    layout : Layout, optional
        Layout of the result. By default the layout for which the fewest elements move, or a default
        layout if the parts do not determine one.
    order : sequence of int, optional
        The result's dimensions in memory order, the same on all ranks; C order by default.

    Returns
    -------
    DistArray

    Cost
    ----
    One exchange: for each part at most one message per pair of ranks, with the elements that the
    receiver lacks.
    """
    if layout is None:
        layout = joined_layout(shape, tuple([(x.layout, origin) for origin, x in parts]))
    if layout is None or layout.is_replicated:
        layout = placed_by_size(shape, dtype, [x for _, x in parts], mesh)
    result = _empty(layout, dtype, mesh, order)
    fill_parts(result, parts)
    return result


def _empty(layout: Layout, dtype: DTypeLike, mesh: DeviceMesh, order: Sequence[int]) -> DistArray:
    """Return an uninitialized array of a layout, with its dimensions in a given memory order."""
    if tuple(order) == tuple(range(len(order))):
        return empty(layout, dtype, mesh)
    shape = layout.local_shape(mesh.coords)
    block = mesh.xp.empty([shape[dim] for dim in order], dtype)
    return wrap(block.transpose(tuple(np.argsort(order).tolist())), layout, mesh)


def placed_by_size(
    shape: Sequence[int], dtype: DTypeLike, operands: Sequence[DistArray], mesh: DeviceMesh
) -> Layout:
    """Return the layout of a result whose operands determine none.

    It is the default layout, or replicated if a replicated operand exceeds the replication limit.
    """
    layout = default_layout(tuple(shape), np.dtype(dtype).itemsize, mesh)
    replicated = [x.nbytes for x in operands if x.layout.is_replicated]
    if any(nbytes >= config.replicate_below for nbytes in replicated):
        return Layout.replicated(tuple(shape), mesh.shape)
    return layout


def fill_parts(result: DistArray, parts: Sequence[Part]) -> None:
    """Assign each part to its box of `result`, in one exchange."""
    boxes = []
    for origin, part in parts:
        if part.size:
            entries = [(a, 1, n) for a, n in zip(origin, part.shape, strict=True)]
            box = result.sliced(tuple(entries))
            boxes.append((box.block, box.layout, part.to_local(), part.layout))
    movement.assign_each(boxes, result.mesh)
