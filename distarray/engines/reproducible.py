"""Floating-point reductions with the same bits on every mesh: ``config.reproducible``.

Sums are made independent of the order by pre-rounding (Demmel and Nguyen, Fast Reproducible
Floating-Point Summation, 21st IEEE Symposium on Computer Arithmetic, 2013). The largest magnitude
and the number of summands, which every rank knows, determine powers of two at which all summands
are split. The leading parts are multiples of one unit, and few enough that their sum is exact in
any order; the remainders are split again, a few times. The totals of the parts are equal on all
meshes, and are added in one fixed order. The parts reach at least three bits below the last bit of
the largest summand for all summands together, so the error is below that of pairwise summation.

A sum of doubles costs one more allreduce (of the maxima), three times the elements in the other
one, and about ten times the arithmetic, in cache, tile by tile. Products and other ufuncs that
round (hypot, logaddexp) have no such form: the ranks along the axis take turns
(:mod:`distarray.engines.chains`), which takes as long as on one rank.
"""

from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.array.portable import as_array, contiguous
from distarray.comm import DeviceMesh
from distarray.engines import chains
from distarray.engines.tiles import spot, tiles
from distarray.layout import Fold, Layout
from distarray.typing import Array, ArrayLike

__all__ = ["binned_sum", "in_order_dtype", "reduce"]

NoValue: Any = np._NoValue


def reduce(
    ufunc: np.ufunc,
    x: DistArray,
    axes: tuple[int, ...],
    dtype: np.dtype[Any],
    initial: ArrayLike = NoValue,
    mask: Array | None = None,
) -> Array:
    """``ufunc.reduce`` of floating-point or complex numbers, with the same bits on every mesh.

    The parameters and the result are those of :func:`distarray.engines.chains.reduce`.
    """
    if ufunc is not np.add:
        work = in_order_dtype(ufunc, dtype)
        return chains.reduce(ufunc, x, axes, work, initial, mask).astype(dtype)
    block = x.block
    if mask is not None:
        block = np.where(mask, block, block.dtype.type(0))
    total = binned_sum(block, axes, x.layout, x.mesh, dtype)
    return total if initial is NoValue or initial is None else np.add(initial, total).astype(dtype)


def in_order_dtype(ufunc: np.ufunc, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The data type to compute in so that equal operations give equal bits.

    NumPy multiplies complex numbers with fused instructions in some loops and without in others,
    depending on lengths and strides; for extended precision it has only one loop.
    """
    return np.dtype(np.clongdouble) if dtype.kind == "c" and ufunc is not np.add else dtype


def binned_sum(
    block: Array, axes: tuple[int, ...], layout: Layout, mesh: DeviceMesh, dtype: np.dtype[Any]
) -> Array:
    """The sum of a distributed array over axes.

    Parameters
    ----------
    block : array
        This rank's block of the array.
    axes : tuple of int
        The dimensions to sum over.
    layout : Layout
        The layout of the array, a plain one.
    mesh : DeviceMesh
        The mesh of the array.
    dtype : dtype
        The data type of the result: floating-point or complex.

    Returns
    -------
    array
        This rank's block of the result, with the reduced dimensions kept.

    Cost
    ----
    An allreduce of the maxima and one of the totals of the parts, if a reduced dimension is cut.
    """
    if dtype.kind == "c":
        pairs = contiguous(block.astype(dtype, copy=False))
        pairs = pairs.reshape(block.shape).view(pairs.real.dtype).reshape(*block.shape, 2)
        parts = _binned(pairs, axes, layout, mesh, np.promote_types(pairs.dtype, "f8"))
        return (parts[..., 0] + 1j * parts[..., 1]).astype(dtype)
    return _binned(block, axes, layout, mesh, np.promote_types(dtype, "f8")).astype(dtype)


def _binned(
    block: Array, axes: tuple[int, ...], layout: Layout, mesh: DeviceMesh, kind: np.dtype[Any]
) -> Array:
    """The sum of real numbers in the floating-point type `kind`."""
    mesh_dims = tuple(sorted({m for axis in axes for m in layout.cuts[axis].mesh_dims}))
    group = mesh.subgroup(mesh_dims) if mesh_dims and mesh.coords is not None else None
    largest = _largest(block, axes, kind)
    if group is not None:
        largest = group.allreduce(as_array(largest), Fold.MAX)
    count = prod([layout.shape[axis] for axis in axes])
    sigmas, shift = _scales(largest, count, kind)
    clean, scaled = bool(np.isfinite(largest).all()), bool(shift.any())
    totals: Array = np.zeros((len(sigmas) + 1, *largest.shape), kind, like=block)
    for key in tiles(block) if block.size else ():
        where = spot(key, axes)
        rest = block[key].astype(kind)
        if not clean:
            odd = ~np.isfinite(rest)
            totals[-1][where] += _total(np.where(odd, rest, 0), axes)
            rest[odd] = 0
        if scaled:
            rest = np.ldexp(rest, -shift[where])
        _split(rest, [sigma[where] for sigma in sigmas], totals[(slice(-1), *where)], axes)
    if group is not None:
        totals = group.allreduce(totals, Fold.SUM)
    result: Array = totals[-2]
    for part in reversed(totals[:-2]):
        result = part + result
    if scaled:
        result = np.ldexp(result, shift)
    odd = np.where(np.isnan(totals[-1]), kind.type(np.nan), totals[-1])
    return result if clean else np.where(np.isfinite(largest), result, odd)


def _scales(largest: Array, count: int, kind: np.dtype[Any]) -> tuple[list[Array], Array]:
    """Where to split the numbers, and by which powers of two to scale them down before.

    A sum of `count` numbers below 2**e stays below 2**(e + levels). At 1.5 * 2**s, with s one
    above that exponent, a number is rounded to a multiple of 2**(s - nmant), and `count` such
    multiples add up without rounding. The remainder is below 2**(s - nmant - 1).
    """
    limits = np.finfo(kind)
    levels = max(count - 1, 1).bit_length()
    _, exponent = np.frexp(np.where(np.isfinite(largest), largest, kind.type(1)))
    shift = np.where(exponent + levels + 2 >= limits.maxexp, levels + 4, 0)
    first = exponent - shift + levels + 1
    kept = limits.nmant - levels  # bits that one split removes
    splits = -(-(limits.nmant + 1 + levels + 4) // kept)
    return [np.ldexp(kind.type(1.5), first - kept * split) for split in range(splits)], shift


def _largest(block: Array, axes: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """The largest magnitudes along the axes, which are kept; NaN where there is one."""
    shape = [1 if dim in axes else extent for dim, extent in enumerate(block.shape)]
    largest = np.zeros(shape, kind, like=block)
    for key in tiles(block) if block.size else ():
        where = spot(key, axes)
        found = np.max(np.abs(block[key].astype(kind)), axis=axes, keepdims=True)
        largest[where] = np.maximum(largest[where], found)
    return largest


def _split(rest: Array, sigmas: list[Array], totals: Array, axes: tuple[int, ...]) -> None:
    """Split numbers at each sigma, and add the exact sum of each part to its total."""
    part = np.empty_like(rest)
    for sigma, total in zip(sigmas, totals, strict=True):
        np.add(rest, sigma, out=part)
        np.subtract(part, sigma, out=part)
        total += _total(part, axes)
        np.subtract(rest, part, out=rest)


def _total(part: Array, axes: tuple[int, ...]) -> Array:
    """The sum over the axes, which are kept."""
    total: Array = np.sum(part, axis=axes, keepdims=True)
    return total
