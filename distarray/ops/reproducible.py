"""Floating-point reductions with the same bits on every mesh: ``config.reproducible``.

Sums are made order-independent by pre-rounding (Demmel and Nguyen, Fast Reproducible
Floating-Point Summation, 21st IEEE Symposium on Computer Arithmetic, 2013): from the largest
magnitude and the number of summands, which every rank knows, follow powers of two at which all
summands are split. The leading parts are multiples of one unit and few enough that their sum is
exact in any order; what remains is split again, a few times. The parts' totals, equal on all
meshes, are added in one fixed order. The split parts reach at least three bits below the last bit
of the largest summand for all summands together, so the error is below that of pairwise summation.

Price of a sum of doubles: one allreduce more (of the maxima), three times the result in the other,
and about ten times the arithmetic, done in cache tile by tile. Products and other ufuncs that
round (hypot, logaddexp) have no such form: the ranks along the axis take turns
(:mod:`distarray.ops.chains`), which is as slow as one rank.
"""

from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.layout import Fold
from distarray.ops import chains

__all__ = ["binned_sum", "reduce"]

Array = Any
NoValue: Any = np._NoValue  # type: ignore[attr-defined]

#: Elements worked on at a time; the temporaries stay in cache.
TILE = 1 << 15


def reduce(
    ufunc: np.ufunc,
    x: DistArray,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    initial: Any = NoValue,
    mask: Array | None = None,
) -> Array:
    """``ufunc.reduce`` of floating-point or complex numbers with bits that no mesh changes.

    Parameters and result are those of :func:`distarray.ops.chains.reduce`.
    """
    if ufunc is not np.add:
        return chains.reduce(ufunc, x, axes, dtype, initial, mask)
    block = x._block
    if mask is not None:
        block = np.where(mask, block, block.dtype.type(0))
    total = binned_sum(block, axes, x._layout, x._mesh, dtype)
    return total if initial is NoValue or initial is None else np.add(initial, total).astype(dtype)


def binned_sum(
    block: Array, axes: tuple[int, ...], layout: Any, mesh: DeviceMesh, dtype: np.dtype[Any]
) -> Array:
    """The sum over axes of an array of which the ranks hold blocks.

    Parameters
    ----------
    block : array
        This rank's part.
    axes : tuple of int
        The dimensions that are summed over.
    layout : Layout
        Of the array; plain.
    mesh : DeviceMesh
        The ranks that hold it.
    dtype : dtype
        Of the result: floating-point or complex.

    Returns
    -------
    array
        This rank's block of the result, with the reduced dimensions kept.

    Cost
    ----
    An allreduce of the maxima and one of the parts' totals, if a reduced dimension is cut.
    """
    if dtype.kind == "c":
        pairs = np.ascontiguousarray(block.astype(dtype, copy=False))
        pairs = pairs.reshape(block.shape).view(pairs.real.dtype).reshape(*block.shape, 2)
        parts = _binned(pairs, axes, layout, mesh, np.promote_types(pairs.dtype, "f8"))
        return (parts[..., 0] + 1j * parts[..., 1]).astype(dtype)
    return _binned(block, axes, layout, mesh, np.promote_types(dtype, "f8")).astype(dtype)


def _binned(
    block: Array, axes: tuple[int, ...], layout: Any, mesh: DeviceMesh, kind: np.dtype[Any]
) -> Array:
    """The sum of real numbers in the floating-point type `kind`."""
    mesh_dims = tuple(sorted({m for axis in axes for m in layout.cuts[axis].mesh_dims}))
    group = mesh.subgroup(mesh_dims) if mesh_dims and mesh.coords is not None else None
    count = int(np.prod([layout.shape[axis] for axis in axes], dtype=object))
    largest = np.maximum.reduce(np.abs(block), axes, keepdims=True, initial=0).astype(kind)
    if group is not None:
        largest = group.allreduce(np.asarray(largest), Fold.MAX)
    finite = np.isfinite(largest)
    digits = np.finfo(kind).nmant + 1
    levels = max(count - 1, 1).bit_length()
    _, exponent = np.frexp(np.where(finite, largest, kind.type(1)))
    # Room for the sum: numbers near the largest that there are get scaled down, all alike.
    shift = np.where(exponent + levels + 2 > np.finfo(kind).maxexp - 1, levels + 4, 0)
    folds = -(-(digits + levels + 4) // (digits - 1 - levels))
    first = exponent - shift + levels + 1
    drop = digits - 1 - levels
    sigmas = [np.ldexp(kind.type(1.5), first - drop * fold) for fold in range(folds)]
    totals = np.zeros((folds + 1, *largest.shape), kind)
    for tile, where in _tiles(block, axes):
        _split(tile, where, axes, totals, sigmas, shift, bool(finite.all()))
    if group is not None:
        totals = group.allreduce(totals, Fold.SUM)
    result = totals[folds - 1]
    for fold in reversed(range(folds - 1)):
        result = totals[fold] + result
    if shift.any():
        result = np.ldexp(result, shift)
    if finite.all():
        return result
    odd = np.where(np.isnan(totals[folds]), kind.type(np.nan), totals[folds])
    return np.where(finite, result, odd)


def _tiles(block: Array, axes: tuple[int, ...]) -> Any:
    """Parts of a block along its first dimension, with their places in the result."""
    if not block.ndim or block.size <= TILE:
        yield block, ()
        return
    rows = max(1, TILE // max(1, block.size // len(block)))
    for start in range(0, len(block), rows):
        part = slice(start, start + rows)
        yield block[part], (() if 0 in axes else (part,))


def _split(
    tile: Array,
    where: tuple[slice, ...],
    axes: tuple[int, ...],
    totals: Array,
    sigmas: list[Array],
    shift: Array,
    finite: bool,
) -> None:
    """Split a tile's numbers at each sigma and add the parts to the totals; the last row takes
    what is not finite.
    """
    rest = tile.astype(totals.dtype)
    if not finite:
        odd = ~np.isfinite(rest)
        totals[(-1, *where)] += np.add.reduce(np.where(odd, rest, 0), axes, keepdims=True)
        rest[odd] = 0
    if shift.any():
        rest = np.ldexp(rest, -shift[where])
    part = np.empty_like(rest)
    for fold, sigma in enumerate(sigmas):
        at = sigma[where]
        np.add(rest, at, out=part)
        np.subtract(part, at, out=part)
        totals[(fold, *where)] += np.add.reduce(part, axes, keepdims=True)
        np.subtract(rest, part, out=rest)
