"""reshape and ravel: views where every element can stay on its rank, one redistribution else."""

from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, implements
from distarray.array.storage import (
    is_contiguous,
    stored_order,
)
from distarray.array.views import permuted
from distarray.engines.reshaping import Groups, reshaped

__all__ = ["ravel", "reshape"]

_FLAG = np.empty((), np.bool_)


@implements(np.reshape, at=True, computes=False)
def reshape(a: Any, /, shape: Any, order: Any = "C", *, copy: bool | None = None) -> DistArray:
    """The array's elements, in the same order, in another shape.

    Parameters
    ----------
    a : DistArray
        Any placement.
    shape : int or tuple of int
        The new shape; one extent may be -1 and follows from the others.
    order : {"C", "F", "A"}
        In which order elements are read and placed. "A" is "F" where the blocks are stored so.
    copy : bool, optional
        True copies always, False never. By default the result is a view where that is possible.

    Returns
    -------
    DistArray
        A view where every element can stay on its rank and NumPy can view the blocks: dimensions
        that are whole on every rank are split and merged freely; a sharded one together with those
        after it, as long as the boundaries between blocks fall between indices of the new leading
        dimension. Otherwise a copy; then the dimensions that could not keep their cut get the
        canonical one, along the first that gives most ranks a part.

    Cost
    ----
    None for a view. For a copy that moves, each rank sends what it holds of another's new block
    and nothing else, in up to 2 k - 1 messages a pair where k dimensions are merged; memory for
    source and result. Where dimensions are merged and some rank has a single index of one of them,
    ranks agree by one allreduce of an integer on whether it is a view; for ``order="A"``, too.

    Raises
    ------
    ValueError
        If the number of elements differs, or under ``copy=False`` if a copy is needed; on all
        ranks alike.
    """
    a = as_distarray(a)
    shape = _new_shape(a.size, shape, order)
    if order in ("A", "a"):
        order = "F" if _is_fortran(a) else "C"
    if order in ("F", "f"):
        turned = reshaped(permuted(a, range(a.ndim)[::-1]), shape[::-1], copy)
        return permuted(turned, range(turned.ndim)[::-1])
    return reshaped(a, shape, copy)


@implements(np.ravel, at=True, computes=False)
def ravel(a: Any, order: Any = "C") -> DistArray:
    """The array in one dimension; a view where it is contiguous and :func:`reshape` gives one.

    Parameters
    ----------
    a : DistArray
        Any placement.
    order : {"C", "F", "A", "K"}
        As for :func:`reshape`; "K" reads the dimensions in the order in which the blocks store
        them.

    Returns
    -------
    DistArray

    Cost
    ----
    As :func:`reshape`.
    """
    a = as_distarray(a)
    _FLAG.ravel(order)  # raises for an order that is none
    order = order.upper()
    if order == "K":
        a = permuted(a, stored_order(a))
    elif order == "F" or (order == "A" and _is_fortran(a)):
        a = permuted(a, range(a.ndim)[::-1])
    return reshaped(a, (a.size,), viewable=_is_contiguous)


def _is_contiguous(x: DistArray, groups: Groups, everywhere: bool) -> bool:
    return is_contiguous(x, "C", everywhere)


def _is_fortran(x: DistArray) -> bool:
    """Whether an array is stored in Fortran order and not in C order, too."""
    return x.ndim > 1 and is_contiguous(x, "F") and not is_contiguous(x, "C")


def _new_shape(size: int, shape: Any, order: Any) -> tuple[int, ...]:
    """The new shape with -1 filled in; for all but the plainest, NumPy is asked."""
    dims = (shape,) if type(shape) is int else shape
    if type(dims) is tuple and size and order == "C":
        known = abs(prod(dims)) if all(type(n) is int and n for n in dims) else 0
        if known and not size % known:
            negative = [n for n in dims if n < 0]
            if not negative and known == size:
                return dims
            if negative == [-1]:
                return tuple([size // known if n < 0 else n for n in dims])
    found = np.broadcast_to(_FLAG, (size,)).reshape(shape, order=order)
    return tuple(found.shape)
