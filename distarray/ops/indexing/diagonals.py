"""Diagonals: read as views where the layout allows, written and made on their ranks."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, common_mesh, default_layout, implements, wrap
from distarray.array.base import raw_block
from distarray.array.one_rank import Alone
from distarray.array.portable import make_read_only, refuse_read_only
from distarray.array.sharing import derived
from distarray.array.small import bounded
from distarray.array.storage import vacant
from distarray.engines.diagonals import diagonal_of
from distarray.engines.indexing.located import block_in
from distarray.engines.indexing.values import as_values
from distarray.engines.reshaping import in_line
from distarray.layout import Cut, Layout
from distarray.typing import Array, ArrayLike

__all__ = ["diag", "diagflat", "diagonal", "diagonal_axes", "fill_diagonal"]


@implements(np.linalg.diagonal, at=True, computes=False)
def last_diagonal(x: ArrayLike, /, *, offset: int = 0) -> DistArray:
    """Return the diagonals of the last two dimensions; see :func:`diagonal`."""
    return diagonal(x, offset, -2, -1)


@implements(np.diagonal, at=True, computes=False)
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> DistArray:
    """Return the diagonal of two axes, along a new last axis.

    Parameters
    ----------
    a : DistArray or array_like
        At least two dimensions.
    offset : int
        Number of diagonals above the main one.
    axis1, axis2 : int
        The two axes.

    Returns
    -------
    DistArray
        A view, read-only as NumPy's; its elements stay on their ranks. It is cut as the axis that
        is cut.

    Cost
    ----
    None; the cost of :func:`~distarray.engines.diagonals.merged` if both axes are cut.
    """
    x = as_distarray(a)
    first, second = diagonal_axes(x.ndim, axis1, axis2)
    if _geometry(x.layout, offset, first, second) is None:
        result = diagonal_of(x, offset, first, second)
        make_read_only(raw_block(result))
        return result
    return derived(x, lambda y: _diagonal_of(y, offset, first, second))


def _diagonal_of(x: DistArray, offset: int, first: int, second: int) -> DistArray | None:
    """Return a diagonal of blocks; at most one of the two axes is cut."""
    layout, mesh = x.layout, x.mesh
    target = _geometry(layout, offset, first, second)
    if target is None:
        return None
    section = layout.section(mesh.coords)
    shift = offset + section[first][0] - section[second][0]
    if layout.holds(mesh.coords):
        block = np.diagonal(x.block, shift, first, second)
    else:
        block = vacant(x.block, target, x.mesh)
        make_read_only(block)
    return wrap(block, target, mesh)


def diagonal_axes(ndim: int, axis1: int, axis2: int) -> tuple[int, int]:
    """Return the two axes of a diagonal, counted from the front."""
    if ndim < 2:
        raise ValueError("diag requires an array of at least two dimensions")
    first = normalize_axis_index(axis1, ndim, "axis1")
    second = normalize_axis_index(axis2, ndim, "axis2")
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    return first, second


@lru_cache(maxsize=1024)
def _geometry(layout: Layout, offset: int, first: int, second: int) -> Layout | None:
    """Return the layout of a diagonal; None if both of its axes are cut."""
    down, right = max(0, -offset), max(0, offset)
    length = max(0, min(layout.shape[first] - down, layout.shape[second] - right))
    cuts = layout.cuts[first], layout.cuts[second]
    if cuts[0].parts > 1 and cuts[1].parts > 1:
        return None
    cut = cuts[1].view(right, 1, length) if cuts[1].parts > 1 else cuts[0].view(down, 1, length)
    rest = [layout.cuts[d] for d in range(layout.ndim) if d not in (first, second)]
    return layout.with_cuts([*rest, cut])


def _of_square(v: ArrayLike, k: Any = 0) -> int:
    """Count the elements of the matrix with a given diagonal."""
    return int((np.size(v) + abs(k)) ** 2)


@implements(np.diag, at=True, computes=False, alone=Alone(), small=bounded(np.diag, _of_square))
def diag(v: ArrayLike, k: int = 0) -> DistArray:
    """Return the diagonal of a matrix, or the matrix with a given diagonal.

    Parameters
    ----------
    v : DistArray or array_like
        Of two dimensions or one.
    k : int
        Number of diagonals above the main one.

    Returns
    -------
    DistArray
        A diagonal as from :func:`numpy.diagonal`. A matrix has its rows cut as `v` is; over all
        ranks if `v` is replicated and the matrix is large.

    Cost
    ----
    For a matrix, none if its diagonal is replicated or the main one; otherwise one exchange of at
    most `k` elements per rank. For a diagonal, the cost of :func:`numpy.diagonal`.
    """
    x: Any = as_distarray(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ValueError("Input must be 1- or 2-d.")
    x, k = x.plain(), operator.index(k)
    mesh, size = x.mesh, x.size + abs(k)
    cut, down = x.layout.cuts[0], max(0, -k)
    if not cut.mesh_dims:
        rows = default_layout((size, size), x.itemsize, mesh).cuts[0]
    else:
        rows = cut if not k else Cut.chunked(size, cut.mesh_dims, cut.radix)
    layout = Layout.from_cuts([rows, Cut.whole(size)], mesh.shape)
    wanted = Layout.from_cuts([rows.view(down, 1, x.size)], mesh.shape)
    values = block_in(x, wanted, mesh)
    block = mesh.xp.zeros(layout.local_shape(mesh.coords), x.dtype)
    first = wanted.section(mesh.coords)[0][0] + down
    place = mesh.xp.arange(first, first + len(values))
    block[place - layout.section(mesh.coords)[0][0], place + k] = values
    return wrap(block, layout, mesh)


@implements(np.diagflat, computes=False, alone=Alone(), small=False)
def diagflat(v: ArrayLike, k: int = 0) -> DistArray:
    """Put the elements of an array, in C order, on a matrix's diagonal, as :func:`numpy.diag`.

    Cost
    ----
    The cost of :func:`numpy.ravel` and :func:`numpy.diag`.
    """
    result: DistArray = diag(in_line(as_distarray(v)), k)
    return result


@implements(np.fill_diagonal, writes=0, at=True, alone=Alone())
def fill_diagonal(a: DistArray, val: ArrayLike, wrap: bool = False) -> None:
    """Write into the main diagonal, in place.

    Parameters
    ----------
    a : DistArray
        At least two dimensions, all of one length if there are more than two.
    val : scalar or array_like or DistArray
        Values, taken in C order; too few are repeated.
    wrap : bool
        True if the diagonal begins again below each square of a tall matrix.

    Cost
    ----
    None, unless `val` is sharded: it is then sent to every rank, as each may need any value.
    """
    mesh = common_mesh(a, val)
    x = as_distarray(a, mesh)
    if x.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise ValueError("All dimensions of input must be of equal length")
    refuse_read_only(x, "underlying array is read-only")
    values: Any = in_line(as_values(val, x.dtype))
    if isinstance(values, DistArray):
        values = block_in(values, Layout.replicated(values.shape, mesh.shape), mesh)
    if not values.size or not x.layout.holds(mesh.coords):
        return
    number, places = _own_diagonal(x, wrap)
    key = tuple([mesh.asarray(place) for place in places])
    x.block[key] = mesh.asarray(values)[mesh.asarray(number % values.size)]


def _own_diagonal(x: DistArray, wrap: bool) -> tuple[Array, list[Array]]:
    """Return numbers and local indices of the main diagonal's elements that this rank owns."""
    section = x.layout.section(x.mesh.coords)
    if x.ndim > 2:
        number = np.arange(max([a for a, _ in section]), min([b for _, b in section]))
        return number, [number - start for start, _ in section]
    columns = x.shape[1]
    (top, bottom), (left, right) = section
    # Element k is at position k * (columns + 1) of the flattened matrix.
    first, last = [-(-row * columns // (columns + 1)) for row in (top, bottom)]
    number = np.arange(first, last if wrap else min(last, columns))
    row, column = np.divmod(number * (columns + 1), max(columns, 1))
    own = (row >= top) & (row < bottom) & (column >= left) & (column < right)
    return number[own], [row[own] - top, column[own] - left]
