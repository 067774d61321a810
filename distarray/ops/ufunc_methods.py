"""Methods of ufuncs other than the call: reduce, accumulate, reduceat, outer."""

from functools import lru_cache
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements_method, to_layout
from distarray.array.portable import ufunc_method
from distarray.array.probes import tiny
from distarray.engines.chains import whole_along
from distarray.engines.folds import loop_dtype, neutral
from distarray.engines.mapping.every_rank import in_numpys_order
from distarray.engines.reducing import check_target, finish, reduce, write
from distarray.layout import Cut
from distarray.ops.scans import AxisOfUfunc, accumulate, from_front, one_axis, order_matters
from distarray.plan import ReductionPlan
from distarray.typing import Array, ArrayLike, DType, DTypeLike

__all__ = ["outer", "reduceat"]


@implements_method("outer")
def outer(
    ufunc: np.ufunc, a: ArrayLike, b: ArrayLike, /, **kwargs: DTypeLike | DistArray | bool | None
) -> Any:
    """Apply the ufunc to all pairs of an element of `a` and one of `b`: ``ufunc.outer(a, b)``.

    Returns
    -------
    DistArray
        Of shape ``a.shape + b.shape``, cut as the operand that would cost more to move.

    Cost
    ----
    The cost of the ufunc's call on operands that broadcast: of two operands that are cut along the
    same mesh dimension, the smaller is gathered along it.
    """
    if ufunc.nin != 2 or ufunc.signature is not None:
        return ufunc.outer(np.zeros(1), np.zeros(1))  # raises NumPy's exception
    mesh = common_mesh(a, b)
    first, second = (
        as_distarray(a, mesh),
        as_distarray(b, mesh),
    )  # numbers too, with their types
    if first.ndim + second.ndim > _MOST_DIMENSIONS:
        ufunc.outer(np.ones((1,) * first.ndim), np.ones((1,) * second.ndim))  # raises
    return ufunc(first[(..., *(None,) * second.ndim)], second, **kwargs)


#: Maximum number of dimensions of NumPy's arrays.
_MOST_DIMENSIONS = 64


@implements_method("reduceat")
@in_numpys_order("reduceat")
def reduceat(
    ufunc: np.ufunc,
    a: ArrayLike,
    indices: ArrayLike,
    axis: AxisOfUfunc = 0,
    dtype: DTypeLike | None = None,
    out: DistArray | tuple[DistArray, ...] | None = None,
) -> Any:
    """Reduce slices of one axis: ``ufunc.reduceat``.

    Parameters
    ----------
    ufunc, axis, dtype, out
        As in :meth:`numpy.ufunc.reduceat`.
    a : DistArray or array_like
        The slices may cross the boundaries between blocks.
    indices : array_like of int
        One for each index of the result along `axis`; distributed ones are gathered on every rank.

    Returns
    -------
    DistArray
        Whole along `axis`, otherwise cut as `a`.

    Raises
    ------
    IndexError, TypeError, ValueError
        NumPy's own exceptions, on all ranks.

    Cost
    ----
    Nothing if `axis` is not cut. Else one allreduce of the result. If the order of operations
    matters and each slice has to be on one rank, `axis` is made whole instead: by an exchange that
    cuts another dimension, or, for a 1-d array, by gathering the array on every rank.
    """
    x = a if isinstance(a, DistArray) else as_distarray(a, common_mesh(a, indices, out))
    out = out[0] if isinstance(out, tuple) else out
    axis = _axis_of_slices(ufunc, x.ndim, one_axis(axis))
    starts = _starts(ufunc, indices, x.shape[axis])
    if out is not None:
        dtype = _checked_dtype(ufunc, x, axis, len(starts), dtype, out)
    kind = _kind_of_slices(ufunc, x.shape, x.dtype, axis, dtype)  # type: ignore[arg-type]
    x = x.plain()
    if x.layout.cuts[axis].parts > 1 and not _may_be_split(ufunc, kind):
        x = to_layout(x, whole_along(x.layout, axis))
    cut, layout = x.layout.cuts[axis], x.layout.replace(axis, Cut.whole(len(starts)))
    if x.mesh.coords is None:
        return write(x.mesh.xp.zeros(layout.local_shape(None), kind), layout, x.mesh, out)
    if cut.parts == 1:
        part = ufunc_method(ufunc, "reduceat", x.block, starts, axis, dtype)
        return write(part, layout, x.mesh, out)
    plan = ReductionPlan((axis,), True, kind, layout, cut.mesh_dims)
    return finish(_pieces(ufunc, x, starts, axis, dtype, kind), plan, ufunc, x.mesh, out)


@lru_cache(maxsize=1024, typed=True)  # NumPy accepts neither a truth value nor 1.0 for 1
def _axis_of_slices(ufunc: np.ufunc, ndim: int, axis: AxisOfUfunc) -> int:
    """Return the axis counted from the front; raise NumPy's errors about it and the ufunc."""
    binary: np.ufunc = ufunc if ufunc.nin != 2 or ufunc.nout != 1 or ufunc.signature else np.add
    binary.reduceat(np.zeros((1,) * ndim), np.zeros(0, np.intp), axis)  # type: ignore[arg-type]
    return from_front(axis, ndim)


@lru_cache(maxsize=1024, typed=True)  # NumPy accepts neither a truth value nor 1.0 for 1
def _kind_of_slices(
    ufunc: np.ufunc, shape: tuple[int, ...], source: DType, axis: int, dtype: DTypeLike | None
) -> DType:
    """Return the data type of the result; raise NumPy's errors about the data types."""
    kind: DType = ufunc.reduceat(tiny(shape, source), np.zeros(0, np.intp), axis, dtype).dtype
    return kind


def _checked_dtype(
    ufunc: np.ufunc, x: DistArray, axis: int, count: int, dtype: DTypeLike | None, out: DistArray
) -> Any:
    """Return the data type to compute in for an `out`, which must have the shape of the result."""
    check_target(out)
    shape = (*x.shape[:axis], count, *x.shape[axis + 1 :])
    first = np.zeros(min(count, 1), np.intp)
    ufunc.reduceat(tiny(x.shape, x.dtype), first, axis, dtype, tiny(shape, out.dtype))
    if tuple(out.shape) != shape:
        raise ValueError(
            f"operands could not be broadcast together with shapes {out.shape} {shape}"
        )
    return loop_dtype(ufunc, x, out) if dtype is None else dtype


def _may_be_split(ufunc: np.ufunc, kind: DType) -> bool:
    """Return True if a slice can be folded from its parts on several ranks.

    False if the order of operations matters, or if folding in the identity changes a number: hypot
    and gcd take magnitudes, and an infinite complex number times one contains a NaN.
    """
    changes = ufunc in (np.hypot, np.gcd) or (ufunc is np.multiply and kind.kind == "c")
    return not (changes or order_matters(ufunc, kind))


def _starts(ufunc: np.ufunc, indices: ArrayLike, extent: int) -> Array:
    """Return the indices as checked integers."""
    if isinstance(indices, DistArray):
        indices = indices.full()
    starts = np.asarray(indices)
    if starts.ndim != 1 or not isinstance(indices, (list, tuple)):
        np.add.reduceat(np.zeros(1), starts[:0] if starts.ndim == 1 else starts)
    starts = starts.astype(np.intp, copy=False)
    wrong = starts.astype(np.uintp, copy=False) >= extent  # negative numbers are large as unsigned
    if wrong.any():
        first = starts[np.argmax(wrong)]
        raise IndexError(f"index {first} out-of-bounds in {ufunc.__name__}.reduceat [0, {extent})")
    return starts


def _pieces(
    ufunc: np.ufunc, x: DistArray, starts: Array, axis: int, dtype: DTypeLike | None, kind: DType
) -> Array:
    """Return this block's contribution to each slice; the identity for slices outside of it."""
    block = x.block
    stops = np.append(starts[1:], x.shape[axis])[: len(starts)]
    stops = np.where(stops > starts, stops, starts + 1)
    first, last = x.layout.section(x.mesh.coords)[axis]
    low = np.clip(starts, first, last) - first
    high = np.clip(stops, first, last) - first
    start = neutral(ufunc, kind)
    shape = [*block.shape[:axis], len(starts), *block.shape[axis + 1 :]]
    result: Array = x.mesh.xp.full(shape, start, kind)
    own = np.flatnonzero(low < high)
    if not len(own) or not block.size:
        return result
    own = own[np.argsort(high[own] == block.shape[axis], kind="stable")]
    if np.count_nonzero(high[own] == block.shape[axis]) > 1:
        slab = [1 if dim == axis else extent for dim, extent in enumerate(block.shape)]
        block = np.concatenate([block, np.zeros(slab, block.dtype)], axis)
    ends = np.stack([low[own], high[own]], axis=1).reshape(-1)
    if ends[-1] == block.shape[axis]:
        ends = ends[:-1]
    # Starts and stops alternate, so every second result is that of a gap between slices.
    found: Array = ufunc_method(ufunc, "reduceat", block, ends, axis, dtype)
    head: tuple[Any, ...] = (slice(None),) * axis
    result[(*head, x.mesh.asarray(own))] = found[(*head, slice(None, None, 2))]
    return result


implements_method("reduce")(reduce)
implements_method("accumulate")(in_numpys_order("accumulate")(accumulate))
