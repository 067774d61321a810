"""Differences of neighbouring elements, and what is made of them.

They are written with slices, so that where an axis is cut only the few elements at the cut move.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.one_rank import Alone
from distarray.engines.indexing.values import plain
from distarray.engines.reshaping import in_line
from distarray.layout import Fold

__all__ = ["diff", "ediff1d", "gradient", "trapezoid", "unwrap"]

_NO_VALUE: Any = np._NoValue
_LINEAR = (Fold.SUM,)


def _at(ndim: int, axis: int, key: Any) -> tuple[Any, ...]:
    """An index that takes `key` along one axis and everything along the others."""
    return (slice(None),) * axis + (key,) + (slice(None),) * (ndim - axis - 1)


_AFTER, _BEFORE = slice(1, None), slice(None, -1)


@implements(np.diff, at=True, alone=Alone(unless=lambda a, n=1, *_, **__: n == 0))
def diff(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = _NO_VALUE, append: Any = _NO_VALUE
) -> Any:
    """The n-th differences along an axis; see :func:`numpy.diff`.

    Cost
    ----
    Where the axis is cut, one message a neighbour and order, of one slab of extent 1. With
    `prepend` or `append`, a concatenation.
    """
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n!r}")
    a, prepend, append = plain(a), plain(prepend), plain(append)
    a = as_distarray(a, common_mesh(a, prepend, append))
    if not a.ndim:
        raise ValueError("diff requires input that is at least one dimensional")
    axis = normalize_axis_index(axis, a.ndim)
    ends = [_end(value, a, axis) for value in (prepend, append)]
    joined = [part for part in (ends[0], a, ends[1]) if part is not None]
    if len(joined) > 1:
        a = np.concatenate(joined, axis)
    after, before = _at(a.ndim, axis, _AFTER), _at(a.ndim, axis, _BEFORE)
    operation: Any = np.not_equal if a.dtype == bool else np.subtract
    for _ in range(n):
        a = operation(a[after], a[before])
    return a


def _end(value: Any, a: DistArray, axis: int) -> Any:
    """What stands before or after the array along the axis; None if nothing does."""
    if value is _NO_VALUE:
        return None
    value = as_distarray(value, a.mesh)
    if value.ndim:
        return value
    return np.broadcast_to(value, (*a.shape[:axis], 1, *a.shape[axis + 1 :]))


@implements(np.ediff1d, alone=Alone())
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Differences of consecutive elements of the flattened array; see :func:`numpy.ediff1d`.

    Cost
    ----
    As :func:`diff`; of an array with several dimensions, that of :func:`numpy.ravel`.
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
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """The integral along an axis by the trapezoidal rule; see :func:`numpy.trapezoid`.

    Cost
    ----
    As :func:`diff` and :func:`numpy.sum`.
    """
    y = as_distarray(y, common_mesh(y, x, dx))
    given, axis = axis, normalize_axis_index(axis, y.ndim)
    widths = dx
    if x is not None:
        x = as_distarray(x, y.mesh)
        widths = diff(x, axis=given if x.ndim != 1 else 0)
        if x.ndim == 1:
            widths = widths[_alone(y.ndim, axis)]
    heights = y[_at(y.ndim, axis, _AFTER)] + y[_at(y.ndim, axis, _BEFORE)]
    return np.sum(widths * heights / 2.0, given)  # it may have more dimensions than `y`


def _alone(ndim: int, axis: int) -> tuple[Any, ...]:
    """An index that makes a 1-d array one of `ndim` dimensions, along one axis."""
    return (None,) * axis + (slice(None),) + (None,) * (ndim - axis - 1)


@implements(np.unwrap)
def unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * np.pi) -> Any:
    """Jumps of more than half a period replaced by their complement; see :func:`numpy.unwrap`.

    Cost
    ----
    As :func:`diff` and :func:`numpy.cumsum`, and one message to a neighbour, of one slab of
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
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Central differences inside, one-sided ones at the ends; see :func:`numpy.gradient`.

    Cost
    ----
    For each axis that is cut, two messages a rank, of one slab of extent 1 each; those of the
    points at an end that lie on another rank; and small broadcasts of uneven distances.
    """
    f = as_distarray(f, common_mesh(f, *varargs))
    axes = tuple(range(f.ndim)) if axis is None else normalize_axis_tuple(axis, f.ndim)
    spacings = _spacings(f, axes, varargs)
    if edge_order > 2:
        raise ValueError("'edge_order' greater than 2 not supported")
    if any(f.shape[along] < edge_order + 1 for along in axes):
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least "
            "(edge_order + 1) elements are required."
        )
    if f.dtype.kind == "M":
        f = f.view(f.dtype.str.replace("M8", "m8"))
    elif f.dtype.kind not in "mfc":
        np.gradient(np.zeros(3, f.dtype))  # NumPy's complaints about what cannot be subtracted
        f = f.astype(np.float64)
    found = [
        _gradient(f, along, step, edge_order) for along, step in zip(axes, spacings, strict=True)
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _spacings(f: DistArray, axes: Sequence[int], given: Sequence[Any]) -> list[Any]:
    """Distances between the points along each axis: one number, or an array of them."""
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


def _gradient(f: DistArray, axis: int, step: Any, edge_order: int) -> Any:
    def part(key: Any) -> Any:
        return f[_at(f.ndim, axis, key)]

    result = np.empty_like(f, dtype=f.dtype)
    inside = _at(f.ndim, axis, slice(1, -1))
    before, here, after = slice(None, -2), slice(1, -1), slice(2, None)
    even = np.ndim(step) == 0
    if even:
        result[inside] = (part(after) - part(before)) / (2.0 * step)
    else:
        weights: Any = [w[_alone(f.ndim, axis)] for w in _inner_weights(step[:-1], step[1:])]
        a, b, c = weights
        result[inside] = a * part(before) + b * part(here) + c * part(after)
    for end, points in ((0, (0, 1, 2)), (-1, (-3, -2, -1))):
        near = step if even else step[end]
        at_end = _at(f.ndim, axis, _slab(end))
        if edge_order == 1:
            low, high = (0, 1) if end == 0 else (-2, -1)
            result[at_end] = (part(_slab(high)) - part(_slab(low))) / near
            continue
        weights = _end_weights(end, step, even)
        values = [w * part(_slab(point)) for w, point in zip(weights, points, strict=True)]
        result[at_end] = values[0] + values[1] + values[2]
    return result


def _slab(point: int) -> slice:
    """A point's own slab, a view on the rank that has it: an element would go to every rank."""
    return slice(point, point + 1 or None)


def _inner_weights(left: Any, right: Any) -> tuple[Any, Any, Any]:
    """Weights of a point's neighbours and itself, at uneven distances."""
    return (
        -(right) / (left * (left + right)),
        (right - left) / (left * right),
        left / (right * (left + right)),
    )


def _end_weights(end: int, step: Any, even: bool) -> tuple[Any, Any, Any]:
    """Weights of the three points at an end, the lowest index first."""
    if even and end == 0:
        return -1.5 / step, 2.0 / step, -0.5 / step
    if even:
        return 0.5 / step, -2.0 / step, 1.5 / step
    if end == 0:
        near, far = step[0], step[1]
        return (
            -(2.0 * near + far) / (near * (near + far)),
            (near + far) / (near * far),
            -near / (far * (near + far)),
        )
    far, near = step[-2], step[-1]
    return (
        near / (far * (far + near)),
        -(near + far) / (far * near),
        (2.0 * near + far) / (near * (far + near)),
    )
