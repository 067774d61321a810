"""Work along an axis of arrays with equal layouts, by one of four methods.

* The axis is whole: every rank works on its own block.
* The arrays are small: every rank gets whole arrays and does all the work.
* Another dimension is long enough: that dimension is cut instead of the axis, and the result is
  redistributed back. Two exchanges.
* Otherwise there are few lines along the axis, and all ranks along the cut work on each line
  together.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from distarray.array import DistArray, to_layout, wrap
from distarray.comm.group import Group
from distarray.config import config
from distarray.engines.sorting.parallel_sort import lengths_of, stops_of
from distarray.layout import Cut, Layout
from distarray.typing import Array, DType

__all__ = ["Line", "Work", "along_axis", "canonical_along", "freed"]


class Line(NamedTuple):
    """Distribution of one line along an axis over ranks.

    Attributes
    ----------
    group : Group
        The ranks that have parts of the line, in their order.
    lengths : list of int
        The number of the line's elements on each rank.
    stops : list of int
        For each rank, the total number of elements of the result on this rank and the lower ranks.
    """

    group: Group
    lengths: list[int]
    stops: list[int]


class Work(NamedTuple):
    """Operation along an axis.

    Attributes
    ----------
    whole : callable
        ``whole(blocks, axis)`` returns the block of the result if the axis is whole.
    spread : callable
        ``spread(parts, line)`` returns this rank's part of the result for one line, from this
        rank's parts of the arrays' lines.
    dtype : dtype
        The data type of the result.
    undivided : bool
        True if several ranks never work on one line.
    """

    whole: Callable[[Sequence[Array], int], Array]
    spread: Callable[[Sequence[Array], Line], Array]
    dtype: DType
    undivided: bool = False


def along_axis(
    arrays: Sequence[DistArray], axis: int, work: Work, target: Layout | None = None
) -> DistArray:
    """Apply an operation along an axis; the result has the shape of the arrays.

    Parameters
    ----------
    arrays : sequence of DistArray
        Arrays with equal layouts.
    axis : int
        The axis, counted from the first one.
    work : Work
        The operation.
    target : Layout, optional
        The layout of the result if the axis is cut; by default the layout of the arrays with the
        canonical cut of the axis.

    Returns
    -------
    DistArray
        The result; replicated if it is small and its axis was cut.

    Cost
    ----
    See the module; exchanges send only elements that change their rank.
    """
    x = arrays[0]
    layout, mesh = x.layout, x.mesh
    if layout.cuts[axis].parts == 1:
        return wrap(work.whole([mesh.asarray(a.block) for a in arrays], axis), layout, mesh)
    target = canonical_along(layout, axis) if target is None else target
    small = sum([a.nbytes for a in arrays]) < config.replicate_below
    free = (
        Layout.replicated(layout.shape, mesh.shape)
        if small
        else freed(layout, axis, work.undivided)
    )
    if free is not None:
        blocks = [to_layout(a, free).block for a in arrays]
        found = wrap(work.whole(blocks, axis), free, mesh)
        return found if free.is_replicated else to_layout(found, target)
    if layout.cuts[axis].step < 0:  # its first block is on the last rank
        layout = canonical_along(layout, axis)
        arrays = [to_layout(a, layout) for a in arrays]
    return wrap(_by_lines(arrays, axis, work, target), target, mesh)


def canonical_along(layout: Layout, axis: int) -> Layout:
    """Return the layout with the canonical cut of one dimension."""
    cut = layout.cuts[axis]
    return layout.replace(axis, Cut.chunked(cut.extent, cut.mesh_dims, cut.radix))


def freed(layout: Layout, axis: int, surely: bool = False) -> Layout | None:
    """Return a layout with an axis whole and another dimension cut, or None if all are too short.

    With `surely` the longest other dimension is cut, even if some ranks then have no elements.
    """
    moved = layout.cuts[axis]
    best, length = None, 0.0 if surely else 1.0
    for dim, cut in enumerate(layout.cuts):
        if dim != axis and cut.extent / (cut.parts * moved.parts) >= length:
            best, length = dim, cut.extent / (cut.parts * moved.parts)
    if best is None:
        return None
    mesh_dims = tuple(sorted((*layout.cuts[best].mesh_dims, *moved.mesh_dims)))
    radix = tuple([layout.mesh_shape[m] for m in mesh_dims])
    cut = Cut.chunked(layout.cuts[best].extent, mesh_dims, radix)
    return layout.without_cut((axis,)).replace(best, cut)


def _by_lines(arrays: Sequence[DistArray], axis: int, work: Work, target: Layout) -> Array:
    """Compute this rank's block of the result, line by line."""
    x = arrays[0]
    mesh, cut = x.mesh, x.layout.cuts[axis]
    shape = target.local_shape(mesh.coords)
    if mesh.coords is None:
        nothing: Array = mesh.xp.empty(shape, work.dtype)
        return nothing
    line = Line(mesh.subgroup(cut.mesh_dims), lengths_of(cut), stops_of(target.cuts[axis]))
    lines = [_lined(mesh.asarray(a.block), axis) for a in arrays]
    if len(lines[0]) == 1:
        return work.spread([parts[0] for parts in lines], line).reshape(shape)
    result: Array = mesh.xp.empty(shape, work.dtype)
    into = np.moveaxis(result, axis, -1)
    for number, place in enumerate(np.ndindex(into.shape[:-1])):
        into[place] = work.spread([parts[number] for parts in lines], line)
    return result


def _lined(block: Array, axis: int) -> Array:
    """Return a block's lines along an axis, in two dimensions."""
    last = np.moveaxis(block, axis, -1)
    return last.reshape(prod(last.shape[:-1]), last.shape[-1])
