"""Work along an axis of arrays that lie alike, in one of four ways.

* The axis is whole: every rank works on its own block.
* The arrays are small: every rank gets all of them and works on all.
* Another dimension is long enough: the axis is made whole by cutting that one instead, and the
  result is brought back. Two exchanges.
* Otherwise the lines along the axis are few, and all ranks along the cut work on each together.
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
    """How one line along an axis is spread over ranks.

    Attributes
    ----------
    group : Group
        The ranks that have parts of it, in their order.
    lengths : list of int
        How many of its elements each rank has.
    stops : list of int
        How many elements of the result each rank and those before it get in all.
    """

    group: Group
    lengths: list[int]
    stops: list[int]


class Work(NamedTuple):
    """Some work along an axis.

    Attributes
    ----------
    whole : callable
        ``whole(blocks, axis)``: the block of the result, where the axis is whole.
    spread : callable
        ``spread(parts, line)``: this rank's part of the result for one line, given its parts of
        the arrays' lines.
    dtype : dtype
        Of the result.
    undivided : bool
        Whether several ranks never work on one line.
    """

    whole: Callable[[Sequence[Array], int], Array]
    spread: Callable[[Sequence[Array], Line], Array]
    dtype: DType
    undivided: bool = False


def along_axis(
    arrays: Sequence[DistArray], axis: int, work: Work, target: Layout | None = None
) -> DistArray:
    """The result of some work along an axis, of the shape of the arrays.

    Parameters
    ----------
    arrays : sequence of DistArray
        Laid out alike.
    axis : int
        From the front.
    work : Work
        The work.
    target : Layout, optional
        Of the result where the axis is cut; by default that of the arrays with the canonical cut
        of the axis.

    Returns
    -------
    DistArray
        Small results whose axis was cut are replicated.

    Cost
    ----
    See this module; exchanges send no more than changes rank.
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
    """The layout with the canonical cut of one dimension."""
    cut = layout.cuts[axis]
    return layout.replace(axis, Cut.chunked(cut.extent, cut.mesh_dims, cut.radix))


def freed(layout: Layout, axis: int, surely: bool = False) -> Layout | None:
    """A layout with an axis whole and another dimension cut instead; None if none is long enough.

    With `surely` the longest other one is cut, even if some ranks then have nothing.
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
    """This rank's block of the result, one line after the other."""
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
    """A block's lines along an axis, in two dimensions."""
    last = np.moveaxis(block, axis, -1)
    return last.reshape(prod(last.shape[:-1]), last.shape[-1])
