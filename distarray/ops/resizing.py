"""`x.resize`: changes the size of an array in place, with its elements in memory order."""

from math import prod
from operator import index
from sys import getrefcount, maxsize
from typing import Any

import numpy as np

from distarray.array import DistArray, Objects, default_layout, implements, wrap
from distarray.array.base import become, raw_block, storage_of
from distarray.array.blocks_out import live_arrays
from distarray.array.geometry import is_view
from distarray.array.memory import is_shared, is_writeable
from distarray.array.storage import is_contiguous, is_natural
from distarray.array.views import permuted
from distarray.engines.reshaping import in_line, reshaped
from distarray.layout import Fold
from distarray.ops.joining import concatenate
from distarray.typing import Shape

__all__ = ["resize_in_place"]

#: A rank's vote on other users of its block's memory; the highest vote counts.
_FREE, _SEEN, _BORROWED = range(3)


@implements(DistArray.resize, at=True, computes=False, objects=Objects.ENGINE)
def resize_in_place(x: DistArray, shape: tuple[Any, ...], refcheck: bool = True) -> None:
    """Change the shape and the number of elements; see :meth:`numpy.ndarray.resize`.

    Parameters
    ----------
    x : DistArray
        Contiguous, and not a view of memory that another object still refers to.
    shape : tuple
        Arguments of the method: extents, or one sequence of them. New elements are zero.
    refcheck : bool
        True to raise if another array is a view of this one. Without the check such views keep the
        old memory. Another name for the array itself is no reason to raise: it still refers to the
        same array.

    Raises
    ------
    ValueError
        On all ranks, with NumPy's text.

    Cost
    ----
    One allreduce of an integer; the cost of :func:`numpy.concatenate` and :func:`numpy.reshape`.
    """
    np.empty(0).resize(0, refcheck=refcheck)  # NumPy's error
    if not shape or shape == (None,) or isinstance(x.block, np.generic):
        return
    extents = _extents(shape, x.itemsize)
    straight = is_contiguous(x, "C")
    if not straight and not is_contiguous(x, "F"):
        raise ValueError("resize only works on single-segment arrays")
    if x.layout.partials:
        x.settle()
    if prod(extents) == x.size and _reshaped_in_place(x, extents, straight):
        return
    writeable = is_writeable(raw_block(x))
    _refuse_shared(x, refcheck)
    found = _resized(x, extents) if straight else _turned(_resized(_turned(x), extents[::-1]))
    become(x, found)
    if not writeable:
        raw_block(x).flags.writeable = False


def _extents(shape: tuple[Any, ...], itemsize: int) -> Shape:
    """Return the extents in the method's arguments; raise NumPy's exceptions."""
    if len(shape) == 1 and not hasattr(shape[0], "__index__"):
        try:
            shape = tuple(shape[0])
        except TypeError:
            np.empty(0).reshape(shape[0])  # NumPy's error for invalid shapes
    extents = tuple(map(index, shape))
    if any(extent < 0 for extent in extents):
        raise ValueError("negative dimensions not allowed")
    if prod(extents) * itemsize > maxsize:
        raise MemoryError(f"an array of shape {extents} exceeds the address space")
    return extents


def _reshaped_in_place(x: DistArray, extents: Shape, straight: bool) -> bool:
    """Give the same elements another shape in the same memory, if no element has to move."""
    try:
        if straight:
            found = reshaped(x, extents, copy=False)
        else:
            found = _turned(reshaped(_turned(x), extents[::-1], copy=False))
    except ValueError:
        return False
    become(x, found)
    return True


def _turned(x: DistArray) -> DistArray:
    return permuted(x, range(x.ndim)[::-1])


def _resized(x: DistArray, extents: Shape) -> DistArray:
    """Return the elements in C order, truncated or followed by zeros, in another shape."""
    total, flat = prod(extents), in_line(x)
    if not total:
        return _zeros(flat, extents)
    if total > flat.size:
        flat = concatenate([flat, _zeros(flat, (total - flat.size,))])
    return reshaped(flat[:total], extents, copy=True)


def _zeros(x: DistArray, shape: Shape) -> DistArray:
    layout = default_layout(shape, 0 if x.dtype.hasobject else x.itemsize, x.mesh)
    return wrap(x.mesh.xp.zeros(layout.local_shape(x.mesh.coords), x.dtype), layout, x.mesh)


def _refuse_shared(x: DistArray, refcheck: bool) -> None:
    """Raise NumPy's ValueError on all ranks if `x` is a view or, with `refcheck`, has views."""
    vote = _seen_by(x)
    if x.mesh.size() > 1:
        vote = int(x.mesh.group.allreduce(np.array(vote), Fold.MAX, "resize"))
    if vote == _BORROWED:
        np.empty(2)[:1].resize(2)  # NumPy's error
    if vote == _SEEN and refcheck:
        array = np.empty(1)
        view = array[:]
        array.resize(2 * view.size)


def _seen_by(x: DistArray) -> int:
    """Return this rank's vote on views of an array and other references to its block."""
    if is_view(x):
        return _BORROWED
    if not x.size:
        return _FREE
    block, storage = raw_block(x), storage_of(x)
    if storage is not None:
        sources = storage.source.memory.materializations
        if any(y is not x for source in sources for y in live_arrays(source)):
            return _SEEN
    if not block.size or is_shared(x):
        return _FREE
    owner = block.base
    if owner is None:
        known = 3 if is_natural(x) else 2  # the references from `x`, and that of this function
        return _SEEN if getrefcount(block) > known + 1 else _FREE
    return _BORROWED if getrefcount(owner) > 3 or not isinstance(owner, np.ndarray) else _FREE
