"""Reductions and scans whose order matters: the ranks along the axis take turns.

A rank that comes first hands what it has made of its part to the next one, which goes on from
there. So the operations are those of NumPy in NumPy's order, and the bits NumPy's own on every
mesh. The price is time, since along the axis only one rank works at a time; nothing but one slab
(extent 1 along the axis) is ever sent, and each rank's memory holds one more copy of its block.
"""

from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.layout import Cut

__all__ = ["accumulate", "neighbours", "reduce"]

Array = Any
NoValue: Any = np._NoValue  # type: ignore[attr-defined]


def neighbours(cut: Cut, mesh: DeviceMesh) -> tuple[int | None, int | None, int | None]:
    """The blocks, of those that are not empty, before and after this rank's, and the last one.

    In the order of the indices that they own; None stands for there being none.
    """
    last = cut.owner(cut.extent - 1) if cut.extent else None
    start, stop = cut.interval(cut.part(mesh.coords)) if mesh.coords is not None else (0, 0)
    if start == stop:
        return None, None, last
    before = cut.owner(start - 1) if start else None
    return before, cut.owner(stop) if stop < cut.extent else None, last


def reduce(
    ufunc: np.ufunc,
    x: DistArray,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    initial: Any = NoValue,
    mask: Array | None = None,
) -> Array:
    """``ufunc.reduce`` from the first index to the last, whatever ranks they are on.

    Parameters
    ----------
    ufunc : ufunc
        Of two operands.
    x : DistArray
        In a plain layout.
    axes : tuple of int
        Reduced one after the other, the last first.
    dtype : dtype
        That is computed in.
    initial : scalar, optional
        What the reduction starts from.
    mask : array, optional
        Which elements of the block take part; broadcasts onto it.

    Returns
    -------
    array
        This rank's block of the result, with the reduced dimensions kept.
    """
    block = x._block
    cuts = x._layout.cuts
    if mask is not None:
        mask = np.broadcast_to(mask, block.shape)
    if not axes:
        start = block.astype(dtype)
        kept = start if initial is NoValue or initial is None else ufunc(initial, start)
        return kept if mask is None else np.where(mask, kept, initial)
    for axis in reversed(axes):
        block = _along(ufunc, block, axis, cuts[axis], x._mesh, dtype, initial, mask)
        initial, mask = NoValue, None
    return block


def _along(
    ufunc: np.ufunc,
    block: Array,
    axis: int,
    cut: Cut,
    mesh: DeviceMesh,
    dtype: np.dtype[Any],
    initial: Any,
    mask: Array | None,
) -> Array:
    """The reduction along one axis, finished on every rank."""
    shape = [1 if dim == axis else extent for dim, extent in enumerate(block.shape)]
    carry: Array | None = None
    if initial is not NoValue and initial is not None:
        carry = np.full(shape, initial, dtype, like=_like(block))
    if mesh.coords is None:
        return np.empty(shape, dtype)
    before, after, last = neighbours(cut, mesh)
    if last is None:
        return carry if carry is not None else np.full(shape, ufunc.identity, dtype)
    group = mesh.subgroup(cut.mesh_dims)
    size = int(np.prod(shape))
    if before is not None and size:
        carry = np.empty(shape, dtype, like=_like(block))
        group.exchange([], [(before, carry)], ufunc.__name__)
    if block.shape[axis]:
        carry = _folded(ufunc, carry, block, axis, dtype, mask)
    elif carry is None:
        carry = np.empty(shape, dtype, like=_like(block))
    if after is not None and size:
        group.exchange([(after, carry)], [], ufunc.__name__)
    if group.size > 1 and size:
        carry = group.broadcast(np.ascontiguousarray(carry), last, ufunc.__name__)
    return carry


def _folded(
    ufunc: np.ufunc,
    carry: Array | None,
    block: Array,
    axis: int,
    dtype: np.dtype[Any],
    mask: Array | None,
) -> Array:
    """The block folded into what came before it."""
    if mask is not None:
        return _masked(ufunc, carry, block, axis, dtype, mask)
    # C order makes the order of operations that of the indices, whatever the strides were.
    parts = [block.astype(dtype, copy=False)]
    if carry is not None:
        parts.insert(0, carry)
    stacked = np.concatenate(parts, axis) if len(parts) > 1 else np.ascontiguousarray(parts[0])
    return ufunc.reduce(stacked, axis, dtype if dtype.kind not in "mM" else None, None, True)


def _masked(
    ufunc: np.ufunc,
    carry: Array | None,
    block: Array,
    axis: int,
    dtype: np.dtype[Any],
    mask: Array,
) -> Array:
    """As `_folded`, of the elements under a mask: they are moved to the front and scanned."""
    chosen = np.argsort(~mask, axis=axis, kind="stable")
    front = np.take_along_axis(block, chosen, axis).astype(dtype, copy=False)
    count = np.count_nonzero(mask, axis=axis, keepdims=True)
    if carry is None:  # only ufuncs with an identity may lack an initial value
        shape = [1 if dim == axis else extent for dim, extent in enumerate(block.shape)]
        carry = np.full(shape, ufunc.identity, dtype)
    with np.errstate(all="ignore"):
        partial = ufunc.accumulate(np.concatenate([carry, front], axis), axis)
    return np.take_along_axis(partial, count, axis)


def accumulate(ufunc: np.ufunc, x: DistArray, axis: int, dtype: np.dtype[Any]) -> Array:
    """``ufunc.accumulate`` along an axis, in order; this rank's block of the result."""
    block, mesh, cut = x._block, x._mesh, x._layout.cuts[axis]
    block = np.ascontiguousarray(block.astype(dtype, copy=False)).reshape(block.shape)
    if mesh.coords is None:
        return block.copy()
    before, after, _ = neighbours(cut, mesh)
    head = (slice(None),) * axis
    slab = [1 if dim == axis else extent for dim, extent in enumerate(block.shape)]
    if not int(np.prod(slab)):
        before = after = None
    group = mesh.subgroup(cut.mesh_dims)
    if before is not None:
        carry = np.empty(slab, dtype, like=_like(block))
        group.exchange([], [(before, carry)], ufunc.__name__)
        result = ufunc.accumulate(np.concatenate([carry, block], axis), axis)[
            (*head, slice(1, None))
        ]
    else:
        result = ufunc.accumulate(block, axis)
    if after is not None:
        group.exchange([(after, result[(*head, slice(-1, None))])], [], ufunc.__name__)
    return result


def _like(block: Array) -> Array:
    return np.empty(0) if isinstance(block, np.generic) else block
