"""Reading and writing the elements of a distributed array that a mask selects."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from distarray.array import DistArray, wrap
from distarray.engines.indexing.advanced_keys import IndexArray
from distarray.engines.indexing.gather import placed, result_layout, room
from distarray.engines.indexing.located import block_in
from distarray.engines.indexing.mask_in_block import (
    from_linear,
    is_set,
    key_of,
    places,
    selected,
    set_selected,
)
from distarray.engines.indexing.owners import Rows
from distarray.engines.indexing.packing import Packing
from distarray.engines.indexing.scatter import Apply, assign
from distarray.engines.indexing.values import MISMATCH, Values
from distarray.layout import Layout
from distarray.typing import Array, ArrayLike

__all__ = ["check_lone", "coordinates", "is_known", "nonzero_arrays", "select", "stays", "write"]


def stays(y: DistArray, dims: Sequence[int], mask: IndexArray) -> bool:
    """Return True if every element that a mask selects stays on its rank; from metadata."""
    cutting = [i for i, d in enumerate(dims) if y.layout.cuts[d].parts > 1]
    return not cutting or (len(cutting) == 1 and prod(mask.shape[: cutting[0]]) <= 1)


def is_known(mask: IndexArray) -> bool:
    """Return True if every rank has the whole mask."""
    return not isinstance(mask, DistArray) or mask.layout.is_replicated


def _whole(mask: IndexArray) -> Array | None:
    """Return the whole mask as an array if it is replicated, else None."""
    if not isinstance(mask, DistArray):
        return mask
    block: Array = mask.block
    return block if mask.layout.is_replicated else None


def _spread(y: DistArray, dims: Sequence[int], mask: IndexArray) -> DistArray:
    """Cut the masked dimensions of the array, if they are whole, like the mask.

    Return the array unchanged if the cut would need communication.
    """
    layout = y.layout
    if not isinstance(mask, DistArray) or mask.layout.is_replicated:
        return y
    if any(layout.cuts[d].mesh_dims for d in dims):
        return y
    taken = {m for cut in layout.cuts for m in cut.mesh_dims} | set(layout.ats)
    if not taken.isdisjoint([m for cut in mask.layout.cuts for m in cut.mesh_dims]):
        return y
    for d, cut in zip(dims, mask.layout.cuts, strict=True):
        layout = layout.replace(d, cut)
    return wrap(block_in(y, layout, y.mesh), layout, y.mesh)


def select(y: DistArray, dims: Sequence[int], mask: IndexArray, at: int) -> DistArray:
    """Return the elements that a mask over consecutive dimensions selects.

    Parameters
    ----------
    y : DistArray
        The array.
    dims : sequence of int
        The dimensions that the mask covers.
    mask : array of bool
        A DistArray, or an array that every rank has.
    at : int
        Position in the result of the dimension that replaces the masked dimensions.

    Returns
    -------
    DistArray
        A copy. If only the leading masked dimension is cut, every element stays on its rank, and
        the blocks of the new dimension have the lengths of the ranks' selected elements. Otherwise
        the new dimension is cut evenly. The other dimensions keep their cuts.

    Cost
    ----
    A mask whose layout differs from the array's is redistributed first. One allgather of a number
    if the elements stay on their ranks; else that of
    :class:`~distarray.engines.indexing.packing.Packing`, and one exchange of the selected elements
    that change rank.
    """
    y = _spread(y, dims, mask)
    rows, mesh = Rows(y, dims), y.mesh
    part = block_in(mask, Layout.from_cuts(rows.cuts, mesh.shape), mesh)
    packing = Packing(part, rows.cuts, mesh, _whole(mask))
    layout = result_layout(rows, [packing.cut], at)
    if not rows.holds:
        return wrap(mesh.xp.empty(layout.local_shape(mesh.coords), y.dtype), layout, mesh)
    first = dims[0]
    found = selected(y.mesh.asarray(y.block), first, part)  # stored with the elements outermost
    if packing.in_place:
        return wrap(found if at == first else np.moveaxis(found, first, at), layout, mesh)
    into = room(rows, layout.local_shape(mesh.coords)[at])
    lines = packing.forward(np.moveaxis(found, first, 0), into)
    return wrap(placed(lines, 1, at), layout, mesh)


def write(
    y: DistArray,
    dims: Sequence[int],
    mask: IndexArray,
    at: int,
    value: ArrayLike | None,
    *,
    alone: bool = False,
    apply: Apply = assign,
    text: str = MISMATCH,
) -> None:
    """Write values into the elements that a mask over consecutive dimensions selects.

    Parameters
    ----------
    y, dims, mask, at
        As for :func:`select`.
    value : array_like or None
        The values; None for a unary operation in place.
    alone : bool
        True to apply NumPy's rules for assignments to a mask over the whole array.
    apply : callable
        Function that writes to a block; a ufunc's ``at`` for instance.
    text : str
        As for :class:`~distarray.engines.indexing.values.Values`.

    Cost
    ----
    No communication if mask and array have the same cuts and all elements get the same values.
    Otherwise the counts, as in reading, and one exchange of the values that other ranks hold.
    """
    rows, mesh = Rows(y, dims), y.mesh
    if mesh.coords is None:
        return
    if alone:
        check_lone(value)
    part = block_in(mask, Layout.from_cuts(rows.cuts, mesh.shape), mesh)
    rest = [y.shape[d] for d in rows.rest]
    values = _same_for_all(value, rest, at, text)
    if values is not None:
        one = Layout.replicated((1,), mesh.shape).cuts
        found = values.rows(result_layout(rows, one, at), mesh)
    else:
        packing = Packing(part, rows.cuts, mesh, _whole(mask))
        if alone:
            check_lone(value, packing.count)
        values = Values(value, (*rest[:at], packing.count, *rest[at:]), at, 1, text)
        found = values.rows(result_layout(rows, [packing.cut], at), mesh)
        if rows.holds and found is not None:
            found = packing.backward(found)
    if rows.holds:
        _assign(y.mesh.asarray(y.block), dims[0], part, found, apply)


def _same_for_all(
    value: ArrayLike | None, rest: Sequence[int], at: int, text: str
) -> Values | None:
    """Return the values if all selected elements get the same, by their shape; else None."""
    try:
        return Values(value, (*rest[:at], 1, *rest[at:]), at, 1, text)
    except ValueError:
        return None


def check_lone(value: ArrayLike | None, count: int | None = None) -> None:
    """Raise NumPy's error if values cannot be assigned to a mask over the whole array."""
    shape = value.shape if isinstance(value, DistArray) else np.shape(value)  # type: ignore[arg-type]
    if len(shape) > 1:
        raise TypeError(
            "NumPy boolean array indexing assignment requires a 0 or 1-dimensional input, input "
            f"has {len(shape)} dimensions"
        )
    if count is not None and shape not in ((), (1,), (count,)):
        raise ValueError(
            f"NumPy boolean array indexing assignment cannot assign {shape[0]} input "
            f"values to the {count} output values where the mask is true"
        )


def _assign(block: Array, first: int, mask: Array, values: Array | None, apply: Apply) -> None:
    if apply is assign and values is not None:
        set_selected(block, first, mask, values)
        return
    if values is not None:
        values = np.moveaxis(values, 0, first)
    apply(block, key_of(mask, first), values)


def coordinates(x: DistArray) -> tuple[DistArray, ...]:
    """Return the indices of the nonzero elements, one array per dimension, as ``nonzero``.

    Cost
    ----
    That of :func:`select`, with one number per element.
    """
    layout, mesh = x.layout, x.mesh
    mask = is_set(x.block)
    here = places(mask)
    packing = Packing(mask, layout.cuts, mesh, selected=len(here[0]))
    result = Layout.from_cuts([packing.cut], mesh.shape)
    starts = [start for start, _ in layout.section(mesh.coords)]
    found = [array + start if start else array for array, start in zip(here, starts, strict=True)]
    if not packing.in_place:
        # One number per element is sent; the receiver converts it back to indices.
        total = found[0]
        for array, extent in zip(found[1:], x.shape[1:], strict=True):
            total = total * extent + array
        found = list(from_linear(packing.forward(total), x.shape))
    return tuple([wrap(array, result, mesh) for array in found])


def nonzero_arrays(mask: IndexArray) -> Sequence[IndexArray]:
    """Return the index arrays of the elements that a mask selects."""
    if isinstance(mask, DistArray):
        return places(mask.block) if mask.layout.is_replicated else coordinates(mask)
    return places(mask)
