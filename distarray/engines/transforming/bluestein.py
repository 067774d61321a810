"""Bluestein's algorithm: lengths without suitable factors, by transforms of another length.

Since j * k = (j**2 + k**2 - (k - j)**2) / 2, a transform is the operand times a chirp, exp(1j * pi
* j**2 / n), convolved with a chirp, times a chirp. The convolution consists of transforms of a
length that factors well. As the order of the frequencies does not matter in these transforms, each
needs only two redistributions. (L. I. Bluestein, IEEE Trans. AU-18, 1970.)
"""

from types import ModuleType
from typing import Any

import numpy as np

from distarray.array import DistArray, empty, to_layout
from distarray.array.views import everything
from distarray.comm import DeviceMesh
from distarray.engines.assembling import fill_parts
from distarray.engines.transforming.four_steps import Grid, fitted, fitted_view
from distarray.engines.transforming.twiddles import progression, roots
from distarray.layout import Cut, Layout
from distarray.plan.fourier import Kind
from distarray.plan.lengths import Split, good_length, split_length
from distarray.typing import Array

__all__ = ["transformed_awkward"]

#: Elements of the chirp that are computed at a time.
TILE = 1 << 14


def transformed_awkward(
    x: DistArray, kind: Kind, n: int, norm: str | None, dtype: np.dtype[Any]
) -> DistArray:
    """Transform along the last dimension, which is cut; the result is cut, too.

    Parameters
    ----------
    x : DistArray
        The operand, without pending folds.
    kind : Kind
        The transform.
    n : int
        The number of points.
    norm : str or None
        NumPy's `norm` of the complex transform that computes `kind`.
    dtype : dtype
        The data type to compute in; complex.
    """
    cut = x.layout.cuts[-1]
    chunked = Cut.chunked(n, cut.mesh_dims, cut.radix)
    if kind.takes_half:
        given = x if kind is Kind.IRFFT else x.like(np.conjugate(x.block))
        spectrum = _whole_spectrum(given, n, chunked, dtype)
        result = _convolved(spectrum, n, 1, dtype)
        result = _scaled(result, n, norm, inverse=True)
        return result.like(result.block.real.copy())
    inverse = kind is Kind.IFFT
    result = _convolved(fitted(x, n, chunked), n, 1 if inverse else -1, dtype)
    result = _scaled(result, n, norm, inverse)
    if not kind.gives_half:
        return result
    half = fitted_view(result, n // 2 + 1)
    return half if kind is Kind.RFFT else half.like(np.conjugate(half.block))


def _scaled(x: DistArray, n: int, norm: str | None, inverse: bool) -> DistArray:
    """Scale the transform in place."""
    real = x.block.real.dtype.type
    if norm == "ortho":
        x.block /= np.sqrt(real(n))
    elif inverse != (norm == "forward"):
        x.block /= real(n)
    return x


def _whole_spectrum(x: DistArray, n: int, cut: Cut, dtype: np.dtype[Any]) -> DistArray:
    """Compute all n frequencies of real numbers from the first half of the frequencies."""
    extent = n // 2 + 1
    layout = x.layout.replace(-1, cut)
    result = empty(layout, dtype, x.mesh)
    result.block[...] = 0
    x = fitted_view(x, extent)
    lead = everything(x)[:-1]
    origin = (0,) * len(lead)
    parts = [((*origin, 0), x)]
    mirrored = min(x.shape[-1], (n + 1) // 2) - 1  # X[n - k] is the conjugate of X[k]
    if mirrored > 0:
        other = x.like(np.conjugate(x.block)).sliced((*lead, (mirrored, -1, mirrored)))
        parts.append(((*origin, n - mirrored), other))
    fill_parts(result, parts)
    # Frequencies without a counterpart are real; NumPy ignores their imaginary parts.
    for place in (0, n // 2) if n % 2 == 0 else (0,):
        alone = result.sliced((*lead, (place, 1, 1)))
        alone.block.imag[...] = 0
    return result


def _convolved(x: DistArray, n: int, sign: int, dtype: np.dtype[Any]) -> DistArray:
    """Compute ``sum(x[j] * exp(sign * 2j * pi * j * k / n))`` for all k."""
    mesh, cut = x.mesh, x.layout.cuts[-1]
    start, stop = x.layout.section(mesh.coords)[-1]
    chirp = _chirp(start, stop, n, sign, dtype, mesh.xp)
    length = good_length(2 * n - 1, cut.parts)
    split = split_length(length, cut.parts) or Split(length, 1, 0.0)
    grid = Grid(split.rows, split.columns, cut.mesh_dims, cut.radix)
    # One name for all intermediate arrays: each is more than twice as large as `x`, and is freed.
    y = fitted(x.like(x.block * chirp), length, grid.flat)
    y = grid.forward(grid.by_rows(y), Kind.FFT, None)
    y.block *= _kernel(grid, n, -sign, dtype, mesh).block
    y = grid.flattened(grid.backward(y, Kind.IFFT, None))
    y = to_layout(fitted_view(y, n), x.layout)
    return y.like(y.block * chirp)


def _kernel(grid: Grid, n: int, sign: int, dtype: np.dtype[Any], mesh: DeviceMesh) -> DistArray:
    """Transform the convolution's chirp; the frequencies are out of order like the operand's."""
    layout = Layout.from_cuts([grid.flat], mesh.shape)
    line = empty(layout, dtype, mesh)
    start, stop = layout.section(mesh.coords)[-1]
    line.block[...] = 0
    # The chirp's indices are 0 to n - 1, and negative indices, stored at the end.
    ahead = max(min(stop, n) - start, 0)
    if ahead:
        line.block[:ahead] = _chirp(start, start + ahead, n, sign, dtype, mesh.xp)
    first = max(start, grid.length - n + 1)
    if first < stop:
        behind = _chirp(grid.length - stop + 1, grid.length - first + 1, n, sign, dtype, mesh.xp)
        line.block[first - start :] = behind[::-1]
    return grid.forward(grid.by_rows(line), Kind.FFT, None)


def _chirp(start: int, stop: int, n: int, sign: int, dtype: np.dtype[Any], xp: ModuleType) -> Array:
    """Compute ``exp(sign * 1j * pi * j**2 / n)`` for j from start to stop."""
    found: Array = xp.empty(max(stop - start, 0), dtype)
    steps = xp.arange(min(TILE, len(found)))
    squares = roots(steps * steps % (2 * n), 2 * n, dtype)
    for first in range(start, stop, TILE):
        # (first + i)**2 = first**2 + 2 * first * i + i**2
        part = found[first - start : first - start + TILE]
        part[...] = progression(2 * first, len(part), 2 * n, dtype, xp)
        part *= squares[: len(part)]
        part *= roots(xp.full(1, first * first % (2 * n)), 2 * n, dtype)
    return np.conjugate(found) if sign < 0 else found
