"""reshape and ravel: a view if every element can stay on its rank, else one redistribution."""

from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, implements
from distarray.array.base import keep_owned, raw_block
from distarray.array.storage import is_contiguous, stored_order
from distarray.array.views import permuted
from distarray.engines.reshaping import Groups, reshaped
from distarray.typing import ArrayLike, Order, Shape, ShapeLike

__all__ = ["ravel", "reshape"]

_FLAG = np.empty((), np.bool_)


@implements(np.reshape, at=True, computes=False)
def reshape(
    a: ArrayLike, /, shape: ShapeLike, order: Order = "C", *, copy: bool | None = None
) -> DistArray:
    """Return the array's elements, in the same order, in another shape.

    Parameters
    ----------
    a : DistArray
        Any placement.
    shape : int or tuple of int
        The new shape; one extent may be -1 and is computed from the others.
    order : {"C", "F", "A"}
        Order in which elements are read and placed. "A" is "F" if the blocks are stored in
        Fortran order.
    copy : bool, optional
        True always copies, False never. By default the result is a view if possible.

    Returns
    -------
    DistArray
        A view if every element can stay on its rank and NumPy can view the blocks. Dimensions that
        are whole on every rank are split and merged freely. A sharded one is split or merged
        together with the dimensions after it, as long as the boundaries between blocks fall between
        indices of the new leading dimension. Otherwise a copy; the dimensions that could not keep
        their cut then get the canonical one, along the first that gives most ranks a part.

    Cost
    ----
    None for a view. For a copy that moves, each rank sends only its elements of another rank's new
    block, in up to 2 k - 1 messages per pair if k dimensions are merged; memory for source and
    result. If some rank has a single index of a merged dimension, and for ``order="A"``, the ranks
    agree by one allreduce of an integer on whether it is a view.

    Raises
    ------
    ValueError
        If the number of elements differs, or under ``copy=False`` if a copy is needed; on all
        ranks.
    """
    a = as_distarray(a)
    wanted = _new_shape(a.size, shape, order)
    if order in ("A", "a"):
        order = "F" if _is_fortran(a) else "C"
    if order in ("F", "f"):
        turned = reshaped(permuted(a, range(a.ndim)[::-1]), wanted[::-1], copy)
        return permuted(turned, range(turned.ndim)[::-1])
    return reshaped(a, wanted, copy)


@implements(np.ravel, at=True, computes=False)
def ravel(a: ArrayLike, order: Order = "C") -> DistArray:
    """Flatten the array; a view if it is contiguous and :func:`reshape` returns one.

    Parameters
    ----------
    a : DistArray
        Any placement.
    order : {"C", "F", "A", "K"}
        As for :func:`reshape`; "K" reads the dimensions in the order in which the blocks store
        them. If no rank holds two indices of a distributed dimension, results of operations on
        transposed arrays are stored in C order, unlike NumPy's.

    Returns
    -------
    DistArray

    Cost
    ----
    The cost of :func:`reshape`.
    """
    a = as_distarray(a)
    _FLAG.ravel(order)  # raises NumPy's error about the order
    letter = order.upper()
    if letter == "K":
        a = permuted(a, stored_order(a))
    elif letter == "F" or (letter == "A" and _is_fortran(a)):
        a = permuted(a, range(a.ndim)[::-1])
    result = reshaped(a, (a.size,), viewable=_is_contiguous)
    if result.layout.is_whole and result.size:
        _own_if_copied(result, raw_block(a))
    return result


def _own_if_copied(result: DistArray, block: Any) -> None:
    """Let a copy own its memory, unlike the copy that a reshape makes; as in NumPy."""
    copied = raw_block(result)
    if isinstance(copied, np.ndarray) and not np.may_share_memory(copied, block):
        keep_owned(copied)


def _is_contiguous(x: DistArray, groups: Groups) -> bool:
    return is_contiguous(x, "C")


def _is_fortran(x: DistArray) -> bool:
    """Return True if an array is stored in Fortran order, and not in C order as well."""
    return x.ndim > 1 and is_contiguous(x, "F") and not is_contiguous(x, "C")


def _new_shape(size: int, shape: ShapeLike, order: Order) -> Shape:
    """Return the new shape with -1 filled in; NumPy interprets all but the simplest."""
    dims = (shape,) if type(shape) is int else shape
    found = None
    if type(dims) is tuple and size and order == "C":
        found = _filled_in(size, dims)
    if found is None:
        flat: Any = np.broadcast_to(_FLAG, (size,))
        found = flat.reshape(shape, order=order).shape
    return found


def _filled_in(size: int, dims: tuple[int, ...]) -> Shape | None:
    """Return the extents, with at most one -1 filled in, if they fit the size; else None."""
    known = abs(prod(dims)) if all(type(n) is int and n for n in dims) else 0
    if not known or size % known:
        return None
    negative = [n for n in dims if n < 0]
    if not negative and known == size:
        return dims
    if negative == [-1]:
        return tuple([size // known if n < 0 else n for n in dims])
    return None
