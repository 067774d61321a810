"""The fourteen Fourier transforms of :mod:`numpy.fft`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.small import bounded
from distarray.engines.transforming.passes import along_axes, along_axis
from distarray.engines.transforming.transform import transform
from distarray.layout import Fold
from distarray.plan.fourier import Kind
from distarray.typing import ArrayLike, Function, UfuncOut

__all__ = [
    "fft",
    "fft2",
    "fftn",
    "hfft",
    "ifft",
    "ifft2",
    "ifftn",
    "ihfft",
    "irfft",
    "irfft2",
    "irfftn",
    "rfft",
    "rfft2",
    "rfftn",
]

#: Direction that is scaled, and how; the inverse by default.
Norm: TypeAlias = Literal["backward", "ortho", "forward"] | None
#: Dimensions of several transforms, or their lengths.
Dims: TypeAlias = Sequence[int] | None

#: A transform of a sum is the sum of the transforms.
_LINEAR = (Fold.SUM,)


def _operands(a: ArrayLike, out: UfuncOut) -> tuple[DistArray, Any]:
    given: Any = out[0] if type(out) is tuple and len(out) == 1 else out
    return as_distarray(a, common_mesh(a, given)), given


def _one(kind: Kind, a: ArrayLike, n: int | None, axis: int, norm: Norm, out: UfuncOut) -> Any:
    x, into = _operands(a, out)
    return transform(x, along_axis(x, kind, n, axis, norm, into), into)


def _several(
    kinds: tuple[Kind, Kind], a: ArrayLike, s: Dims, axes: Dims, norm: Norm, out: UfuncOut
) -> Any:
    x, into = _operands(a, out)
    return transform(x, along_axes(x, kinds, s, axes, norm, into), into)


_COMPLEX, _INVERSE = (Kind.FFT, Kind.FFT), (Kind.IFFT, Kind.IFFT)
_REAL, _REAL_INVERSE = (Kind.FFT, Kind.RFFT), (Kind.IFFT, Kind.IRFFT)


def _lengthened(a: ArrayLike, n: int | Dims = None, *_: Any, s: Dims = None, **__: Any) -> int:
    """Bound a transform's elements; a large bound for empty input: NumPy's irfft reads one."""
    asked = s if n is None else n
    lengths = asked if isinstance(asked, (tuple, list)) else (asked,)
    return np.size(a) * prod([length or 1 for length in lengths]) or 1 << 62


def _registered(numpy_function: Callable[..., Any]) -> Callable[[Function], Function]:
    """Register the decorated function for a transform of NumPy's."""
    small = bounded(numpy_function, _lengthened)
    return implements(numpy_function, through=_LINEAR, at=True, small=small)


@_registered(np.fft.fft)
def fft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Compute the discrete Fourier transform along a dimension.

    Parameters
    ----------
    a : DistArray
        Any placement; small sums are transformed while pending if `axis` is whole.
    n : int, optional
        Length of the transform; the dimension is cropped or padded with zeros to it.
    axis : int
        The dimension.
    norm : {"backward", "ortho", "forward"}, optional
        Direction that is scaled, and how.
    out : DistArray or ndarray, optional
        Receives the result.

    Returns
    -------
    DistArray
        In the layout of `a` if the dimension is whole. If it is cut, another dimension is cut
        instead; if none is long enough, the same one. Small arrays may become replicated.

    Cost
    ----
    None if the dimension is whole; else one redistribution. If there is no other dimension to cut:
    three redistributions, each of which sends all but one p-th of the array, and twice the memory
    of the block. Lengths without suitable factors (large primes) are transformed by means of
    transforms of more than twice the length, which takes about five times as long (Bluestein).
    Under ``config.reproducible`` an array with no other dimension to cut is gathered on every
    rank, since a line transformed in sections does not give NumPy's last bits.

    Raises
    ------
    ValueError, TypeError, IndexError, AxisError
        NumPy's own, on all ranks.

    Notes
    -----
    Equal to NumPy's result up to rounding; bit for bit under ``config.reproducible``.

    References
    ----------
    Bailey, FFTs in external or hierarchical memory, J. Supercomputing 4, 1990. Bluestein, A linear
    filtering approach to the computation of discrete Fourier transform, IEEE AU-18, 1970.
    """
    return _one(Kind.FFT, a, n, axis, norm, out)


@_registered(np.fft.ifft)
def ifft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Compute the inverse transform along a dimension; see :func:`numpy.fft.ifft`.

    Placements and cost are those of :func:`fft`.
    """
    return _one(Kind.IFFT, a, n, axis, norm, out)


@_registered(np.fft.rfft)
def rfft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Compute half of the spectrum of real numbers along a dimension; see :func:`numpy.fft.rfft`.

    Placements and cost are those of :func:`fft`.
    """
    return _one(Kind.RFFT, a, n, axis, norm, out)


@_registered(np.fft.irfft)
def irfft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Compute real numbers from half of their spectrum; see :func:`numpy.fft.irfft`.

    Placements and cost are those of :func:`fft`.
    """
    return _one(Kind.IRFFT, a, n, axis, norm, out)


@_registered(np.fft.hfft)
def hfft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Compute the spectrum of a signal symmetric along a dimension; see :func:`numpy.fft.hfft`.

    Placements and cost are those of :func:`fft`.
    """
    return _one(Kind.HFFT, a, n, axis, norm, out)


@_registered(np.fft.ihfft)
def ihfft(
    a: ArrayLike, n: int | None = None, axis: int = -1, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Invert :func:`hfft`: compute half of the signal; see :func:`numpy.fft.ihfft`.

    Placements and cost are those of :func:`fft`.
    """
    return _one(Kind.IHFFT, a, n, axis, norm, out)


@_registered(np.fft.fftn)
def fftn(
    a: ArrayLike, s: Dims = None, axes: Dims = None, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Compute the discrete Fourier transform along several dimensions.

    Parameters
    ----------
    a : DistArray
        Any placement; small sums are transformed while pending if `axes` are whole.
    s : sequence of int, optional
        Length of each transform; the dimension is cropped or padded with zeros to it. -1 keeps the
        dimension's length.
    axes : sequence of int, optional
        The dimensions; all by default.
    norm : {"backward", "ortho", "forward"}, optional
        Direction that is scaled, and how.
    out : DistArray or ndarray, optional
        Receives the result.

    Returns
    -------
    DistArray
        Dimensions that are whole are transformed first. Then the cuts are moved to these, and the
        remaining dimensions are transformed. The result keeps the moved cuts, since moving them
        back would cost as much again. The inverse, or another transform, moves the cuts back.

    Cost
    ----
    None if all dimensions are whole. One redistribution for each set of dimensions that are made
    whole together: one on a 1-d mesh, one or two on a 2-d mesh, whichever is cheaper. Real
    transforms begin (or end) with the last dimension, and so need one more if it is cut.
    Dimensions too long for any other to be cut instead are transformed in steps, as by :func:`fft`.

    Raises
    ------
    ValueError, TypeError, IndexError, AxisError
        NumPy's own, on all ranks.

    Notes
    -----
    Equal to NumPy's result up to rounding; bit for bit under ``config.reproducible``, where the
    dimensions are transformed in NumPy's order.
    """
    return _several(_COMPLEX, a, s, axes, norm, out)


@_registered(np.fft.ifftn)
def ifftn(
    a: ArrayLike, s: Dims = None, axes: Dims = None, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Compute the inverse transform along several dimensions; see :func:`numpy.fft.ifftn`.

    Placements and cost are those of :func:`fftn`.
    """
    return _several(_INVERSE, a, s, axes, norm, out)


@_registered(np.fft.rfftn)
def rfftn(
    a: ArrayLike, s: Dims = None, axes: Dims = None, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Transform real numbers along several dimensions; see :func:`numpy.fft.rfftn`.

    Placements and cost are those of :func:`fftn`.
    """
    return _several(_REAL, a, s, axes, norm, out)


@_registered(np.fft.irfftn)
def irfftn(
    a: ArrayLike, s: Dims = None, axes: Dims = None, norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Invert :func:`rfftn`; see :func:`numpy.fft.irfftn`.

    Placements and cost are those of :func:`fftn`.
    """
    return _several(_REAL_INVERSE, a, s, axes, norm, out)


@_registered(np.fft.fft2)
def fft2(
    a: ArrayLike, s: Dims = None, axes: Dims = (-2, -1), norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Compute the discrete Fourier transform along two dimensions; see :func:`numpy.fft.fft2`.

    Placements and cost are those of :func:`fftn`.
    """
    return _several(_COMPLEX, a, s, axes, norm, out)


@_registered(np.fft.ifft2)
def ifft2(
    a: ArrayLike, s: Dims = None, axes: Dims = (-2, -1), norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Compute the inverse transform along two dimensions; see :func:`numpy.fft.ifft2`.

    Placements and cost are those of :func:`fftn`.
    """
    return _several(_INVERSE, a, s, axes, norm, out)


@_registered(np.fft.rfft2)
def rfft2(
    a: ArrayLike, s: Dims = None, axes: Dims = (-2, -1), norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Transform real numbers along two dimensions; see :func:`numpy.fft.rfft2`.

    Placements and cost are those of :func:`fftn`.
    """
    return _several(_REAL, a, s, axes, norm, out)


@_registered(np.fft.irfft2)
def irfft2(
    a: ArrayLike, s: Dims = None, axes: Dims = (-2, -1), norm: Norm = None, out: UfuncOut = None
) -> Any:
    """Invert :func:`rfft2`; see :func:`numpy.fft.irfft2`.

    Placements and cost are those of :func:`fftn`.
    """
    return _several(_REAL_INVERSE, a, s, axes, norm, out)
