"""Functions that read and write elements by position: ``take`` and ``put``."""

from math import prod
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.blocks import refuse_read_only
from distarray.array.storage import is_contiguous
from distarray.ops.asking import as_axis
from distarray.ops.indexing.gather import fetch
from distarray.ops.indexing.located import Located, locate
from distarray.ops.indexing.owners import Rows
from distarray.ops.indexing.scatter import store
from distarray.ops.indexing.values import Values, as_values, check_array, is_scalar, plain
from distarray.ops.one_rank import as_numpy_on_one_rank
from distarray.ops.reshape import in_line

__all__ = ["finished", "flat_rows", "put", "put_in_turn", "take"]

Array = Any
#: Positions up to which NumPy's own function writes faster than ours on one rank.
_FEW = 1 << 14


def _names_many(a: Any, ind: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether positions are many, or cut as many are."""
    if isinstance(ind, DistArray):
        return ind.size > _FEW or not ind._layout.is_replicated
    return isinstance(ind, np.ndarray) and ind.size > _FEW


@implements(np.take)
@as_numpy_on_one_rank(np.take, by_size=True)
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
    As ``a[indices]``: none where the axis is whole, one exchange (or an allgather of a small
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


def _named_mode(mode: Any) -> str:
    """What to do with positions out of bounds: NumPy takes None, numbers and bytes as well."""
    if mode is None:
        return "raise"
    if isinstance(mode, str) and mode in ("raise", "wrap", "clip"):
        return mode
    np.choose(0, [0], mode=mode)  # NumPy's error
    try:
        return "clip" if np.choose(4, [0, 1, 2], mode=mode) == 2 else "wrap"
    except ValueError:
        return "raise"


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


def flat_rows(
    x: DistArray, index: Array, mode: str, for_writing: bool = False
) -> tuple[Rows, Located]:
    """Positions in the flattened array as index arrays for each dimension."""
    x = x if x.ndim else x._view((None,))
    if not x.size and index.size:
        raise IndexError("cannot do a non-empty take from an empty axes.")
    rows = Rows(x, range(x.ndim))
    found = locate(rows, [index], [0], mode=mode, extents=[x.size], for_writing=for_writing)
    blocks = rows.from_linear(found.blocks[0]) if found.blocks[0].size else found.blocks * x.ndim
    return rows, Located(blocks, found.layout)


@implements(np.put, at=True)
@as_numpy_on_one_rank(np.put, unless=_names_many)
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
    None for positions and values that every rank has; else as ``a[index] = v``. Before an
    `IndexError`, one allreduce of an integer where a block leaves open whether `a` has gaps.
    """
    mesh = common_mesh(a, ind, v)
    target: Any = np.array(getattr(a, "_block", a)) if is_scalar(a) else a  # a copy, as in NumPy
    check_array(target, "put")
    x = as_distarray(target, mesh)
    refuse_read_only(x._block, "put: output array is read-only")
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
        # NumPy finds out on its way. Of what has gaps it writes to a copy, which it then drops.
        if is_contiguous(x, "C"):
            put(a, index[: _first_outside(index, x.size)], v)
        raise
    if 1 < values.size != index.size:
        values = values[np.arange(index.size) % values.size]
    store(rows, found, Values(values, index.shape, 0, 1))


def put_in_turn(a: DistArray, ind: Any, v: Any) -> None:
    """As :func:`put`, where what comes before a position out of bounds is written in any case."""
    try:
        put(a, ind, v)
    except IndexError:
        index = _ravelled(_positions(plain(ind), "safe"))
        put(a, index[: _first_outside(index, a.size)], v)
        raise


def _first_outside(index: Any, size: int) -> int:
    """How many positions there are before the first one that is out of bounds."""
    return int(np.argmax((index < -size) | (index >= size)))


def _ravelled(x: Array) -> Array:
    return x if x.ndim == 1 else in_line(x)
