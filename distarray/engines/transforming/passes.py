"""What NumPy's Fourier transforms are asked for, as passes along one dimension each.

NumPy is asked to do each pass on a tiny array, so that what it refuses is refused in its words,
and the data types are those it gives; all before anything is sent.
"""

import operator
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray
from distarray.array.probes import hollow
from distarray.plan.fourier import Kind, Pass

__all__ = ["Request", "along_axes", "along_axis"]

#: A pass as the caller asks for it: n and axis are whatever was given.
_Asked = tuple[Kind, Any, Any]


class Request(NamedTuple):
    """A transform that has been checked.

    Attributes
    ----------
    passes : tuple of Pass
        In NumPy's order.
    norm : str or None
        As NumPy's.
    between, dtype : dtype
        Of what is between the passes, and of the result.
    """

    passes: tuple[Pass, ...]
    norm: Any
    between: np.dtype[Any]
    dtype: np.dtype[Any]

    def shape_of(self, shape: Sequence[int]) -> tuple[int, ...]:
        """The shape of the result."""
        extents = list(shape)
        for step in self.passes:
            extents[step.axis] = step.given
        return tuple(extents)


def along_axis(x: DistArray, kind: Kind, n: Any, axis: Any, norm: Any, out: Any) -> Request:
    """The request of a transform along one dimension."""
    if n is None:
        n = (x.shape[axis] - 1) * 2 if kind.takes_half else x.shape[axis]
    return _request(x, ((kind, n, axis),), norm, out)


def along_axes(
    x: DistArray, kinds: tuple[Kind, Kind], s: Any, axes: Any, norm: Any, out: Any
) -> Request:
    """The request of a transform along several dimensions.

    Parameters
    ----------
    x : DistArray
        The operand.
    kinds : tuple of Kind
        What is done along all dimensions but the last, and along the last.
    s, axes, norm
        As NumPy's.
    out : DistArray or ndarray or None
        Receives the result.
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
    shape: tuple[int, ...], s: Any, axes: Any, takes_half: bool
) -> tuple[list[Any], list[Any]]:
    """The length of each transform and its dimension, by NumPy's rules."""
    shapeless = s is None
    if shapeless:
        extents = list(shape) if axes is None else [int(n) for n in np.take(shape, axes)]
    else:
        extents = list(s)
    if axes is None:
        if not shapeless:
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
    if takes_half and shapeless:
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
    warnings.warn(text, DeprecationWarning, stacklevel=6)


def _request(x: DistArray, asked: tuple[_Asked, ...], norm: Any, out: Any) -> Request:
    if out is not None or not (norm is None or type(norm) is str):
        return _checked(x.shape, x.dtype, asked, norm, out)
    for _, n, axis in asked:
        if type(n) is not int or type(axis) is not int:
            return _checked(x.shape, x.dtype, asked, norm)
    return _known(x.shape, x.dtype, asked, norm)


def _checked(
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    asked: tuple[_Asked, ...],
    norm: Any,
    out: Any = None,
) -> Request:
    between, ndim = dtype, len(shape)
    passes = []
    # Real results need an array of another kind than what is between: it alone goes into `out`.
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


def _probe(
    kind: Kind, n: Any, axis: Any, norm: Any, ndim: int, dtype: np.dtype[Any]
) -> np.dtype[Any]:
    """The data type that a pass gives; or NumPy's exception."""
    tiny = np.zeros((1,) * ndim, dtype)
    points = n if n < 1 else 2 - operator.index(n) % 2
    return getattr(np.fft, kind.value)(tiny, points, axis, norm).dtype  # type: ignore[no-any-return]


def _check_out(shape: tuple[int, ...], dtype: np.dtype[Any], step: Pass, out: Any) -> None:
    """Raise what NumPy raises about an `out` of a wrong shape or kind."""
    if not isinstance(out, (DistArray, np.ndarray)) or (
        isinstance(out, DistArray) and isinstance(out.block, np.generic)
    ):
        raise TypeError("return arrays must be of ArrayType")
    if out.ndim != len(shape) or out.shape[step.axis] != step.given:
        raise ValueError("output array has wrong shape.")
    # NumPy's halves of spectra are conjugated only after they are written.
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
