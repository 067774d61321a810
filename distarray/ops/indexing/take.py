"""take and put: elements read and written by position."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.one_rank import Alone
from distarray.array.portable import refuse_read_only
from distarray.array.probes import as_axis, check_cast
from distarray.engines.indexing.gather import fetch
from distarray.engines.indexing.located import Located, locate
from distarray.engines.indexing.owners import Rows
from distarray.engines.indexing.scatter import store
from distarray.engines.indexing.values import Values, as_values, check_array, is_scalar, plain
from distarray.engines.reshaping import in_line
from distarray.typing import Array, ArrayLike, Casting, Out

__all__ = ["finished", "flat_rows", "put", "take"]

#: Number of positions up to which NumPy's own function writes faster than ours on one rank.
_FEW = 1 << 14


def _names_many(a: ArrayLike, ind: ArrayLike, *_: Any, **__: Any) -> bool:
    """Return True if there are many positions, or they are cut."""
    if isinstance(ind, DistArray):
        return ind.size > _FEW or not ind.layout.is_replicated
    return isinstance(ind, np.ndarray) and ind.size > _FEW


@implements(np.take, computes=False, alone=Alone(by_size=True))
def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: Out = None,
    mode: str = "raise",
) -> Any:
    """Take elements by position along an axis, or in the flattened array.

    Parameters
    ----------
    a : DistArray or array_like
        The source.
    indices : int or array of int
        A DistArray, or positions that every rank has.
    axis : int, optional
        None counts in C order over all dimensions; the array is not reshaped.
    out : DistArray, optional
        Receives the result.
    mode : {"raise", "wrap", "clip"}
        Treatment of indices out of bounds.

    Returns
    -------
    DistArray
        Other axes keep their cuts; see :func:`~distarray.engines.indexing.gather.fetch` for the
        layout of the indexed axis.

    Cost
    ----
    The cost of ``a[indices]``: none if the axis is whole, one exchange (or an allgather of a small
    result) for indices that every rank has, else an agreement, an all-to-all and an exchange.
    """
    mesh = common_mesh(a, indices, out)
    x = as_distarray(a, mesh)
    index = _positions(indices, "same_kind")
    mode = _named_mode(mode)
    if axis is None:
        rows, found = flat_rows(x, index, mode)
        result = fetch(rows, found, 0)
    else:
        axis = normalize_axis_index(as_axis(axis), max(x.ndim, 1))
        x = x if x.ndim else x[None]
        outer, inner = prod(x.shape[:axis]), prod(x.shape[axis + 1 :])
        if not x.shape[axis] and outer * inner * index.size:
            raise IndexError("cannot do a non-empty take from an empty axes.")
        if not outer or (mode != "raise" and not x.shape[axis]):
            mode = "unchecked"  # no element is taken, and NumPy does not check the indices
        rows = Rows(x, (axis,))
        result = fetch(rows, locate(rows, [index], [axis], mode=mode), axis)
    return finished(result, out)


def finished(result: DistArray, out: DistArray | Array | None) -> Any:
    """Return a result as NumPy does: a scalar if it has no dimensions, or written into `out`."""
    if out is None:
        if not result.ndim:
            result.block = result.mesh.scalar(result.block)
        return result
    if out.shape != result.shape:
        raise ValueError("output array does not match result of ndarray.take")
    check_cast(out.dtype, result.dtype, "safe")  # in this direction, as NumPy does
    out[...] = result if isinstance(out, DistArray) else result.full()
    return out


def _named_mode(mode: str | int | bytes | None) -> str:
    """Return the name of a mode, which NumPy accepts as None, a number or bytes as well."""
    if mode is None:
        return "raise"
    if isinstance(mode, str) and mode in ("raise", "wrap", "clip"):
        return mode
    given: Any = mode
    np.choose(0, [0], mode=given)  # NumPy's error
    try:
        return "clip" if np.choose(4, [0, 1, 2], mode=given) == 2 else "wrap"
    except ValueError:
        return "raise"


def _positions(indices: ArrayLike, casting: Casting) -> Any:
    """Return index arrays as NumPy's functions read them; other input is converted to integers."""
    if not isinstance(indices, (DistArray, np.ndarray, np.generic)):
        return np.array(indices, np.intp)
    if indices.dtype.kind in "iu" and indices.dtype != np.uint64:
        return indices
    check_cast(indices.dtype, np.dtype(np.intp), casting)
    return indices.astype(np.intp)


def flat_rows(
    x: DistArray, index: DistArray | Array, mode: str, for_writing: bool = False
) -> tuple[Rows, Located]:
    """Locate positions in the flattened array, as index arrays for each dimension."""
    x = x if x.ndim else x.sliced((None,))
    indices: list[Any] = [index]
    if not x.size and index.size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    rows = Rows(x, range(x.ndim))
    found = locate(rows, indices, [0], mode=mode, extents=[x.size], for_writing=for_writing)
    blocks = rows.from_linear(found.blocks[0]) if found.blocks[0].size else found.blocks * x.ndim
    return rows, Located(blocks, found.layout)


@implements(np.put, writes=0, at=True, alone=Alone(unless=_names_many))
def put(a: DistArray, ind: ArrayLike, v: ArrayLike, mode: str = "raise") -> None:
    """Write values at positions in the flattened array; too few values are repeated.

    Parameters
    ----------
    a : DistArray
        Changed in place; its layout stays.
    ind : int or array of int
        Positions in C order. Of several values for one position, the last one is kept.
    v : array_like or DistArray
        The values, in C order.
    mode : {"raise", "wrap", "clip"}
        Treatment of positions out of bounds.

    Cost
    ----
    None for positions and values that every rank has; else the cost of ``a[index] = v``.
    """
    mesh = common_mesh(a, ind, v)
    target: Any = np.array(getattr(a, "block", a)) if is_scalar(a) else a  # a copy, as in NumPy
    check_array(target, "put")
    x = as_distarray(target, mesh)
    refuse_read_only(x, "put: output array is read-only")
    index = _ravelled(_positions(plain(ind), "safe"))
    mode = _named_mode(mode)
    if index.size and not x.size:
        raise IndexError("cannot replace elements of an empty array")
    values = _ravelled(as_values(v, x.dtype))
    if not index.size or not values.size:
        return
    try:
        rows, found = flat_rows(x, index, mode, for_writing=True)
    except IndexError:
        put(a, index[: _first_outside(index, x.size)], v)  # NumPy writes until the error
        raise
    if 1 < values.size != index.size:
        values = values[np.arange(index.size) % values.size]
    store(rows, found, Values(values, index.shape, 0, 1))


def _first_outside(index: DistArray | Array, size: int) -> int:
    """Count the positions before the first one that is out of bounds."""
    return int(np.argmax((index < -size) | (index >= size)))


def _ravelled(x: DistArray | Array) -> Any:
    return x if x.ndim == 1 else in_line(x)
