"""Triangles of matrices, and the positions of their elements."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, implements, wrap
from distarray.array.one_rank import Alone
from distarray.engines.indexing.masks import coordinates
from distarray.layout import Layout
from distarray.ops.creation import triangle
from distarray.typing import ArrayLike

__all__ = ["diag_indices_from", "tril", "tril_indices_from", "triu", "triu_indices_from"]


def _triangle(function: Callable[..., Any], m: ArrayLike, k: int) -> DistArray:
    x: Any = as_distarray(m)
    if not x.ndim:
        function(np.zeros(()), k)  # NumPy's error
    if x.ndim == 1:
        x = np.broadcast_to(x, (x.size, x.size))
    np.tri(0, 0, k)  # NumPy's error
    rows, columns = [slice(*interval) for interval in x.layout.section(x.mesh.coords)[-2:]]
    if floor(k) == k:
        part = function(x.block, floor(k) + rows.start - columns.start)
        return wrap(part, x.layout, x.mesh)
    lower = function is np.tril
    chosen = triangle(rows, columns, x.shape[-1], k if lower else k - 1, bool, x.mesh.xp)
    part = np.where(chosen if lower else ~chosen, x.block, x.block.dtype.type(0))
    return wrap(part, x.layout, x.mesh)


@implements(np.tril, at=True, computes=False)
def tril(m: ArrayLike, k: int = 0) -> DistArray:
    """Return the elements on and below a diagonal of the last two axes; zero above it.

    Parameters
    ----------
    m : DistArray or array_like
        The matrices; a 1-d array is used for each row of a matrix.
    k : int
        Number of diagonals above the main one.

    Returns
    -------
    DistArray
        In the layout of `m`.

    Cost
    ----
    None.
    """
    return _triangle(np.tril, m, k)


@implements(np.triu, at=True, computes=False)
def triu(m: ArrayLike, k: int = 0) -> DistArray:
    """Return the elements on and above a diagonal of the last two axes; zero below it.

    Parameters
    ----------
    m : DistArray or array_like
        The matrices; a 1-d array is used for each row of a matrix.
    k : int
        Number of diagonals above the main one.

    Returns
    -------
    DistArray
        In the layout of `m`.

    Cost
    ----
    None.
    """
    return _triangle(np.triu, m, k)


def _indices(arr: ArrayLike, k: int, function: Callable[..., Any]) -> tuple[DistArray, ...]:
    """Return the positions of a triangle, each on the rank of its element of `arr`."""
    x = as_distarray(arr)
    if x.ndim != 2:
        raise ValueError("input array must be 2-d")
    layout = Layout.from_cuts(x.layout.cuts, x.layout.mesh_shape)
    ones = x.mesh.xp.ones(layout.local_shape(x.mesh.coords), bool)
    return coordinates(function(wrap(ones, layout, x.mesh), k))


@implements(np.tril_indices_from, computes=False, alone=Alone())
def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[DistArray, ...]:
    """Return the positions of the elements on and below a matrix's diagonal, in C order.

    Cost
    ----
    The cost of :func:`numpy.nonzero` of a mask in the layout of `arr`.
    """
    return _indices(arr, k, tril)


@implements(np.triu_indices_from, computes=False, alone=Alone())
def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[DistArray, ...]:
    """Return the positions of the elements on and above a matrix's diagonal, in C order.

    Cost
    ----
    The cost of :func:`numpy.nonzero` of a mask in the layout of `arr`.
    """
    return _indices(arr, k, triu)


@implements(np.diag_indices_from, computes=False)
def diag_indices_from(arr: ArrayLike) -> tuple[DistArray, ...]:
    """Return the positions of the main diagonal of an array whose dimensions are of one length.

    Cost
    ----
    None. The positions have the layout of the first dimension of `arr`.
    """
    x = as_distarray(arr)
    if x.ndim < 2:
        raise ValueError("input array must be at least 2-d")
    if len(set(x.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    layout = Layout.from_cuts(x.layout.cuts[:1], x.layout.mesh_shape)
    ((start, stop),) = layout.section(x.mesh.coords)
    return (wrap(x.mesh.xp.arange(start, stop), layout, x.mesh),) * x.ndim
