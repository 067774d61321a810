"""fftshift and ifftshift: rolls by half the extent of each dimension."""

from __future__ import annotations

from collections.abc import Callable
from operator import neg, pos
from typing import Any

import numpy as np

from distarray.array import as_distarray, implements
from distarray.ops.rearranging import roll
from distarray.typing import ArrayLike, Axes

__all__ = ["fftshift", "ifftshift"]


def _shifted(sign: Callable[[int], int], x: ArrayLike, axes: Axes) -> Any:
    x = as_distarray(x)
    if axes is None:
        axes = tuple(range(x.ndim))
        return roll(x, [sign(extent // 2) for extent in x.shape], axes)
    if isinstance(axes, (int, np.integer)):
        return roll(x, sign(x.shape[axes] // 2), axes)
    return roll(x, [sign(x.shape[axis] // 2) for axis in axes], axes)


@implements(np.fft.fftshift, at=True, computes=False)
def fftshift(x: ArrayLike, axes: Axes = None) -> Any:
    """Move the zero frequency to the middle; see :func:`numpy.fft.fftshift`.

    Parameters
    ----------
    x : DistArray
        Any placement.
    axes : int or sequence of int, optional
        The dimensions to shift; all by default.

    Returns
    -------
    DistArray
        In the layout of `x`.

    Cost
    ----
    The cost of :func:`numpy.roll`: nothing along dimensions that are whole; along one that is cut,
    each rank sends its block to the rank half the mesh dimension away.
    """
    return _shifted(pos, x, axes)


@implements(np.fft.ifftshift, at=True, computes=False)
def ifftshift(x: ArrayLike, axes: Axes = None) -> Any:
    """Invert :func:`fftshift`, from which it differs for odd extents.

    See :func:`numpy.fft.ifftshift`; placements and cost are those of :func:`fftshift`.
    """
    return _shifted(neg, x, axes)
