"""Window functions and sample frequencies, with NumPy's bits; each rank makes its own part.

None of them communicates.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, wrap
from distarray.array.placing import Placements, as_shape, place, plain
from distarray.comm import DeviceMesh
from distarray.ops.creation import empty, ones
from distarray.ops.ranges import arange

__all__ = ["bartlett", "blackman", "fftfreq", "hamming", "hanning", "kaiser", "rfftfreq"]


def _window(
    samples: Callable[[Any, Any], Any],
    M: Any,
    mesh: DeviceMesh | None,
    placements: Placements | None,
) -> DistArray:
    """A window of `M` points, from a function of ``2 * position - (M - 1)`` and ``M - 1``."""
    points = np.array([0.0, plain(M)])[1]
    if points < 1:
        return empty(0, points.dtype, mesh=mesh, placements=placements)
    if points == 1:
        return ones(1, points.dtype, mesh=mesh, placements=placements)
    n = arange(1 - points, points, 2, mesh=mesh, placements=placements)
    return n.like(samples(n.block, points - 1))


def bartlett(
    M: Any, *, mesh: DeviceMesh | None = None, placements: Placements | None = None
) -> DistArray:
    """The triangular window; see :func:`numpy.bartlett`."""
    return _window(
        lambda n, last: np.where(np.less_equal(n, 0), 1 + n / last, 1 - n / last),
        M,
        mesh,
        placements,
    )


def blackman(
    M: Any, *, mesh: DeviceMesh | None = None, placements: Placements | None = None
) -> DistArray:
    """The Blackman window; see :func:`numpy.blackman`."""

    def samples(n: Any, last: Any) -> Any:
        return 0.42 + 0.5 * np.cos(np.pi * n / last) + 0.08 * np.cos(2.0 * np.pi * n / last)

    return _window(samples, M, mesh, placements)


def hamming(
    M: Any, *, mesh: DeviceMesh | None = None, placements: Placements | None = None
) -> DistArray:
    """The Hamming window; see :func:`numpy.hamming`."""
    return _window(lambda n, last: 0.54 + 0.46 * np.cos(np.pi * n / last), M, mesh, placements)


def hanning(
    M: Any, *, mesh: DeviceMesh | None = None, placements: Placements | None = None
) -> DistArray:
    """The Hann window; see :func:`numpy.hanning`."""
    return _window(lambda n, last: 0.5 + 0.5 * np.cos(np.pi * n / last), M, mesh, placements)


def kaiser(
    M: Any, beta: Any, *, mesh: DeviceMesh | None = None, placements: Placements | None = None
) -> DistArray:
    """The Kaiser window; see :func:`numpy.kaiser`."""
    _, points, shape = np.array([0.0, plain(M), plain(beta)])
    if points == 1:
        return ones(1, points.dtype, mesh=mesh, placements=placements)
    n = arange(0, points, mesh=mesh, placements=placements)
    middle = (points - 1) / 2.0
    argument = shape * np.sqrt(1 - ((n.block - middle) / middle) ** 2.0)
    return n.like(np.i0(argument) / np.i0(shape)[()])


def fftfreq(
    n: Any,
    d: Any = 1.0,
    device: str | None = None,
    *,
    dtype: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """The sample frequencies of a Fourier transform; see :func:`numpy.fft.fftfreq`.

    The keyword `dtype` is the array API standard's.
    """
    count, scale = _scale(n, d)
    shape, turn = as_shape(count), (count - 1) // 2 + 1
    layout, mesh = place(shape, int, mesh, placements, device)
    ((low, high),) = layout.section(mesh.coords)
    middle = min(max(low, turn), high)
    numbers = np.concatenate([np.arange(low, middle), np.arange(middle - count, high - count)])
    return wrap(mesh.asarray(_cast(numbers * scale, dtype)), layout, mesh)


def rfftfreq(
    n: Any,
    d: Any = 1.0,
    device: str | None = None,
    *,
    dtype: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """The sample frequencies of a real Fourier transform; see :func:`numpy.fft.rfftfreq`.

    The keyword `dtype` is the array API standard's.
    """
    count, scale = _scale(n, d)
    line = arange(0, count // 2 + 1, dtype=int, device=device, mesh=mesh, placements=placements)
    return line.like(_cast(line.block * scale, dtype))


def _cast(block: Any, dtype: Any) -> Any:
    return block if dtype is None else block.astype(dtype, copy=False)


def _scale(n: Any, d: Any) -> tuple[int, Any]:
    n, d = plain(n), plain(d)
    if not isinstance(n, (int, np.integer)):
        raise ValueError("n should be an integer")
    return int(n), 1.0 / (n * d)
