"""Reductions and scans whose order matters: the ranks along the axis compute one after another.

Each rank sends the result of its block to the next rank, which continues from this carry. The
operations are therefore NumPy's in NumPy's order, and the results are bitwise NumPy's on every
mesh. The price is time: along the axis only one rank computes at a time. A message is one slab
(extent 1 along the axis), and each rank holds one more copy of its block. A GPU scans and folds in
its own order; GPU blocks are therefore processed on the host.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np

from distarray.array import DistArray, faults
from distarray.array.portable import as_array, contiguous, on_host, ufunc_method
from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.comm.group import Group
from distarray.layout import Cut, Layout
from distarray.typing import Array, ArrayLike, DTypeLike

__all__ = ["accumulate", "mixes", "neighbours", "reduce", "whole_along"]

NoValue: Any = np._NoValue


@lru_cache(maxsize=1024)
def neighbours(
    cut: Cut, coords: tuple[int, ...] | None
) -> tuple[int | None, int | None, int | None]:
    """Return the nonempty blocks before and after this rank's, and the last nonempty block.

    Each is a block number of the cut, or None if there is no such block. Blocks are ordered by the
    indices that they own.
    """
    last = cut.owner(cut.extent - 1) if cut.extent else None
    start, stop = cut.interval(cut.part(coords)) if coords is not None else (0, 0)
    if start == stop:
        return None, None, last
    before = cut.owner(start - 1) if start else None
    return before, cut.owner(stop) if stop < cut.extent else None, last


def reduce(
    ufunc: np.ufunc,
    x: DistArray,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    initial: ArrayLike = NoValue,
    mask: Array | None = None,
) -> Array:
    """Apply ``ufunc.reduce`` from the first index to the last, across the ranks.

    Parameters
    ----------
    ufunc : ufunc
        A ufunc of two operands.
    x : DistArray
        The array, in a plain layout.
    axes : tuple of int
        The dimensions to reduce, one after the other, the last dimension first.
    dtype : dtype
        The data type to compute in.
    initial : scalar, optional
        The start value of the reduction; None, as in NumPy, starts from the first element.
    mask : array, optional
        The elements of the block to include; broadcasts onto it.

    Returns
    -------
    array
        This rank's block of the result, with the reduced dimensions kept.
    """
    if dtype == np.float16:  # NumPy rounds at the end of each inner loop; loop lengths vary
        return reduce(ufunc, x, axes, np.dtype(np.float32), initial, mask).astype(dtype)
    block: Array = x.block
    start: Array | None = None
    if mask is not None:
        mask = np.broadcast_to(mask, block.shape)
    if initial is not NoValue and initial is not None:
        start = np.asarray(initial).astype(dtype)[()]
    if not axes:
        first = ufunc.identity if start is None else start
        kept: Array = block.astype(dtype)
        kept = kept if start is None else ufunc(start, kept)
        return kept if mask is None else np.where(mask, kept, first)
    for axis in reversed(axes):
        once = start if axis == axes[0] else None  # else every slice would include it
        block = _along(ufunc, block, axis, x.layout.cuts[axis], x.mesh, dtype, once, mask)
        mask = None
    return block


def _along(
    ufunc: np.ufunc,
    block: Array,
    axis: int,
    cut: Cut,
    mesh: DeviceMesh,
    dtype: np.dtype[Any],
    start: Array | None,
    mask: Array | None,
) -> Array:
    """Reduce along one axis; every rank gets the complete result."""
    carry = np.empty(_slab(block, axis), dtype, like=as_array(block))
    if mesh.coords is None:
        return carry
    first = ufunc.identity if start is None else start
    if first is not None:
        carry[...] = first
    before, after, last = neighbours(cut, mesh.coords)
    if last is None:
        return carry
    group = mesh.subgroup(cut.mesh_dims)
    _receive(group, before, carry, ufunc)
    error = None
    if block.shape[axis]:
        given = carry if start is not None or before is not None else None
        fold = partial(_folded, ufunc, given, block, axis, dtype, mask)
        carry, error = _attempt(fold, carry)
    _send(group, after, carry, ufunc)
    agree(mesh.group, error)
    if group.size > 1 and carry.size:
        carry = group.broadcast(contiguous(carry), last, ufunc.__name__)
    return carry


def _receive(group: Group, before: int | None, slab: Array, ufunc: np.ufunc) -> None:
    """Receive the slab of the previous rank, if there is such a rank."""
    if before is not None and slab.size:
        group.exchange([], [(before, slab)], ufunc.__name__)


def _send(group: Group, after: int | None, slab: Array, ufunc: np.ufunc) -> None:
    """Send a slab to the next rank, if there is such a rank."""
    if after is not None and slab.size:
        group.exchange([(after, slab)], [], ufunc.__name__)


def _attempt(compute: Callable[[], Array], otherwise: Array) -> tuple[Array, Exception | None]:
    """Return (value, None), or (`otherwise`, exception) if computing the value fails.

    A negative power, for example, raises. The next ranks wait for a slab in either case; all ranks
    agree on the error at the end.
    """
    try:
        return compute(), None
    except Exception as error:
        return otherwise, error


def _slab(block: Array, axis: int) -> list[int]:
    """Return the shape of the block with extent 1 along the axis."""
    return [1 if dim == axis else extent for dim, extent in enumerate(block.shape)]


def _folded(
    ufunc: np.ufunc,
    carry: Array | None,
    block: Array,
    axis: int,
    dtype: np.dtype[Any],
    mask: Array | None,
) -> Array:
    """Fold the block into the carry, the result of all blocks before it."""
    if mask is not None:
        return _masked(ufunc, carry, block, axis, dtype, mask)
    # In C order NumPy operates in index order, whatever the strides of the operand were.
    kind = dtype if dtype.kind not in "mM" else None
    block = block.astype(dtype, copy=False)
    if carry is None:
        return ufunc_method(ufunc, "reduce", contiguous(block), axis, kind, None, True)
    # With the carry prepended, NumPy does not start from the identity again.
    stacked = np.concatenate([carry, block], axis)
    result: Array = on_host(faults.reduce, ufunc, stacked, axis, kind, None, True, None)
    return result


def _masked(
    ufunc: np.ufunc,
    carry: Array | None,
    block: Array,
    axis: int,
    dtype: np.dtype[Any],
    mask: Array,
) -> Array:
    """Fold the masked elements into the carry: move them to the front and scan them."""
    chosen = np.argsort(~mask, axis=axis, kind="stable")
    front = np.take_along_axis(block, chosen, axis).astype(dtype, copy=False)
    count = np.expand_dims(np.count_nonzero(mask, axis=axis), axis)
    # The elements after them are scanned too, but not read; the value 1 is valid for every ufunc.
    front = np.where(np.take_along_axis(mask, chosen, axis), front, dtype.type(1))
    if carry is None:  # only ufuncs with an identity may lack an initial value
        carry = np.full_like(front, ufunc.identity, dtype, shape=_slab(block, axis))
    with np.errstate(all="ignore"):
        partial = on_host(ufunc.accumulate, np.concatenate([carry, front], axis), axis)
    return np.take_along_axis(partial, count, axis)


def accumulate(ufunc: np.ufunc, x: DistArray, axis: int, dtype: np.dtype[Any]) -> Array:
    """Apply ``ufunc.accumulate`` along an axis, in order; return this rank's block."""
    mesh, cut = x.mesh, x.layout.cuts[axis]
    block = contiguous(x.block.astype(dtype, copy=False)).reshape(x.block.shape)
    if mesh.coords is None:
        return block.copy()
    before, after, _ = neighbours(cut, mesh.coords)
    head = (slice(None),) * axis
    group = mesh.subgroup(cut.mesh_dims)
    stacked = block
    if before is not None:
        carry = np.empty(_slab(block, axis), dtype, like=as_array(block))
        _receive(group, before, carry, ufunc)
        stacked = np.concatenate([carry, block], axis)
    result, error = _attempt(partial(on_host, ufunc.accumulate, stacked, axis), stacked)
    _send(group, after, result[(*head, slice(-1, None))], ufunc)
    agree(mesh.group, error)
    if before is None:
        return result
    return result[(*head, slice(1, None))].copy()  # contiguous, as on the first rank


def mixes(ufunc: np.ufunc, source: np.dtype[Any], dtype: DTypeLike | None = None) -> bool:
    """Return True if the ufunc's two operands have different types, as for `ldexp`.

    The carry and the block then do not fit in one array.

    Parameters
    ----------
    ufunc : ufunc
        A ufunc of two operands.
    source : dtype
        The data type of the array.
    dtype : dtype, optional
        The data type that the caller requests.
    """
    if source.kind in "mM":
        return False
    asked: dict[str, Any] = {}
    if dtype is not None:
        asked = {"signature": (np.dtype(dtype), None, None), "casting": "unsafe"}
    first, second, _ = ufunc.resolve_dtypes((None, source, None), reduction=True, **asked)
    return bool(first != second)


def whole_along(layout: Layout, axis: int) -> Layout:
    """Return the layout with an axis whole; its mesh dimensions cut another dimension if possible.

    This is the longest uncut dimension with at least as many indices as the axis has blocks.
    """
    cut, result = layout.cuts[axis], layout.replace(axis, Cut.whole(layout.shape[axis]))
    free = [dim for dim, c in enumerate(layout.cuts) if not c.mesh_dims and c.extent >= cut.parts]
    if free:
        dim = max(free, key=lambda d: layout.shape[d])
        result = result.replace(dim, Cut.chunked(layout.shape[dim], cut.mesh_dims, cut.radix))
    return result
