"""Checked calls of NumPy's Fourier transforms, as passes along one dimension each.

Before anything is sent, NumPy computes each pass on a tiny array, which raises NumPy's errors and
gives the data types.
"""

import operator
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray
from distarray.array.base import check_out
from distarray.array.probes import hollow
from distarray.plan.fourier import Kind, Pass
from distarray.typing import Array, DType, Shape

__all__ = ["Request", "along_axes", "along_axis"]

#: Length of a transform as NumPy accepts it: an integer, or None as an element of `s`.
Points = SupportsIndex | None
#: Pass as the caller requests it, with unchecked n and axis.
_Asked = tuple[Kind, Any, Any]


class Request(NamedTuple):
    """Checked call of a transform.

    Attributes
    ----------
    passes : tuple of Pass
        The passes in NumPy's order.
    norm : str or None
        The normalization, as in NumPy.
    between, dtype : dtype
        The data type between the passes, and the data type of the result.
    """

    passes: tuple[Pass, ...]
    norm: str | None
    between: DType
    dtype: DType

    def shape_of(self, shape: Sequence[int]) -> Shape:
        """Return the shape of the result for an operand's shape."""
        extents = list(shape)
        for step in self.passes:
            extents[step.axis] = step.given
        return tuple(extents)


def along_axis(
    x: DistArray, kind: Kind, n: Points, axis: int, norm: str | None, out: DistArray | Array | None
) -> Request:
    """Make the request for a transform along one dimension."""
    if n is None:
        n = (x.shape[axis] - 1) * 2 if kind.takes_half else x.shape[axis]
    return _request(x, ((kind, n, axis),), norm, out)


def along_axes(
    x: DistArray,
    kinds: tuple[Kind, Kind],
    s: Sequence[Points] | None,
    axes: Sequence[int] | None,
    norm: str | None,
    out: DistArray | Array | None,
) -> Request:
    """Make the request for a transform along several dimensions.

    Parameters
    ----------
    x : DistArray
        The operand.
    kinds : tuple of Kind
        The transform along all dimensions but the last, and the transform along the last.
    s, axes, norm
        The arguments of NumPy's function.
    out : DistArray or ndarray or None
        The array that receives the result.
    """
    others, last = kinds
    extents, dims = _shape_and_axes(x.shape, s, axes, last.takes_half)
    asked: list[_Asked] = [(others, n, axis) for n, axis in zip(extents, dims, strict=True)]
    if others is not last:
        asked[-1] = last, extents[-1], dims[-1]
    if last.takes_half:
        return _request(x, tuple(asked), norm, out)
    if last.gives_half:
        asked = [asked[-1], *reversed(asked[:-1])]
    else:
        asked.reverse()
    return _request(x, tuple(asked), norm, out)


def _shape_and_axes(
    shape: Shape, s: Sequence[Points] | None, axes: Sequence[int] | None, takes_half: bool
) -> tuple[list[Any], list[int]]:
    """Return the length of each transform and its dimension, by NumPy's rules."""
    extents: list[Any]
    if s is not None:
        extents = list(s)
    else:
        extents = list(shape) if axes is None else [int(n) for n in np.take(shape, axes)]
    if axes is None:
        if s is not None:
            _warn(
                "`axes` should not be `None` if `s` is not `None` (Deprecated in NumPy 2.0). In a "
                "future version of NumPy, this will raise an error and `s[i]` will correspond to "
                "the size along the transformed axis specified by `axes[i]`. To retain current "
                "behaviour, pass a sequence [0, ..., k-1] to `axes` for an array of dimension k."
            )
        axes = range(-len(extents), 0)
    dims = list(axes)
    if len(extents) != len(dims):
        raise ValueError("Shape and axes have different lengths.")
    if takes_half and s is None:
        extents[-1] = (shape[dims[-1]] - 1) * 2
    if None in extents:
        _warn(
            "Passing an array containing `None` values to `s` is deprecated in NumPy 2.0 and will "
            "raise an error in a future version of NumPy. To use the default behaviour of the "
            "corresponding 1-D transform, pass the value matching the default for its `n` "
            "parameter. To use the default behaviour for every axis, the `s` argument can be "
            "omitted."
        )
    return [shape[axis] if n == -1 else n for n, axis in zip(extents, dims, strict=True)], dims


def _warn(text: str) -> None:
    """Warn of a deprecated call, at the caller's line."""
    warnings.warn(text, DeprecationWarning, stacklevel=1)


def _request(
    x: DistArray, asked: tuple[_Asked, ...], norm: str | None, out: DistArray | Array | None
) -> Request:
    """Check a call; use the cache if all arguments are hashable integers and strings."""
    if out is not None or not (norm is None or type(norm) is str):
        return _checked(x.shape, x.dtype, asked, norm, out)
    for _, n, axis in asked:
        if type(n) is not int or type(axis) is not int:
            return _checked(x.shape, x.dtype, asked, norm)
    return _known(x.shape, x.dtype, asked, norm)


def _checked(
    shape: Shape,
    dtype: DType,
    asked: tuple[_Asked, ...],
    norm: str | None,
    out: DistArray | Array | None = None,
) -> Request:
    """Make the request, or raise NumPy's error about any of its passes."""
    between, ndim = dtype, len(shape)
    passes = []
    # A final pass with a real result differs in kind from the arrays before it: it alone is written
    # to `out`.
    first_written = len(asked) - 1 if asked and asked[-1][0].takes_half else 0
    for number, (kind, n, axis) in enumerate(asked):
        if n is None:  # as an element of `s`, where it is deprecated
            n = (shape[axis] - 1) * 2 if kind.takes_half else shape[axis]
        given = _probe(kind, n, axis, norm, ndim, dtype)
        step = Pass(kind, normalize_axis_index(axis, ndim), operator.index(n))
        if out is not None and number >= first_written:
            _check_out(shape, dtype, step, out)
        dtype = given
        between = between if kind.takes_half else dtype
        shape = (*shape[: step.axis], step.given, *shape[step.axis + 1 :])
        passes.append(step)
    return Request(tuple(passes), norm, between, dtype)


_known = lru_cache(maxsize=1024)(_checked)


def _probe(kind: Kind, n: int, axis: int, norm: str | None, ndim: int, dtype: DType) -> DType:
    """Return the data type of a pass's result, or raise NumPy's error."""
    tiny = np.zeros((1,) * ndim, dtype)
    points = n if n < 1 else 2 - operator.index(n) % 2
    found: DType = getattr(np.fft, kind.value)(tiny, points, axis, norm).dtype
    return found


def _check_out(shape: Shape, dtype: DType, step: Pass, out: DistArray | Array) -> None:
    """Raise NumPy's error about an `out` of a wrong shape or kind."""
    check_out(out)
    if out.ndim != len(shape) or out.shape[step.axis] != step.given:
        raise ValueError("output array has wrong shape.")
    # NumPy's hfft ignores `out`; its irfft checks `out`.
    function = np.fft.irfft if step.kind is Kind.HFFT else getattr(np.fft, step.kind.value)
    others = [
        (have, want)
        for dim, (have, want) in enumerate(zip(shape, out.shape, strict=True))
        if dim != step.axis
    ]
    if any(have not in (1, want) for have, want in others):
        source, target = hollow(shape, dtype), hollow(out.shape, out.dtype)
        function(source, step.length, step.axis, out=target)
    small = [1] * len(shape)
    tiny = np.zeros(small, dtype)
    points = 2 - step.length % 2
    small[step.axis] = step._replace(length=points).given
    function(tiny, points, step.axis, out=np.zeros(small, out.dtype))
