"""Window functions and sample frequencies, with NumPy's bits.

Each rank makes its own block; nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, wrap
from distarray.array.placing import as_shape, place, plain
from distarray.comm import DeviceMesh
from distarray.ops.creation import empty, ones
from distarray.ops.ranges import arange
from distarray.typing import Array, DTypeLike, Placements

__all__ = ["bartlett", "blackman", "fftfreq", "hamming", "hanning", "kaiser", "rfftfreq"]


def _window(
    samples: Callable[[Any, Any], Any],
    M: float | DistArray,
    mesh: DeviceMesh | None,
    placements: Placements | None,
) -> DistArray:
    """Make a window of `M` points from a function of ``2 * position - (M - 1)`` and ``M - 1``."""
    points = np.array([0.0, plain(M)])[1]
    if points < 1:
        return empty(0, points.dtype, mesh=mesh, placements=placements)
    if points == 1:
        return ones(1, points.dtype, mesh=mesh, placements=placements)
    n = arange(1 - points, points, 2, mesh=mesh, placements=placements)
    return n.like(samples(n.block, points - 1))


def bartlett(
    M: float | DistArray, *, mesh: DeviceMesh | None = None, placements: Placements | None = None
) -> DistArray:
    """Return the triangular window; see :func:`numpy.bartlett`."""
    return _window(
        lambda n, last: np.where(np.less_equal(n, 0), 1 + n / last, 1 - n / last),
        M,
        mesh,
        placements,
    )


def blackman(
    M: float | DistArray, *, mesh: DeviceMesh | None = None, placements: Placements | None = None
) -> DistArray:
    """Return the Blackman window; see :func:`numpy.blackman`."""

    def samples(n: Array, last: float) -> Any:
        return 0.42 + 0.5 * np.cos(np.pi * n / last) + 0.08 * np.cos(2.0 * np.pi * n / last)

    return _window(samples, M, mesh, placements)


def hamming(
    M: float | DistArray, *, mesh: DeviceMesh | None = None, placements: Placements | None = None
) -> DistArray:
    """Return the Hamming window; see :func:`numpy.hamming`."""
    return _window(lambda n, last: 0.54 + 0.46 * np.cos(np.pi * n / last), M, mesh, placements)


def hanning(
    M: float | DistArray, *, mesh: DeviceMesh | None = None, placements: Placements | None = None
) -> DistArray:
    """Return the Hann window; see :func:`numpy.hanning`."""
    return _window(lambda n, last: 0.5 + 0.5 * np.cos(np.pi * n / last), M, mesh, placements)


def kaiser(
    M: float | DistArray,
    beta: float | DistArray,
    *,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Return the Kaiser window; see :func:`numpy.kaiser`."""
    _, points, shape = np.array([0.0, plain(M), plain(beta)])
    if points == 1:
        return ones(1, points.dtype, mesh=mesh, placements=placements)
    n = arange(0, points, mesh=mesh, placements=placements)
    middle = (points - 1) / 2.0
    argument = shape * np.sqrt(1 - ((n.block - middle) / middle) ** 2.0)
    return n.like(np.i0(argument) / np.i0(shape)[()])


def fftfreq(
    n: int | DistArray,
    d: float | DistArray = 1.0,
    device: str | None = None,
    *,
    dtype: DTypeLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Return the sample frequencies of a Fourier transform; see :func:`numpy.fft.fftfreq`.

    The keyword `dtype` is defined by the array API standard.
    """
    count, scale = _scale(n, d)
    shape, turn = as_shape(count), (count - 1) // 2 + 1
    layout, mesh = place(shape, int, mesh, placements, device)
    ((low, high),) = layout.section(mesh.coords)
    middle = min(max(low, turn), high)
    numbers = np.concatenate([np.arange(low, middle), np.arange(middle - count, high - count)])
    return wrap(mesh.asarray(_cast(numbers * scale, dtype)), layout, mesh)


def rfftfreq(
    n: int | DistArray,
    d: float | DistArray = 1.0,
    device: str | None = None,
    *,
    dtype: DTypeLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Return the sample frequencies of a real Fourier transform; see :func:`numpy.fft.rfftfreq`.

    The keyword `dtype` is defined by the array API standard.
    """
    count, scale = _scale(n, d)
    line = arange(0, count // 2 + 1, dtype=int, device=device, mesh=mesh, placements=placements)
    return line.like(_cast(line.block * scale, dtype))


def _cast(block: Array, dtype: DTypeLike | None) -> Any:
    return block if dtype is None else block.astype(dtype, copy=False)


def _scale(n: int | DistArray, d: float | DistArray) -> tuple[int, Any]:
    n, d = plain(n), plain(d)
    if not isinstance(n, (int, np.integer)):
        raise ValueError("n should be an integer")
    return int(n), 1.0 / (n * d)
