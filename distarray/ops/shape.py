"""Views with the dimensions in another order, number or direction; nothing is sent.

Every element stays on its rank, and the result shares memory with the operand.
"""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.views import everything, flipped, permuted
from distarray.layout import Fold
from distarray.typing import ArrayLike, Axes

__all__ = [
    "expand_dims",
    "flip",
    "moveaxis",
    "squeeze",
    "swapaxes",
    "transpose",
]

_ALL_FOLDS = tuple(Fold)


# -- order of the dimensions ---------------------------------------------------------------------


@implements(np.transpose, at=True, computes=False)
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> DistArray:
    """Reverse the dimensions, or put them in a given order; a view.

    Parameters
    ----------
    a : DistArray
        Any placement; a sharded dimension stays sharded in its new place.
    axes : sequence of int, optional
        The dimensions of `a` in their new order.

    Returns
    -------
    DistArray

    Cost
    ----
    None.

    Raises
    ------
    ValueError
        If `axes` is not a permutation of the dimensions.
    """
    x = as_distarray(a)
    if axes is None:
        return permuted(x, range(x.ndim)[::-1])
    # NumPy checks the axes on an array without elements. No two of its extents are equal, so the
    # new shape shows the new place of each dimension.
    order = np.empty(tuple(range(x.ndim)), np.bool_).transpose(axes).shape
    return permuted(x, order)


@implements(np.swapaxes, at=True, computes=False)
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> DistArray:
    """Exchange two dimensions; a view. See :func:`numpy.swapaxes`."""
    x = as_distarray(a)
    first = normalize_axis_index(axis1, x.ndim, "axis1")
    second = normalize_axis_index(axis2, x.ndim, "axis2")
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return permuted(x, order)


@implements(np.moveaxis, at=True, computes=False)
def moveaxis(
    a: ArrayLike, source: int | Sequence[int], destination: int | Sequence[int]
) -> DistArray:
    """Move some dimensions to other places; a view. See :func:`numpy.moveaxis`."""
    x = as_distarray(a)
    origins = normalize_axis_tuple(source, x.ndim, "source")
    places = normalize_axis_tuple(destination, x.ndim, "destination")
    if len(origins) != len(places):
        raise ValueError(
            "`source` and `destination` arguments must have the same number of elements"
        )
    order = [dim for dim in range(x.ndim) if dim not in origins]
    for place, origin in sorted(zip(places, origins, strict=True)):
        order.insert(place, origin)
    return permuted(x, order)


@implements(np.rollaxis, at=True, computes=False)
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> DistArray:
    """Move one dimension before another; a view. See :func:`numpy.rollaxis`."""
    x = as_distarray(a)
    axis = normalize_axis_index(axis, x.ndim)
    place = start + x.ndim if start < 0 else start
    if not 0 <= place < x.ndim + 1:
        raise np.exceptions.AxisError(
            "'%s' arg requires %d <= %s < %d, but %d was passed in"  # noqa: UP031 (NumPy's text)
            % ("start", -x.ndim, "start", x.ndim + 1, start)
        )
    order = list(range(x.ndim))
    order.remove(axis)
    order.insert(place - 1 if axis < place else place, axis)
    return permuted(x, order)


@implements(np.matrix_transpose, at=True, computes=False)
def matrix_transpose(x: ArrayLike, /) -> DistArray:
    """Exchange the last two dimensions; a view.

    See :func:`numpy.matrix_transpose`.
    """
    x = as_distarray(x)
    if x.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {x.ndim}")
    return permuted(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


# -- number of the dimensions --------------------------------------------------------------------


@implements(np.expand_dims, at=True, computes=False)
def expand_dims(a: ArrayLike, axis: int | Sequence[int]) -> DistArray:
    """Add dimensions of extent 1; a view. See :func:`numpy.expand_dims`."""
    x = as_distarray(a)
    added = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    places = normalize_axis_tuple(added, x.ndim + len(added))
    kept = iter(everything(x))
    entries = [None if dim in places else next(kept) for dim in range(x.ndim + len(added))]
    return x.sliced(tuple(entries))


@implements(np.squeeze, at=True, computes=False)
def squeeze(a: ArrayLike, axis: int | tuple[int, ...] | None = None) -> DistArray:
    """Drop dimensions of extent 1: a view, or `a` itself if there are none.

    Parameters
    ----------
    a : DistArray
        If a dropped dimension is sharded, the result stays on the ranks that hold its only index.
    axis : int or tuple of int, optional
        Dimensions to drop; all of extent 1 by default.

    Returns
    -------
    DistArray

    Cost
    ----
    None.

    Raises
    ------
    ValueError
        If a dimension to drop has another extent.
    """
    x = as_distarray(a)
    if axis is None:
        dropped = tuple([dim for dim, extent in enumerate(x.shape) if extent == 1])
    else:
        dropped = normalize_axis_tuple(axis, x.ndim, "axis") if x.ndim else _no_axes(axis)
        if any(x.shape[dim] != 1 for dim in dropped):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    if not dropped:
        return x
    entries = [0 if dim in dropped else entry for dim, entry in enumerate(everything(x))]
    return x.sliced(tuple(entries))


def _no_axes(axis: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes to drop from a 0-d array: none; NumPy accepts a lone 0 or -1."""
    if isinstance(axis, tuple) or index(axis) not in (0, -1):
        return normalize_axis_tuple(axis, 0, "axis")
    return ()


def _at_least(name: str, ndim: int) -> Any:
    def at_least(*arys: ArrayLike) -> Any:
        mesh = common_mesh(*arys)
        found = [_with_dims(as_distarray(x, mesh), ndim) for x in arys]
        return found[0] if len(found) == 1 else tuple(found)

    at_least.__name__ = name
    at_least.__doc__ = f"Views with {ndim} or more dimensions. See :func:`numpy.{name}`."
    return at_least


def _with_dims(x: DistArray, ndim: int) -> DistArray:
    if x.ndim >= ndim:
        return x
    kept = everything(x)
    if ndim == 3 and x.ndim:  # (n,) becomes (1, n, 1) and (m, n) becomes (m, n, 1)
        return x.sliced(tuple([None] * (2 - x.ndim) + kept + [None]))
    return x.sliced(tuple([None] * (ndim - x.ndim) + kept))


atleast_1d = implements(np.atleast_1d, at=True)(_at_least("atleast_1d", 1))
atleast_2d = implements(np.atleast_2d, at=True)(_at_least("atleast_2d", 2))
atleast_3d = implements(np.atleast_3d, at=True)(_at_least("atleast_3d", 3))


# -- direction -----------------------------------------------------------------------------------


@implements(np.flip, at=True, computes=False)
def flip(m: ArrayLike, axis: Axes = None) -> DistArray:
    """Reverse the order along some dimensions; a view. See :func:`numpy.flip`."""
    x = as_distarray(m)
    axes = range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim)
    return flipped(x, axes)


@implements(np.fliplr, at=True, computes=False)
def fliplr(m: ArrayLike) -> DistArray:
    """Reverse the array along axis 1; a view. See :func:`numpy.fliplr`."""
    x = as_distarray(m)
    if x.ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return flipped(x, (1,))


@implements(np.flipud, at=True, computes=False)
def flipud(m: ArrayLike) -> DistArray:
    """Reverse the array along axis 0; a view. See :func:`numpy.flipud`."""
    x = as_distarray(m)
    if x.ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return flipped(x, (0,))


@implements(np.rot90, at=True, computes=False)
def rot90(m: ArrayLike, k: int = 1, axes: Sequence[int] = (0, 1)) -> DistArray:
    """Rotate the array by quarter turns in a plane; a view. See :func:`numpy.rot90`."""
    x = as_distarray(m)
    plane = tuple(axes)
    if len(plane) != 2:
        raise ValueError("len(axes) must be 2.")
    if plane[0] == plane[1] or abs(plane[0] - plane[1]) == x.ndim:
        raise ValueError("Axes must be different.")
    if not all(-x.ndim <= axis < x.ndim for axis in plane):
        raise ValueError(f"Axes={plane} out of range for array of ndim={x.ndim}.")
    first, second = [axis % x.ndim for axis in plane]
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    quarter = k % 4
    if quarter == 0:
        return x.sliced(tuple(everything(x)))
    if quarter == 2:
        return flipped(x, (first, second))
    if quarter == 1:
        return permuted(flipped(x, (second,)), order)
    return flipped(permuted(x, order), (second,))


# -- shape and size, which need no element ---------------------------------------------------------


@implements(np.shape, through=_ALL_FOLDS, at=True, computes=False)
def shape(a: ArrayLike) -> tuple[int, ...]:
    """Return the shape of an array, as a tuple of int."""
    return as_distarray(a).shape


@implements(np.ndim, through=_ALL_FOLDS, at=True, computes=False)
def ndim(a: ArrayLike) -> int:
    """Return the number of dimensions of an array."""
    return as_distarray(a).ndim


@implements(np.size, through=_ALL_FOLDS, at=True, computes=False)
def size(a: ArrayLike, axis: Axes = None) -> int:
    """Return the number of elements of an array, in total or along some dimensions."""
    x = as_distarray(a)
    if axis is None:
        return x.size
    axes = normalize_axis_tuple(axis, x.ndim, allow_duplicate=False)
    return int(np.prod([x.shape[dim] for dim in axes], dtype=object))
