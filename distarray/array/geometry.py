"""Placement of arrays in their memory: NumPy's offsets and strides of the whole arrays.

No rank has the whole memory of a cut array. But reserving address space of that size costs nothing.
The functions that made the arrays are applied again to this address space. The resulting views have
the offsets and strides that NumPy's arrays would have in memory. So NumPy itself determines whether
two arrays have elements in common, their strides, and their distance from the start of the memory.
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
    """Return True if a cut array is registered as a view of another one. No communication."""
    storage = storage_of(x)
    return storage is not None and storage.base is not None


def owns_memory(x: Base) -> bool:
    """Return True if an array is no view, as NumPy's ``flags.owndata``."""
    return owns_block(x.to_local()) if x.layout.is_whole else not is_view(x)


def origin_of(x: Base) -> Storage:
    """Return the storage of the array at the root of the chain of views and links."""
    storage = entered(x)
    parent = above(storage)
    while parent is not None:
        storage, parent = parent, above(parent)
    return storage


def base_of(x: Base) -> Any:
    """Return the base of a view, as NumPy's ``x.base``; None for an array that is no view."""
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
    """Return an array over a block, as a view of no array."""
    found = _new(Base.plain_type)
    found.block, found.layout, found.mesh = block, layout, x.mesh
    return found


def strides_of(x: Base) -> tuple[int, ...]:
    """Return the bytes from one index of a cut array to the next in its memory.

    Cost
    ----
    For a view, that of :func:`~distarray.array.storage.is_contiguous` for its base. Otherwise that
    of :func:`~distarray.array.storage.stored_order`, or none if each rank has several indices of
    each dimension with several indices.
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
    """Return an array that is placed in an address space as the whole array is in its memory.

    Parameters
    ----------
    x : DistArray
        A cut array.
    origin : array, optional
        The substitute for the array at the root. By default an address space is reserved, in C
        order.

    Returns
    -------
    array or None
        An array of the shape of `x`, with meaningless elements. None if the placement is not known.
    """
    first = origin_of(x)
    if origin is None:
        origin = address_space(*first.kind)
    return _laid_out(x, {id(first): whole(origin, x.mesh)}, origin)


def within(x: Base) -> tuple[Any, str, Array, Array] | None:
    """Return a gapless array over the memory that contains `x`, and the placement of `x` in it.

    If possible, it is the array nearest to the root of the views of `x`.

    Returns
    -------
    tuple or None
        That array, the order in which it is stored without gaps, its substitute in an address
        space, and the substitute for `x`. None if no array without gaps is found.

    Cost
    ----
    That of :func:`~distarray.array.storage.is_contiguous`.
    """
    top = ancestor(x)
    if is_writeable(raw_block(x)) and not is_writeable(raw_block(top)) and is_contiguous(x, "C"):
        top = x  # writeable although the root is not
    order = next((order for order in "CF" if is_contiguous(top, order)), None)
    if order is None:
        return _around(x)
    shape = top.shape if order == "C" else top.shape[::-1]
    space = address_space(shape, top.dtype)
    space = space if order == "C" else space.T
    found = _laid_out(x, {id(top._storage): whole(space, x.mesh)}, space)
    return None if found is None else (top, order, space, found)


def _around(x: Base) -> tuple[Any, str, Array, Array] | None:
    """Find the result of :func:`within` if the containing array got another shape by ``y.shape =``.

    Then `x` is not a view of that array.
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
    """Return the placement of a view as :func:`in_memory`; None for other arrays.

    Cost
    ----
    That of :func:`~distarray.array.storage.is_contiguous` for the base of the view.
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
    """Make the view again from the substitutes in `made`; None if it is not within `space`."""
    found = made_of(x._storage, made)
    block = getattr(found, "block", None)
    if not isinstance(block, np.ndarray) or block.shape != x.layout.shape:
        return None
    inside = not block.size or np.may_share_memory(block, space)
    return block if inside else None
