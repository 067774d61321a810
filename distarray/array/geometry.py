"""Where arrays lie in their memory: NumPy's offsets and strides of the whole arrays.

No rank has the whole memory of cut arrays. But an address space of its size costs nothing: views of
it, made by the functions that made the arrays, lie there as NumPy's arrays would lie in memory. So
NumPy itself says whether two arrays have elements in common, what their strides are, and how far
they are from the beginning.
"""

from typing import Any

import numpy as np

from distarray.array import storage as storage_module
from distarray.array.ancestry import above, address_space, made_of, whole
from distarray.array.base import Base, owns_block, raw_block, storage_of
from distarray.array.blocks_out import live_arrays
from distarray.array.memory import Storage, entered, is_writeable
from distarray.array.sharing import ancestor
from distarray.array.storage import (
    has_several,
    is_contiguous,
    is_unlike,
    stored_order,
    walked,
)
from distarray.layout import Layout
from distarray.typing import Array

__all__ = [
    "base_of",
    "in_memory",
    "in_whole",
    "is_view",
    "origin_of",
    "owns_memory",
    "strides_of",
    "within",
]

_new = object.__new__


def is_view(x: Base) -> bool:
    """Whether a cut array is a view of another one, as far as it has been noted. Sends nothing."""
    storage = storage_of(x)
    return storage is not None and storage.base is not None


def owns_memory(x: Base) -> bool:
    """Whether an array is no view: NumPy's ``flags.owndata``."""
    return owns_block(x.to_local()) if x.layout.is_whole else not is_view(x)


def origin_of(x: Base) -> Storage:
    """The storage of the array that is a view of none, and that an array is a view of."""
    storage = entered(x)
    parent = above(storage)
    while parent is not None:
        storage, parent = parent, above(parent)
    return storage


def base_of(x: Base) -> Any:
    """The array at the beginning of the memory of a view; None for an array that is no view."""
    if not x.layout.is_whole:
        storage = storage_of(x)
        return None if storage is None else storage.base
    block: Any = raw_block(x)
    base: Any = getattr(block, "base", None)
    if base is None or owns_block(block):
        return None
    if type(base) is not type(block):
        return base
    return _over(x, base, Layout.replicated(base.shape, x.mesh.shape))


def _over(x: Base, block: Array, layout: Layout) -> Any:
    """An array over a block that is a view of none."""
    found = _new(Base.plain_type)
    found.block, found.layout, found.mesh = block, layout, x.mesh
    return found


def strides_of(x: Base) -> tuple[int, ...]:
    """Bytes from one index of a cut array to the next in its memory.

    Cost
    ----
    That of :func:`~distarray.array.storage.is_contiguous` of what a view is a view of. Else that of
    :func:`~distarray.array.storage.stored_order`, or none if each rank has several indices of each
    dimension that has them.
    """
    found = in_whole(x)
    if found is not None:
        return found.strides
    if has_several(x.layout) and not is_unlike(x):
        order = walked(x.to_local().strides, x.layout.shape)
    else:
        order = stored_order(x)
    step, strides = x.itemsize if x.layout.size else 0, [0] * x.ndim
    for dim in reversed(order):
        strides[dim], step = step, step * x.layout.shape[dim]
    return tuple(strides)


def in_memory(x: Base, origin: Array | None = None) -> Array | None:
    """An array of the same shape that lies in an address space as the whole array does.

    Parameters
    ----------
    x : DistArray
        Cut.
    origin : array, optional
        What stands for the array at the beginning of the memory; by default an address space is
        made, as of an array in C order.

    Returns
    -------
    array or None
        Its elements mean nothing. None if that is not known.
    """
    first = origin_of(x)
    if origin is None:
        origin = address_space(*first.kind)
    return _laid_out(x, {id(first): whole(origin, x.mesh)}, origin)


def within(x: Base) -> tuple[Any, str, Array, Array] | None:
    """The array nearest to the beginning of the memory, and where another one lies in it.

    Returns
    -------
    tuple or None
        That array, the order in which it is stored without gaps, what stands for it in an address
        space, and what stands for `x`. None if it has gaps.

    Cost
    ----
    As :func:`~distarray.array.storage.is_contiguous`.
    """
    top = ancestor(x)
    if is_writeable(raw_block(x)) and not is_writeable(raw_block(top)) and is_contiguous(x, "C"):
        top = x  # by itself it can be written to
    order = next((order for order in "CF" if is_contiguous(top, order)), None)
    if order is None:
        return _around(x)
    shape = top.shape if order == "C" else top.shape[::-1]
    space = address_space(shape, top.dtype)
    space = space if order == "C" else space.T
    found = _laid_out(x, {id(top._storage): whole(space, x.mesh)}, space)
    return None if found is None else (top, order, space, found)


def _around(x: Base) -> tuple[Any, str, Array, Array] | None:
    """As :func:`within`, of an array over the same memory that got another shape by ``y.shape =``.

    Then it is not one that the other array is a view of.
    """
    first = origin_of(x)
    space = address_space(*first.kind)
    made = {id(first): whole(space, x.mesh)}
    place = _laid_out(x, made, space)
    if place is None:
        return None
    sources = entered(x).source.memory.materializations
    for y in [y for source in list(sources) for y in live_arrays(source)]:
        found = _laid_out(y, made, space)
        if found is not None and found.flags.c_contiguous and _is_inside(place, found):
            return (y, "C", found, place) if is_contiguous(y, "C") else None
    return None


def _is_inside(place: Array, space: Array) -> bool:
    low, high = np.lib.array_utils.byte_bounds(space)
    first, last = np.lib.array_utils.byte_bounds(place)
    return low <= first and last <= high


def in_whole(x: Base) -> Array | None:
    """As :func:`in_memory` for a view, of which NumPy says how it is stored; None for others.

    Cost
    ----
    That of :func:`~distarray.array.storage.is_contiguous` of the array that it is a view of.
    """
    storage = storage_of(x)
    root = None if storage is None or not x.layout.size else storage.base
    if root is None or x.layout.is_whole:
        return None
    if is_contiguous(root, "C"):
        return in_memory(x)
    if not is_contiguous(root, "F"):
        return None
    shape, dtype = origin_of(x).kind
    return in_memory(x, address_space(shape[::-1], dtype).T)


storage_module.in_whole = in_whole


def _laid_out(x: Base, made: dict[int, Any], space: Array) -> Array | None:
    """The view of an address space that an array is of what stands for others."""
    found = made_of(x._storage, made)
    block = getattr(found, "block", None)
    if not isinstance(block, np.ndarray) or block.shape != x.layout.shape:
        return None
    inside = not block.size or np.may_share_memory(block, space)
    return block if inside else None
