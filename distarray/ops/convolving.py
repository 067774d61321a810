"""convolve, correlate and sliding windows, of blocks and their neighbours' adjacent elements.

A correlation is the convolution with the reversed conjugate. The longer operand stays in place.
The shorter one is gathered (in pieces if it is long itself) and convolved with the section of the
longer one that this rank's outputs depend on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from distarray.array import (
    DistArray,
    Objects,
    as_distarray,
    common_mesh,
    default_layout,
    implements,
    to_layout,
    wrap,
)
from distarray.array.one_rank import Alone
from distarray.array.portable import conjugated, on_host
from distarray.array.probes import tiny
from distarray.engines.halos import spanning
from distarray.layout import Cut, Layout
from distarray.layout.cut import Interval
from distarray.typing import Array, ArrayLike, DTypeLike

__all__ = ["convolve", "correlate"]


#: Number of elements of the shorter operand that every rank holds at a time.
PIECE = 1 << 16
#: Operands with fewer bytes in total are gathered on every rank for NumPy's own function.
REPLICATED_BELOW = 1 << 14


@implements(np.convolve, alone=Alone(), objects=Objects.GATHER)
def convolve(a: ArrayLike, v: ArrayLike, mode: str = "full") -> Any:
    """Convolve two sequences; see :func:`numpy.convolve`.

    Parameters
    ----------
    a, v : array_like
        The longer operand stays in place; every rank gets the shorter one.
    mode : {"full", "same", "valid"}
        As in :func:`numpy.convolve`.

    Returns
    -------
    DistArray
        Cut along the mesh dimensions that cut the longer operand.

    Cost
    ----
    The cost of gathering the shorter operand, `PIECE` elements at a time, and for each piece one
    message of about its length between neighbouring ranks. Short operands are gathered.

    Notes
    -----
    Integers agree with NumPy bit for bit; floating-point results agree only up to rounding on
    ranks that hold an end of an operand.
    """
    return _convolved(np.convolve, a, v, mode)


@implements(np.correlate, alone=Alone(), objects=Objects.GATHER)
def correlate(a: ArrayLike, v: ArrayLike, mode: str = "valid") -> Any:
    """Correlate two sequences; see :func:`numpy.correlate` and :func:`convolve`.

    Cost
    ----
    The cost of :func:`convolve`.
    """
    return _convolved(np.correlate, a, v, mode)


def _convolved(function: Callable[..., Any], a: ArrayLike, v: ArrayLike, mode: str) -> Any:
    mesh = common_mesh(a, v)
    long, short = as_distarray(a, mesh), as_distarray(v, mesh)
    # Raises NumPy's errors about empty operands, dimensions and mode; returns the result's dtype.
    kind = function(*[tiny(x.shape, x.dtype) for x in (long, short)], mode).dtype
    if long.nbytes + short.nbytes < REPLICATED_BELOW or not long.ndim or not short.ndim:
        return as_distarray(function(long.full(), short.full(), mode), mesh)
    backwards = function is np.correlate
    if backwards:
        short = conjugated(short)[::-1]
    outputs = _outputs(len(long), len(short), mode, backwards)
    if len(long) < len(short):
        long, short = short, long
    if long.layout.is_replicated:
        long = to_layout(long, default_layout(long.shape, long.itemsize, mesh))
    return _Outputs(outputs, len(long), len(short), long.layout.cuts[0], kind).of(long, short)


def _outputs(n: int, m: int, mode: str, backwards: bool) -> Interval:
    """Return the section of the full convolution that a mode keeps."""
    short, long = min(n, m), max(n, m)
    kind = _MODES.get(mode, mode)
    if kind == 2:
        return 0, n + m - 1
    if kind == 0:
        return short - 1, long
    # If the number of outputs to drop is odd, one side drops one more. Correlating a shorter
    # operand with a longer one reverses the result, so the other side drops it there.
    start = short // 2 if backwards and n < m else short - 1 - short // 2
    return start, start + long


_MODES = {"valid": 0, "same": 1, "full": 2}


class _Outputs(NamedTuple):
    """Section of the full convolution of a long operand with a short one.

    Attributes
    ----------
    kept : tuple of int
        Start and stop of the section.
    long, short : int
        Lengths of the operands.
    source : Cut
        Cut of the long operand.
    dtype : dtype
        Data type of the result.
    """

    kept: Interval
    long: int
    short: int
    source: Cut
    dtype: np.dtype[Any]

    @property
    def cut(self) -> Cut:
        """Cut of the result."""
        return Cut.chunked(self.kept[1] - self.kept[0], self.source.mesh_dims, self.source.radix)

    def of(self, a: DistArray, v: DistArray) -> DistArray:
        """Compute the outputs from the long operand and the short one."""
        mesh = a.mesh
        layout = Layout.from_cuts([self.cut], mesh.shape)
        result = mesh.xp.zeros(layout.local_shape(mesh.coords), self.dtype)
        for start in range(0, self.short, PIECE):
            piece = v[start : start + PIECE]
            replicated = to_layout(piece, Layout.replicated(piece.shape, mesh.shape)).block
            part = self._with_piece(a, replicated, start)
            if start == 0:
                result = part
            else:
                result += part
        return wrap(result, layout, mesh)

    def _with_piece(self, a: DistArray, piece: Array, first: int) -> Array:
        """Compute this rank's outputs for the piece of the short operand from index `first` on."""
        last = first + len(piece) - 1 if a.mesh.coords is not None else first

        def needs(part: int) -> Interval:
            start, stop = self.cut.interval(part)
            start, stop = start + self.kept[0], stop + self.kept[0]
            low = min(max(0, start - last), self.long)
            return (low, max(low, min(self.long, stop - first))) if start < stop else (0, 0)

        def askers(start: int, stop: int) -> range:
            low, high = start + first - self.kept[0], stop + last - self.kept[0]
            extent = self.kept[1] - self.kept[0]
            return self.cut.owners(max(0, low), min(extent, high)) if start < stop else range(0)

        segment = spanning(a, 0, needs, askers)
        coords = a.mesh.coords
        shape = Layout.from_cuts([self.cut], a.mesh.shape).local_shape(coords)
        if coords is None or not shape[0] or not segment.size:
            nothing: Array = a.mesh.xp.zeros(shape, self.dtype)
            return nothing
        part = self.cut.part(coords)
        begin = self.cut.interval(part)[0] + self.kept[0]
        return _stretch(segment, piece, begin - needs(part)[0] - first, shape[0], self.dtype)


def _stretch(segment: Array, piece: Array, start: int, count: int, dtype: DTypeLike) -> Array:
    """Return outputs from `start` on of the full convolution of two arrays; zero outside of it."""
    inner = len(piece) - 1
    if start == inner and len(segment) == count + inner:
        valid: Array = on_host(np.convolve, segment, piece, "valid")
        return valid.astype(dtype, copy=False)
    full: Array = on_host(np.convolve, segment, piece, "full")
    result: Array = np.zeros(count, dtype, like=full)
    low, high = max(0, start), min(len(full), start + count)
    if low < high:
        result[low - start : high - start] = full[low:high]
    return result
