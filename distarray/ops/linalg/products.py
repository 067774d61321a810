"""multi_dot and cross: products of several matrices, and of vectors."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, call, common_mesh, implements, wrap
from distarray.comm.warned_lines import taken
from distarray.engines.factoring import small
from distarray.engines.reshaping import in_line
from distarray.typing import Array, ArrayLike, Out

__all__ = ["cross", "multi_dot"]


@implements(np.linalg.multi_dot, small=False)
def multi_dot(arrays: Sequence[ArrayLike], *, out: Out = None) -> Any:
    """Multiply matrices in the cheapest order, as :func:`numpy.linalg.multi_dot`.

    Parameters
    ----------
    arrays : sequence of array_like
        The first and the last may be vectors.
    out : DistArray, optional
        Receives the result.

    Cost
    ----
    The cost of the products. The order is NumPy's: the one with the fewest multiplications.
    """
    count = len(arrays)
    if count < 2:
        raise ValueError("Expecting at least two arrays.")
    if count == 2:
        return call(np.dot, arrays[0], arrays[1], out=out)
    mesh = common_mesh(*arrays, out)
    given = [as_distarray(x, mesh) for x in arrays]
    first, last = given[0].ndim, given[-1].ndim
    given[0] = given[0][None, :] if first == 1 else given[0]
    given[-1] = given[-1][:, None] if last == 1 else given[-1]
    small.check_2d(*given)
    result = _product(given, _order([*[x.shape[0] for x in given], given[-1].shape[1]]), out)
    if first == 1 and last == 1:
        return result[0, 0]
    return in_line(result) if first == 1 or last == 1 else result


#: Order of a product: (split, order of the left part, order of the right); None for a factor.
_Order = tuple[int, Any, Any] | None


def _order(extents: list[int]) -> _Order:
    """Find the order with the fewest multiplications for matrices of consecutive extents."""
    count = len(extents) - 1
    best: dict[tuple[int, int], tuple[float, _Order]] = {(i, i): (0.0, None) for i in range(count)}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            # At equal cost NumPy splits as early as possible.
            best[i, j] = min(
                (
                    (
                        best[i, k][0]
                        + best[k + 1, j][0]
                        + float(extents[i]) * extents[k + 1] * extents[j + 1],
                        (k - i, best[i, k][1], best[k + 1, j][1]),
                    )
                    for k in range(i, j)
                ),
                key=lambda entry: entry[0],
            )
    return best[0, count - 1][1]


def _product(factors: list[DistArray], order: _Order, out: Out = None) -> DistArray:
    if order is None:
        return factors[0]
    split, left, right = order
    split += 1
    return call(  # type: ignore[no-any-return]
        np.dot, _product(factors[:split], left), _product(factors[split:], right), out=out
    )


# -- cross products --------------------------------------------------------------------------------


@implements(np.linalg.cross)
def _linalg_cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Any:
    a, b = small.read(x1, x2)
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, "
            f"but they are {a.shape[axis]} and {b.shape[axis]} dimensional instead."
        )
    return cross(a, b, axis=axis)


@implements(np.cross)
def cross(
    a: ArrayLike,
    b: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Any:
    """Compute cross products, also of vectors of two components, as :func:`numpy.cross`.

    Returns
    -------
    DistArray
        Cut like the operands' other dimensions; the components of a vector are on one rank.

    Cost
    ----
    The cost of an elementwise operation; operands whose components are cut are redistributed first.
    """
    if axis is not None:
        axisa, axisb, axisc = (axis,) * 3
    x, y = small.read(a, b)
    if x.ndim < 1 or y.ndim < 1:
        raise ValueError("At least one array has zero dimension")
    axisa = normalize_axis_index(axisa, x.ndim, msg_prefix="axisa")
    axisb = normalize_axis_index(axisb, y.ndim, msg_prefix="axisb")
    x, y = _last(x, axisa), _last(y, axisb)
    np.broadcast_shapes(x.shape[:-1], y.shape[:-1])  # raises NumPy's exception
    lengths = x.shape[-1], y.shape[-1]
    if lengths != (3, 3):
        _check_components(*lengths)
    if 3 in lengths:
        axisc = normalize_axis_index(axisc, max(x.ndim, y.ndim), msg_prefix="axisc")
    result: DistArray = small.stackwise(_components, x, y, cores=(1, 1), anywhere=True)
    mesh = result.mesh
    if 3 not in lengths:  # NumPy returns a 0-d result as an array, not as a scalar
        return wrap(mesh.asarray(result.block), result.layout, mesh)
    order = list(range(result.ndim - 1))
    order.insert(axisc, result.ndim - 1)
    return wrap(result.block.transpose(order), result.layout.transpose(order), mesh)


def _check_components(first: int, second: int) -> None:
    """Warn or raise, as this version of NumPy does, about vectors of two components."""
    said: list[warnings.WarningMessage] = []
    with taken(said.append):
        np.cross(np.zeros(first), np.zeros(second))
    for warning in said:
        warnings.warn(str(warning.message), warning.category, stacklevel=1)


def _last(x: DistArray, axis: int) -> DistArray:
    order = [*[d for d in range(x.ndim) if d != axis], axis]
    return wrap(x.block.transpose(order), x.layout.transpose(order), x.mesh)


def _components(a: Array, b: Array) -> Any:
    """Compute cross products along the last axis, with NumPy's operations in NumPy's order."""
    if a.shape[-1] == 2 and b.shape[-1] == 2:
        return _minor(a, b, 0, 1)
    shape = (*np.broadcast_shapes(a.shape[:-1], b.shape[:-1]), 3)
    result = np.empty_like(a, np.promote_types(a.dtype, b.dtype), "C", shape=shape)
    for place, (i, j) in enumerate(((1, 2), (2, 0), (0, 1))):
        result[..., place] = _minor(a, b, i, j)
    return result


def _minor(a: Array, b: Array, i: int, j: int) -> Any:
    """Compute ``a[i] * b[j] - a[j] * b[i]``; a missing third component counts as zero."""
    lacks_a, lacks_b = max(i, j) >= a.shape[-1], max(i, j) >= b.shape[-1]
    dtype = np.promote_types(a.dtype, b.dtype)
    a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    if not lacks_a and not lacks_b:
        return a[..., i] * b[..., j] - a[..., j] * b[..., i]
    if (lacks_a and j == 2) or (lacks_b and i == 2):
        return a[..., i] * b[..., j]
    return -(a[..., j] * b[..., i])
