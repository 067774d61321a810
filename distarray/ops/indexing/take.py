"""Functions that read and write elements by position: ``take``, ``put``, the along-axis pair."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.ops.indexing.gather import fetch
from distarray.ops.indexing.located import Located, locate
from distarray.ops.indexing.owners import Rows
from distarray.ops.indexing.scatter import store
from distarray.ops.indexing.values import Values, as_values, plain

__all__ = ["finished", "put", "put_along_axis", "take", "take_along_axis"]

Array = Any


@implements(np.take)
def take(
    a: Any, indices: Any, axis: int | None = None, out: Any = None, mode: str = "raise"
) -> Any:
    """Elements by position along an axis, or in the flattened array.

    Parameters
    ----------
    a : DistArray or array_like
        The source.
    indices : int or array of int
        A DistArray, or what every rank has.
    axis : int, optional
        None counts in C order over all dimensions; the array is not reshaped for it.
    out : DistArray, optional
        Receives the result.
    mode : {"raise", "wrap", "clip"}
        What to do with indices out of bounds.

    Returns
    -------
    DistArray
        Other axes keep their cuts; see :func:`~distarray.ops.indexing.gather.fetch` for the rest.

    Cost
    ----
    As ``a[indices]``: none where the axis is whole, one exchange for indices that every rank has,
    else an agreement, an all-to-all and an exchange.
    """
    mesh = common_mesh(a, indices, out)
    x = as_distarray(a, mesh)
    index = _positions(indices, "same_kind")
    _check_mode(mode)
    if axis is None:
        rows, found = _flat(x, index, mode)
        result = fetch(rows, found, 0)
    else:
        axis = normalize_axis_index(axis, max(x.ndim, 1))
        x = x if x.ndim else x[None]
        outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
        if not x.shape[axis] and outer * inner * index.size:
            raise IndexError("cannot do a non-empty take from an empty axes.")
        if not outer or (mode != "raise" and not x.shape[axis]):
            mode = "unchecked"  # there is nothing to take, and NumPy does not look at the indices
        rows = Rows(x, (axis,))
        result = fetch(rows, locate(rows, [index], [axis], mode=mode), axis)
    return finished(result, out)


def finished(result: DistArray, out: Any) -> Any:
    """A result as NumPy returns it: a scalar if it has no dimensions, or written into `out`."""
    if out is None:
        if not result.ndim:
            result._block = result._mesh.scalar(result._block)
        return result
    if out.shape != result.shape:
        raise ValueError("output array does not match result of ndarray.take")
    if not np.can_cast(out.dtype, result.dtype, "safe"):  # NumPy asks for this direction
        raise TypeError(
            f"Cannot cast array data from {out.dtype!r} to {result.dtype!r} according to the "
            "rule 'safe'"
        )
    out[...] = result if isinstance(out, DistArray) else result.full()
    return out


def _check_mode(mode: Any) -> None:
    if mode not in ("raise", "wrap", "clip"):
        raise ValueError(f"clipmode must be one of 'clip', 'raise', or 'wrap' (got {mode!r})")


def _positions(indices: Any, casting: Any) -> Array:
    """Index arrays as NumPy's functions read them: what is no array is converted."""
    if not isinstance(indices, (DistArray, np.ndarray, np.generic)):
        return np.array(indices, np.intp)
    if indices.dtype.kind in "iu" and indices.dtype != np.uint64:
        return indices
    if not np.can_cast(indices.dtype, np.intp, casting):
        raise TypeError(
            f"Cannot cast array data from {indices.dtype!r} to dtype('int64') according to the "
            f"rule {casting!r}"
        )
    return indices.astype(np.intp)


def _flat(x: DistArray, index: Array, mode: str, for_writing: bool = False) -> tuple[Rows, Located]:
    """Positions in the flattened array as index arrays for each dimension."""
    x = x if x.ndim else x._view((None,))
    if not x.size and index.size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    rows = Rows(x, range(x.ndim))
    found = locate(rows, [index], [0], mode=mode, extents=[x.size], for_writing=for_writing)
    blocks = rows.from_linear(found.blocks[0]) if found.blocks[0].size else found.blocks * x.ndim
    return rows, Located(blocks, found.layout)


@implements(np.put, at=True)
def put(a: DistArray, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write values at positions in the flattened array; too few values are repeated.

    Parameters
    ----------
    a : DistArray
        Changed in place; its layout stays.
    ind : int or array of int
        Positions in C order. Of several values for one position the last one stays.
    v : array_like or DistArray
        The values, in C order.
    mode : {"raise", "wrap", "clip"}
        What to do with positions out of bounds.

    Cost
    ----
    None for positions and values that every rank has; else as ``a[index] = v``.
    """
    if not isinstance(a, (DistArray, np.ndarray)):
        raise TypeError(f"argument 1 must be numpy.ndarray, not {type(a).__name__}")
    mesh = common_mesh(a, ind, v)
    x = as_distarray(a, mesh)
    index = _ravelled(_positions(plain(ind), "safe"))
    _check_mode(mode)
    values = _ravelled(as_values(v, x.dtype))
    if index.size and not x.size:
        raise IndexError("cannot replace elements of an empty array")
    if not index.size or not values.size:
        return
    rows, found = _flat(x, index, mode, for_writing=True)
    if 1 < values.size != index.size:
        values = values[np.arange(index.size) % values.size]
    store(rows, found, Values(values, index.shape, 0, 1))


def _ravelled(x: Array) -> Array:
    return x if x.ndim == 1 else np.ravel(x)


# -- along an axis -------------------------------------------------------------------------------


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    """Elements of each 1-d slice along an axis by position, as ``argsort`` gives them.

    Parameters
    ----------
    arr : DistArray or array_like
        The source.
    indices : DistArray or array of int
        As many dimensions as `arr`; the other dimensions broadcast.
    axis : int, optional
        None: the flattened array, with 1-d `indices`.

    Returns
    -------
    DistArray
        Laid out as `indices` where those are cut, else as `arr`.

    Cost
    ----
    None where the axis is whole and the arrays lie alike. Along a cut axis, one agreement, an
    all-to-all and an exchange of the elements that are elsewhere.
    """
    mesh = common_mesh(arr, indices)
    x = as_distarray(arr, mesh)
    if axis is None:
        _check_along(x, indices, None)
        return take(x, indices)
    axis = normalize_axis_index(axis, x.ndim)
    _check_along(x, indices, axis)
    rows, found = _along(x, indices, axis, for_writing=False)
    return fetch(rows, found, 0)


@implements(np.put_along_axis, at=True)
def put_along_axis(arr: DistArray, indices: Any, values: Any, axis: int | None) -> None:
    """Write elements of each 1-d slice along an axis by position.

    Parameters
    ----------
    arr : DistArray
        Changed in place; its layout stays.
    indices : DistArray or array of int
        As many dimensions as `arr`; the other dimensions broadcast.
    values : array_like or DistArray
        Broadcast to the shape of `indices`.
    axis : int or None
        None: the flattened array, with 1-d `indices`.

    Cost
    ----
    As ``arr[index] = values``.
    """
    mesh = common_mesh(arr, indices, values)
    x, indices = as_distarray(arr, mesh), plain(indices)
    values = as_values(values, x.dtype)
    if axis is None:
        _check_along(x, indices, None)
        rows, found = _flat(x, indices, "raise", for_writing=True)
    else:
        axis = normalize_axis_index(axis, x.ndim)
        _check_along(x, indices, axis)
        rows, found = _along(x, indices, axis, for_writing=True)
    shape = found.layout.shape
    store(rows, found, Values(values, shape, 0, len(shape)))


def _check_along(x: DistArray, indices: Any, axis: int | None) -> None:
    if axis is None:
        if indices.ndim != 1:
            raise ValueError("when axis=None, `indices` must have a single dimension.")
        return
    if indices.dtype.kind not in "iu":
        raise IndexError("`indices` must be an integer array")
    if x.ndim != indices.ndim:
        raise ValueError("`indices` and `arr` must have the same number of dimensions")


def _along(x: DistArray, indices: Any, axis: int, for_writing: bool) -> tuple[Rows, Located]:
    """The indices, and for every other dimension the one index that is wanted."""
    arrays = _open_grid(x, indices, axis)
    rows = Rows(x, range(x.ndim))
    return rows, locate(rows, arrays, range(x.ndim), for_writing=for_writing)


def _open_grid(x: DistArray, indices: Array, axis: int) -> Sequence[Array]:
    arrays = []
    for dim, extent in enumerate(x.shape):
        if dim == axis:
            arrays.append(indices)
            continue
        shape = [1] * x.ndim
        shape[dim] = extent
        arrays.append(np.arange(extent).reshape(shape))
    return arrays
