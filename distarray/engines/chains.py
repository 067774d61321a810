"""Reductions and scans whose order matters: the ranks along the axis take turns.

A rank that comes first hands what it has made of its part to the next one, which goes on from
there. So the operations are those of NumPy in NumPy's order, and the bits NumPy's own on every
mesh. The price is time, since along the axis only one rank works at a time; nothing but one slab
(extent 1 along the axis) is ever sent, and each rank's memory holds one more copy of its block.
A GPU scans and folds in an order of its own: blocks there are brought to the host for it.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array import DistArray, faults
from distarray.array.portable import contiguous, on_host, ufunc_method
from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.engines.folds import Ufunc
from distarray.layout import Cut, Layout
from distarray.typing import Array

__all__ = ["accumulate", "mixes", "neighbours", "reduce", "whole_along"]

NoValue: Any = np._NoValue


@lru_cache(maxsize=1024)
def neighbours(
    cut: Cut, coords: tuple[int, ...] | None
) -> tuple[int | None, int | None, int | None]:
    """The blocks, of those that are not empty, before and after this rank's, and the last one.

    In the order of the indices that they own; None stands for there being none.
    """
    last = cut.owner(cut.extent - 1) if cut.extent else None
    start, stop = cut.interval(cut.part(coords)) if coords is not None else (0, 0)
    if start == stop:
        return None, None, last
    before = cut.owner(start - 1) if start else None
    return before, cut.owner(stop) if stop < cut.extent else None, last


def reduce(
    ufunc: Ufunc,
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
    block = x.block
    cuts = x.layout.cuts
    if dtype == np.float16:  # NumPy rounds at the ends of its loops, whose lengths differ
        return reduce(ufunc, x, axes, np.dtype(np.float32), initial, mask).astype(dtype)
    if mask is not None:
        mask = np.broadcast_to(mask, block.shape)
    if initial is not NoValue and initial is not None:
        initial = np.asarray(initial).astype(dtype)[()]
    if not axes:
        start = block.astype(dtype)
        kept = start if initial is NoValue or initial is None else ufunc(initial, start)
        return kept if mask is None else np.where(mask, kept, initial)
    for axis in reversed(axes):
        start = initial if axis == axes[0] else NoValue  # once, not for every slice
        block = _along(ufunc, block, axis, cuts[axis], x.mesh, dtype, start, mask)
        mask = None
    return block


def _along(
    ufunc: Ufunc,
    block: Array,
    axis: int,
    cut: Cut,
    mesh: DeviceMesh,
    dtype: np.dtype[Any],
    initial: Any,
    mask: Array | None,
) -> Array:
    """The reduction along one axis, finished on every rank."""
    shape = _slab(block, axis)
    carry = np.empty(shape, dtype, like=_like(block))
    if mesh.coords is None:
        return carry
    started = initial is not NoValue and initial is not None
    if started or ufunc.identity is not None:
        carry[...] = initial if started else ufunc.identity
    before, after, last = neighbours(cut, mesh.coords)
    if last is None:
        return carry
    group = mesh.subgroup(cut.mesh_dims)
    if before is not None and carry.size:
        group.exchange([], [(before, carry)], ufunc.__name__)
    error = None
    if block.shape[axis]:
        first = carry if started or before is not None else None
        found, error = _attempt(_folded, ufunc, first, block, axis, dtype, mask)
        carry = found if error is None else carry
    if after is not None and carry.size:
        group.exchange([(after, carry)], [], ufunc.__name__)
    agree(mesh.group, error)
    if group.size > 1 and carry.size:
        carry = group.broadcast(contiguous(carry), last, ufunc.__name__)
    return carry


def _attempt(function: Any, *args: Any) -> tuple[Any, Exception | None]:
    """The value of a call, or what it raised: a negative power of an integer, say.

    The ranks after this one wait for what it passes on; all are told at the end.
    """
    try:
        return function(*args), None
    except Exception as error:
        return None, error


def _slab(block: Array, axis: int) -> list[int]:
    return [1 if dim == axis else extent for dim, extent in enumerate(block.shape)]


def _folded(
    ufunc: Ufunc,
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
    kind = dtype if dtype.kind not in "mM" else None
    block = block.astype(dtype, copy=False)
    if carry is None:
        return ufunc_method(ufunc, "reduce", contiguous(block), axis, kind, None, True)
    # Starting from what came before and not, once more, from the identity.
    stacked = np.concatenate([carry, block], axis)
    return on_host(faults.reduce, ufunc, stacked, axis, kind, None, True, None)


def _masked(
    ufunc: Ufunc,
    carry: Array | None,
    block: Array,
    axis: int,
    dtype: np.dtype[Any],
    mask: Array,
) -> Array:
    """As `_folded`, of the elements under a mask: they are moved to the front and scanned."""
    chosen = np.argsort(~mask, axis=axis, kind="stable")
    front = np.take_along_axis(block, chosen, axis).astype(dtype, copy=False)
    count = np.expand_dims(np.count_nonzero(mask, axis=axis), axis)
    # What follows is scanned too and not read; a one does no harm to any ufunc.
    front = np.where(np.take_along_axis(mask, chosen, axis), front, dtype.type(1))
    if carry is None:  # only ufuncs with an identity may lack an initial value
        carry = np.full_like(front, ufunc.identity, dtype, shape=_slab(block, axis))
    with np.errstate(all="ignore"):
        partial = on_host(ufunc.accumulate, np.concatenate([carry, front], axis), axis)
    return np.take_along_axis(partial, count, axis)


def accumulate(ufunc: Ufunc, x: DistArray, axis: int, dtype: np.dtype[Any]) -> Array:
    """``ufunc.accumulate`` along an axis, in order; this rank's block of the result."""
    mesh, cut = x.mesh, x.layout.cuts[axis]
    block = contiguous(x.block.astype(dtype, copy=False)).reshape(x.block.shape)
    if mesh.coords is None:
        return block.copy()
    before, after, _ = neighbours(cut, mesh.coords)
    head = (slice(None),) * axis
    slab = _slab(block, axis)
    if 0 in slab:
        before = after = None
    group = mesh.subgroup(cut.mesh_dims)
    stacked = block
    if before is not None:
        carry = np.empty(slab, dtype, like=_like(block))
        group.exchange([], [(before, carry)], ufunc.__name__)
        stacked = np.concatenate([carry, block], axis)
    result, error = _attempt(on_host, ufunc.accumulate, stacked, axis)
    if error is not None:
        result = stacked
    if after is not None:
        group.exchange([(after, result[(*head, slice(-1, None))])], [], ufunc.__name__)
    agree(mesh.group, error)
    return result if before is None else result[(*head, slice(1, None))]


def mixes(ufunc: Ufunc, source: np.dtype[Any], dtype: Any = None) -> bool:
    """Whether the two operands of the ufunc are of different types (`ldexp`).

    What comes from before can then not stand in one array with what it is folded into.

    Parameters
    ----------
    ufunc : ufunc
        Of two operands.
    source : dtype
        Of the array.
    dtype : dtype, optional
        That the program asks for.
    """
    if source.kind in "mM":
        return False
    asked: dict[str, Any] = {}
    if dtype is not None:
        asked = {"signature": (np.dtype(dtype), None, None), "casting": "unsafe"}
    first, second, _ = ufunc.resolve_dtypes((None, source, None), reduction=True, **asked)
    return bool(first != second)


def whole_along(layout: Layout, axis: int) -> Layout:
    """A layout that leaves an axis whole: its cut moved to the longest free dimension, if any."""
    cuts = list(layout.cuts)
    cut, cuts[axis] = cuts[axis], Cut.whole(layout.shape[axis])
    free = [dim for dim, c in enumerate(layout.cuts) if not c.mesh_dims and c.extent >= cut.parts]
    if free:
        dim = max(free, key=lambda d: layout.shape[d])
        cuts[dim] = Cut.chunked(layout.shape[dim], cut.mesh_dims, cut.radix)
    return Layout.from_cuts(cuts, layout.mesh_shape)


def _like(block: Array) -> Array:
    return np.empty(0) if isinstance(block, np.generic) else block
