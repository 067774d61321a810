"""Views with the dimensions in another order, number or direction: nothing is ever sent.

Each leaves every element on the rank that holds it and gives an array that shares memory with its
operand; only :func:`broadcast_to` may have to send, the one index of a cut dimension it stretches.
"""

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distarray.array import (
    DistArray,
    as_distarray,
    common_mesh,
    default_layout,
    implements,
    to_layout,
    wrap,
)
from distarray.config import config
from distarray.layout import Cut, Fold, Layout
from distarray.plan import broadcast_shapes

__all__ = ["broadcast_to", "expand_dims", "flip", "moveaxis", "permuted", "squeeze", "transpose"]

FULL_FOLDS = tuple(Fold)


def _full(x: DistArray) -> list[Any]:
    """The entries of a view that takes everything; see :mod:`distarray.layout.views`."""
    return [(0, 1, extent) for extent in x.shape]


def permuted(x: DistArray, axes: Sequence[int]) -> DistArray:
    """`x` with its dimensions in the order `axes`, which is known to be one."""
    return wrap(x._block.transpose(axes), x._layout.transpose(axes), x._mesh)


# -- order of the dimensions ---------------------------------------------------------------------


@implements(np.transpose, at=True)
def transpose(a: Any, axes: Any = None) -> DistArray:
    """The array with its dimensions reversed, or in a given order; a view.

    Parameters
    ----------
    a : DistArray
        Any placement; a sharded dimension stays sharded wherever it goes.
    axes : sequence of int, optional
        The dimensions of `a` in the order they are to have.

    Returns
    -------
    DistArray

    Cost
    ----
    None.

    Raises
    ------
    ValueError
        If `axes` is no permutation of the dimensions.
    """
    a = as_distarray(a)
    if axes is None:
        return permuted(a, range(a.ndim)[::-1])
    # NumPy's own reading of axes, with its errors, on an array without elements.
    order = _like_empty(range(a.ndim)).transpose(axes).shape
    return permuted(a, order)


def _like_empty(extents: Sequence[int]) -> np.ndarray[Any, Any]:
    """A NumPy array of this shape that takes no memory."""
    return np.broadcast_to(np.empty((), np.bool_), tuple(extents))


@implements(np.swapaxes, at=True)
def swapaxes(a: Any, axis1: int, axis2: int) -> DistArray:
    """The array with two dimensions exchanged; a view. See :func:`numpy.swapaxes`."""
    a = as_distarray(a)
    first = normalize_axis_index(axis1, a.ndim, "axis1")
    second = normalize_axis_index(axis2, a.ndim, "axis2")
    order = list(range(a.ndim))
    order[first], order[second] = second, first
    return permuted(a, order)


@implements(np.moveaxis, at=True)
def moveaxis(a: Any, source: Any, destination: Any) -> DistArray:
    """The array with some dimensions moved to other places; a view. See :func:`numpy.moveaxis`."""
    a = as_distarray(a)
    origins = normalize_axis_tuple(source, a.ndim, "source")
    places = normalize_axis_tuple(destination, a.ndim, "destination")
    if len(origins) != len(places):
        raise ValueError(
            "`source` and `destination` arguments must have the same number of elements"
        )
    order = [dim for dim in range(a.ndim) if dim not in origins]
    for place, origin in sorted(zip(places, origins, strict=True)):
        order.insert(place, origin)
    return permuted(a, order)


@implements(np.rollaxis, at=True)
def rollaxis(a: Any, axis: int, start: int = 0) -> DistArray:
    """The array with one dimension moved before another; a view. See :func:`numpy.rollaxis`."""
    a = as_distarray(a)
    axis = normalize_axis_index(axis, a.ndim)
    place = start + a.ndim if start < 0 else start
    if not 0 <= place < a.ndim + 1:
        raise np.exceptions.AxisError(
            "'%s' arg requires %d <= %s < %d, but %d was passed in"  # noqa: UP031 (NumPy's text)
            % ("start", -a.ndim, "start", a.ndim + 1, start)
        )
    order = list(range(a.ndim))
    order.remove(axis)
    order.insert(place - 1 if axis < place else place, axis)
    return permuted(a, order)


@implements(np.matrix_transpose, at=True)
def matrix_transpose(x: Any, /) -> DistArray:
    """The array with its last two dimensions exchanged; a view. See :func:`numpy.matrix_transpose`."""
    x = as_distarray(x)
    if x.ndim < 2:
        raise ValueError(f"Input array must be at least 2-dimensional, but it is {x.ndim}")
    return permuted(x, [*range(x.ndim - 2), x.ndim - 1, x.ndim - 2])


# -- number of the dimensions --------------------------------------------------------------------


@implements(np.expand_dims, at=True)
def expand_dims(a: Any, axis: Any) -> DistArray:
    """The array with dimensions of extent 1 added; a view. See :func:`numpy.expand_dims`."""
    a = as_distarray(a)
    added = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    places = normalize_axis_tuple(added, a.ndim + len(added))
    kept = iter(_full(a))
    entries = [None if dim in places else next(kept) for dim in range(a.ndim + len(added))]
    return a._view(tuple(entries))


@implements(np.squeeze, at=True)
def squeeze(a: Any, axis: Any = None) -> DistArray:
    """The array without dimensions of extent 1; a view.

    Parameters
    ----------
    a : DistArray
        Where a dropped dimension is sharded, the array stays on the ranks that hold its one index.
    axis : int or tuple of int, optional
        Which dimensions to drop; all of extent 1 by default.

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
    a = as_distarray(a)
    if axis is None:
        dropped = tuple([dim for dim, extent in enumerate(a.shape) if extent == 1])
    else:
        dropped = normalize_axis_tuple(axis, a.ndim, "axis") if a.ndim else _no_axes(axis)
        if any(a.shape[dim] != 1 for dim in dropped):
            raise ValueError("cannot select an axis to squeeze out which has size not equal to one")
    if not dropped:
        return a if isinstance(a._block, np.generic) else a._view(tuple(_full(a)))
    entries = [0 if dim in dropped else entry for dim, entry in enumerate(_full(a))]
    return a._view(tuple(entries))


def _no_axes(axis: Any) -> tuple[int, ...]:
    """Axes of a 0-d array: NumPy lets 0 and -1 pass here."""
    for number in axis if isinstance(axis, tuple) else (axis,):
        if index(number) not in (0, -1):
            raise np.exceptions.AxisError(number, 0)
    return ()


def _at_least(name: str, ndim: int) -> Any:
    def at_least(*arys: Any) -> Any:
        mesh = common_mesh(*arys)
        found = [_with_dims(as_distarray(x, mesh), ndim) for x in arys]
        return found[0] if len(found) == 1 else tuple(found)

    at_least.__name__ = name
    at_least.__doc__ = f"Views with {ndim} or more dimensions. See :func:`numpy.{name}`."
    return at_least


def _with_dims(x: DistArray, ndim: int) -> DistArray:
    if x.ndim >= ndim:
        return x
    kept = _full(x)
    if ndim == 3 and x.ndim:  # (n,) becomes (1, n, 1) and (m, n) becomes (m, n, 1)
        return x._view(tuple([None] * (2 - x.ndim) + kept + [None]))
    return x._view(tuple([None] * (ndim - x.ndim) + kept))


atleast_1d = implements(np.atleast_1d, at=True)(_at_least("atleast_1d", 1))
atleast_2d = implements(np.atleast_2d, at=True)(_at_least("atleast_2d", 2))
atleast_3d = implements(np.atleast_3d, at=True)(_at_least("atleast_3d", 3))


# -- direction -----------------------------------------------------------------------------------


@implements(np.flip, at=True)
def flip(m: Any, axis: Any = None) -> DistArray:
    """The array with the order along some dimensions reversed; a view. See :func:`numpy.flip`."""
    m = as_distarray(m)
    axes = range(m.ndim) if axis is None else normalize_axis_tuple(axis, m.ndim)
    return flipped(m, axes)


def flipped(x: DistArray, axes: Sequence[int]) -> DistArray:
    """`x` reversed along dimensions that are known to be valid."""
    if isinstance(x._block, np.generic):
        return x
    entries = _full(x)
    for dim in axes:
        entries[dim] = (max(x.shape[dim] - 1, 0), -1, x.shape[dim])
    return x._view(tuple(entries))


@implements(np.fliplr, at=True)
def fliplr(m: Any) -> DistArray:
    """The array reversed along axis 1; a view. See :func:`numpy.fliplr`."""
    m = as_distarray(m)
    if m.ndim < 2:
        raise ValueError("Input must be >= 2-d.")
    return flipped(m, (1,))


@implements(np.flipud, at=True)
def flipud(m: Any) -> DistArray:
    """The array reversed along axis 0; a view. See :func:`numpy.flipud`."""
    m = as_distarray(m)
    if m.ndim < 1:
        raise ValueError("Input must be >= 1-d.")
    return flipped(m, (0,))


@implements(np.rot90, at=True)
def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> DistArray:
    """The array turned by quarter turns in a plane; a view. See :func:`numpy.rot90`."""
    m = as_distarray(m)
    plane = tuple(axes)
    if len(plane) != 2:
        raise ValueError("len(axes) must be 2.")
    if plane[0] == plane[1] or abs(plane[0] - plane[1]) == m.ndim:
        raise ValueError("Axes must be different.")
    if not all(-m.ndim <= axis < m.ndim for axis in plane):
        raise ValueError(f"Axes={plane} out of range for array of ndim={m.ndim}.")
    first, second = [axis % m.ndim for axis in plane]
    order = list(range(m.ndim))
    order[first], order[second] = second, first
    quarter = k % 4
    if quarter == 0:
        return m._view(tuple(_full(m)))
    if quarter == 2:
        return flipped(m, (first, second))
    if quarter == 1:
        return permuted(flipped(m, (second,)), order)
    return flipped(permuted(m, order), (second,))


# -- extent --------------------------------------------------------------------------------------


@implements(np.broadcast_to, at=True)
def broadcast_to(array: Any, shape: Any, subok: bool = False) -> DistArray:
    """The array stretched to a shape; a read-only view.

    Parameters
    ----------
    array : DistArray
        Any placement. Sharded dimensions that keep their extent stay as they are.
    shape : tuple of int
        The shape wanted.
    subok : bool
        Has no effect.

    Returns
    -------
    DistArray
        If `array` is replicated and the result large, the result is sharded as a new array of
        its shape would be: each rank then looks at its own part only.

    Cost
    ----
    None, unless a sharded dimension of extent 1 is stretched: the rank that holds the index then
    sends it along the mesh dimensions that shard it.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    array = as_distarray(array)
    try:
        target = (index(shape),)
    except TypeError:
        target = tuple([index(extent) for extent in shape])
    _check_broadcast(array.shape, target)
    return stretched(array, target)


def _check_broadcast(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    """Raise what NumPy does; a view of a single element is asked."""
    np.broadcast_to(_like_empty(shape), target)


def stretched(x: DistArray, shape: tuple[int, ...]) -> DistArray:
    """`x` broadcast to a shape that it is known to fit."""
    lead = len(shape) - x.ndim
    wide = [d for d, n in enumerate(x.shape) if n == 1 != shape[lead + d] and x._layout.cuts[d].mesh_dims]
    if wide:
        x = to_layout(x, x._layout.without_cut(wide))
    layout = _stretched_layout(x._layout, shape, x.itemsize, x._mesh)
    source = _part_of_stretched(x, layout, lead)
    block = x._mesh.xp.broadcast_to(source, layout.local_shape(x._mesh.coords))
    return wrap(block, layout, x._mesh)


def _stretched_layout(layout: Layout, shape: tuple[int, ...], itemsize: int, mesh: Any) -> Layout:
    """Cuts kept where the extent is; a large stretch of a replicated array is cut afresh."""
    size = itemsize * int(np.prod(shape, dtype=object))
    if layout.is_replicated and layout.size < size >= config.replicate_below:
        return default_layout(shape, itemsize, mesh)
    lead = len(shape) - layout.ndim
    cuts = [Cut.whole(extent) for extent in shape[:lead]]
    for cut, extent in zip(layout.cuts, shape[lead:], strict=True):
        cuts.append(cut if cut.extent == extent else Cut.whole(extent))
    return layout.with_cuts(cuts)


def _part_of_stretched(x: DistArray, layout: Layout, lead: int) -> Any:
    """This rank's block of `x`, or what it needs of it where the result alone is cut."""
    if not x._layout.is_replicated:
        return x._block
    section = layout.section(x._mesh.coords)[lead:]
    key = []
    for extent, (start, stop) in zip(x.shape, section, strict=True):
        key.append(slice(None) if extent == 1 else slice(start, stop))
    return x._block[tuple(key)] if key else x._block


@implements(np.broadcast_arrays, at=True)
def broadcast_arrays(*args: Any, subok: bool = False) -> tuple[DistArray, ...]:
    """Views of all arrays with their common shape. See :func:`numpy.broadcast_arrays`.

    Costs what :func:`broadcast_to` costs for each.
    """
    mesh = common_mesh(*args)
    arrays = [as_distarray(x, mesh) for x in args]
    shape = _common_shape([x.shape for x in arrays])
    return tuple([x if x.shape == shape else stretched(x, shape) for x in arrays])


def _common_shape(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return broadcast_shapes(*shapes)
    except ValueError:
        return np.broadcast_shapes(*shapes)  # raises in broadcast_arrays' own words


# -- what is known without looking at elements -----------------------------------------------------


@implements(np.shape, through=FULL_FOLDS, at=True)
def shape(a: Any) -> tuple[int, ...]:
    """The shape of an array, as a tuple of int."""
    return as_distarray(a).shape


@implements(np.ndim, through=FULL_FOLDS, at=True)
def ndim(a: Any) -> int:
    """The number of dimensions of an array."""
    return as_distarray(a).ndim


@implements(np.size, through=FULL_FOLDS, at=True)
def size(a: Any, axis: Any = None) -> int:
    """The number of elements of an array, in all or along some dimensions."""
    a = as_distarray(a)
    if axis is None:
        return a.size
    axes = normalize_axis_tuple(axis, a.ndim, allow_duplicate=False)
    return int(np.prod([a.shape[dim] for dim in axes], dtype=object))
