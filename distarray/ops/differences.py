"""Differences of neighbouring elements, and functions built on them.

The functions use slices, so only the few elements next to a block boundary move.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distarray.array import DistArray, as_distarray, common_mesh, implements, wrap
from distarray.array.one_rank import Alone
from distarray.engines.halos import extended
from distarray.engines.indexing.values import plain
from distarray.engines.reshaping import in_line
from distarray.typing import ArrayLike, Axis

__all__ = ["diff", "ediff1d", "gradient", "trapezoid", "unwrap"]

_NO_VALUE: Any = np._NoValue


def _at(ndim: int, axis: int, key: slice) -> tuple[Any, ...]:
    """Return an index that takes `key` along one axis and all indices along the others."""
    return (slice(None),) * axis + (key,) + (slice(None),) * (ndim - axis - 1)


_AFTER, _BEFORE = slice(1, None), slice(None, -1)


@implements(np.diff, at=True, alone=Alone(unless=lambda a, n=1, *_, **__: n == 0))
def diff(
    a: ArrayLike,
    n: int = 1,
    axis: int = -1,
    prepend: ArrayLike = _NO_VALUE,
    append: ArrayLike = _NO_VALUE,
) -> Any:
    """Compute the n-th differences along an axis; see :func:`numpy.diff`.

    Cost
    ----
    If the axis is cut, one message per neighbour and order for the first two orders: a slab of
    extent 1. For higher orders, one message for as many orders as a block has elements along
    the axis. With `prepend` or `append`, a concatenation.
    """
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    a, prepend, append = plain(a), plain(prepend), plain(append)
    x: Any = as_distarray(a, common_mesh(a, prepend, append))
    if not x.ndim:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis_index(axis, x.ndim)
    ends = [_end(value, x, axis) for value in (prepend, append)]
    joined = [part for part in (ends[0], x, ends[1]) if part is not None]
    if len(joined) > 1:
        x = np.concatenate(joined, axis)
    if n > 2 and not x.dtype.hasobject:
        return _high(x, index(n), axis)
    return _differences(x, n, axis)


def _differences(x: Any, n: int, axis: int) -> Any:
    """Compute the n-th differences of an array, or of a block."""
    after, before = _at(x.ndim, axis, _AFTER), _at(x.ndim, axis, _BEFORE)
    operation: Any = np.not_equal if x.dtype == bool else np.subtract
    for done in range(n):
        if done > 1 and not x.shape[axis]:
            break  # no elements remain; their data type does not change
        x = operation(x[after], x[before])
    return x


def _high(x: DistArray, n: int, axis: int) -> DistArray:
    """Compute the n-th differences, several orders per message; ranks repeat a few elements."""
    x = x.plain()
    most = max(1, x.shape[axis] // x.layout.cuts[axis].parts)
    done = 0
    while done < n and (done < 2 or x.shape[axis]):
        cut = x.layout.cuts[axis]
        step = min(n - done, most)
        fewer = cut.view(0, 1, max(0, cut.extent - step))
        block = _differences(extended(x, axis, fewer, step), step, axis)
        x = wrap(block, x.layout.replace(axis, fewer), x.mesh)
        done += step
    return x


def _end(value: ArrayLike, x: DistArray, axis: int) -> Any:
    """Return the elements joined before or after the array along the axis, or None."""
    if value is _NO_VALUE:
        return None
    part = as_distarray(value, x.mesh)
    if part.ndim:
        return part
    return np.broadcast_to(part, (*x.shape[:axis], 1, *x.shape[axis + 1 :]))


@implements(np.ediff1d, alone=Alone())
def ediff1d(
    ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None
) -> Any:
    """Compute the differences of consecutive flattened elements; see :func:`numpy.ediff1d`.

    Cost
    ----
    The cost of :func:`diff`; with several dimensions, also the cost of :func:`numpy.ravel`.
    """
    line: Any = in_line(as_distarray(ary, common_mesh(ary, to_end, to_begin)))
    ends = []
    for name, value in (("to_begin", to_begin), ("to_end", to_end)):
        part = None if value is None else in_line(as_distarray(value, line.mesh))
        if part is not None and not np.can_cast(part.dtype, line.dtype, "same_kind"):
            raise TypeError(
                f"dtype of `{name}` must be compatible with input `ary` under the `same_kind` rule."
            )
        ends.append(part)
    inner = line[1:] - line[:-1]
    parts = [part.astype(line.dtype) for part in (ends[0], inner, ends[1]) if part is not None]
    return np.concatenate(parts) if len(parts) > 1 else inner


@implements(np.trapezoid, alone=Alone())
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Any:
    """Integrate along an axis by the trapezoidal rule; see :func:`numpy.trapezoid`.

    Cost
    ----
    The cost of :func:`diff` and :func:`numpy.sum`.
    """
    y = as_distarray(y, common_mesh(y, x, dx))
    np.trapezoid(np.zeros((1,) * y.ndim), axis=axis)  # NumPy's errors about the axis
    given, axis = axis, normalize_axis_index(axis, y.ndim)
    widths = dx
    if x is not None:
        x = as_distarray(x, y.mesh)
        widths = diff(x, axis=given if x.ndim != 1 else 0)
        if x.ndim == 1:
            widths = widths[_alone(y.ndim, axis)]
    heights = y[_at(y.ndim, axis, _AFTER)] + y[_at(y.ndim, axis, _BEFORE)]
    return np.sum(widths * heights / 2.0, given)  # the product may have more dimensions than `y`


def _alone(ndim: int, axis: int) -> tuple[Any, ...]:
    """Return an index that turns a 1-d array into one of `ndim` dimensions, its own at `axis`."""
    return (None,) * axis + (slice(None),) + (None,) * (ndim - axis - 1)


@implements(np.unwrap)
def unwrap(
    p: ArrayLike, discont: float | None = None, axis: int = -1, *, period: float = 2 * np.pi
) -> Any:
    """Replace jumps of over half a period by their complement; see :func:`numpy.unwrap`.

    Cost
    ----
    The cost of :func:`diff` and :func:`numpy.cumsum`, and one message to a neighbour: a slab of
    extent 1.
    """
    p = as_distarray(p)
    axis = normalize_axis_index(axis, p.ndim)
    steps = diff(p, axis=axis)
    discont = period / 2 if discont is None else discont
    dtype = np.result_type(steps.dtype, period)
    ambiguous = True
    high = period / 2
    if dtype.kind in "iu":
        high, rest = divmod(period, 2)
        ambiguous = rest == 0
    folded = np.mod(steps + high, period) - high
    if ambiguous:
        folded = np.where((folded == -high) & (steps > 0), high, folded)
    correction = np.where(abs(steps) < discont, 0, folded - steps)
    result = p.astype(dtype)
    result[_at(p.ndim, axis, _AFTER)] += np.cumsum(correction, axis)
    return result


# -- gradient ------------------------------------------------------------------------------------


@implements(np.gradient, alone=Alone())
def gradient(f: ArrayLike, *varargs: ArrayLike, axis: Axis = None, edge_order: int = 1) -> Any:
    """Compute central differences inside, one-sided ones at the ends; see :func:`numpy.gradient`.

    Cost
    ----
    For each axis that is cut: two messages per rank, each a slab of extent 1; messages for the
    points at an end that are on another rank; and small broadcasts of uneven distances.
    """
    x = as_distarray(f, common_mesh(f, *varargs))
    axes = tuple(range(x.ndim)) if axis is None else normalize_axis_tuple(axis, x.ndim)
    spacings = _spacings(x, axes, varargs)
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    if any(x.shape[along] < edge_order + 1 for along in axes):
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least "
            "(edge_order + 1) elements are required."
        )
    if x.dtype.kind == "M":
        x = x.view(x.dtype.str.replace("M8", "m8"))
    elif x.dtype.kind not in "mfc":
        np.gradient(np.zeros(3, x.dtype))  # NumPy's errors about subtraction
        x = x.astype(np.float64)
    found = [
        _gradient(x, along, step, edge_order) for along, step in zip(axes, spacings, strict=True)
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _spacings(f: DistArray, axes: Sequence[int], given: Sequence[Any]) -> list[Any]:
    """Return the distances between points along each axis: one number, or an array of them."""
    if not given:
        return [1.0] * len(axes)
    if len(given) == 1 and np.ndim(given[0]) == 0:
        return list(given) * len(axes)
    if len(given) != len(axes):
        raise TypeError("invalid number of arguments")
    spacings = []
    for along, positions in zip(axes, given, strict=True):
        if np.ndim(positions) == 0:
            spacings.append(positions)
            continue
        line = as_distarray(positions, f.mesh)
        if line.ndim != 1:
            raise ValueError("distances must be either scalars or 1d")
        if line.size != f.shape[along]:
            raise ValueError(
                "when 1d, distances must match the length of the corresponding dimension"
            )
        steps = diff(line.astype(np.float64) if line.dtype.kind in "iu" else line)
        even = bool(np.all(steps == steps[0]))
        spacings.append(steps[0] if even else steps)
    return spacings


def _gradient(f: DistArray, axis: int, step: float | DistArray, edge_order: int) -> Any:
    def part(key: slice) -> Any:
        return f[_at(f.ndim, axis, key)]

    result = np.empty_like(f, dtype=f.dtype)
    inside = _at(f.ndim, axis, slice(1, -1))
    before, here, after = slice(None, -2), slice(1, -1), slice(2, None)
    steps: Any = step
    even = np.ndim(steps) == 0
    if even:
        result[inside] = (part(after) - part(before)) / (2.0 * steps)
    else:
        weights = _inner_weights(steps[:-1], steps[1:])
        a, b, c = [w[_alone(f.ndim, axis)] for w in weights]
        result[inside] = a * part(before) + b * part(here) + c * part(after)
    for end, points in ((0, (0, 1, 2)), (-1, (-3, -2, -1))):
        near = steps if even else steps[end]
        at_end = _at(f.ndim, axis, _slab(end))
        if edge_order == 1:
            low, high = (0, 1) if end == 0 else (-2, -1)
            result[at_end] = (part(_slab(high)) - part(_slab(low))) / near
            continue
        weights = _even_weights(end, steps) if even else _end_weights(end, steps)
        values = [w * part(_slab(point)) for w, point in zip(weights, points, strict=True)]
        result[at_end] = values[0] + values[1] + values[2]
    return result


def _slab(point: int) -> slice:
    """Return the slice of one point: a view stays on its rank; an element would be broadcast."""
    return slice(point, point + 1 or None)


def _inner_weights(left: DistArray, right: DistArray) -> tuple[Any, Any, Any]:
    """Return the weights of a point's neighbours and of the point, at uneven distances."""
    return (
        -(right) / (left * (left + right)),
        (right - left) / (left * right),
        left / (right * (left + right)),
    )


def _even_weights(end: int, step: float) -> tuple[Any, Any, Any]:
    """Return weights of the three points at an end, lowest index first, at equal distances."""
    if end == 0:
        return -1.5 / step, 2.0 / step, -0.5 / step
    return 0.5 / step, -2.0 / step, 1.5 / step


def _end_weights(end: int, steps: DistArray) -> tuple[Any, Any, Any]:
    """Return weights of the three points at an end, lowest index first, at uneven distances."""
    if end == 0:
        near, far = steps[0], steps[1]
        return (
            -(2.0 * near + far) / (near * (near + far)),
            (near + far) / (near * far),
            -near / (far * (near + far)),
        )
    far, near = steps[-2], steps[-1]
    return (
        near / (far * (far + near)),
        -(near + far) / (far * near),
        (2.0 * near + far) / (near * (far + near)),
    )
