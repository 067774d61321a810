"""Coordinates of the points of a grid, and functions of them; each rank makes its own block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from operator import index
from typing import Any

import numpy as np

from distarray.array import (
    DistArray,
    as_distarray,
    common_mesh,
    default_layout,
    distribute,
    from_section,
    grown_layout,
    movement,
    to_layout,
    wrap,
)
from distarray.array.placing import Placements, as_shape, creates, place, plain
from distarray.comm import DeviceMesh
from distarray.layout import Cut, Layout
from distarray.ops.creation import ones, tri
from distarray.ops.ranges import arange, positions
from distarray.plan import propagate, restrict
from distarray.typing import ArrayLike, DType, DTypeLike, ShapeLike

__all__ = [
    "diag_indices",
    "fromfunction",
    "indices",
    "mask_indices",
    "meshgrid",
    "mgrid",
    "ogrid",
    "tril_indices",
    "triu_indices",
    "vander",
]


# -- index arrays --------------------------------------------------------------------------------


def indices(
    dimensions: ShapeLike,
    dtype: DTypeLike = int,
    sparse: bool = False,
    *,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> Any:
    """Return the indices of every point of a grid; see :func:`numpy.indices`.

    Parameters
    ----------
    placements : sequence of Placement, optional
        Placements of the result, whose first dimension numbers the grid's dimensions. With
        `sparse`, placements of the grid; each array of the tuple extends along one grid dimension.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    shape, dtype = as_shape(dimensions), np.dtype(dtype)
    _check_ranges(shape, dtype)
    if sparse:
        grid, mesh = place(shape, dtype, mesh, placements)
        return tuple([_axis_array(dim, grid, mesh, dtype) for dim in range(len(shape))])
    mesh = common_mesh() if mesh is None else mesh
    if placements is None:
        grid = default_layout(shape, dtype.itemsize * len(shape), mesh)
        layout = Layout.from_cuts([Cut.whole(len(shape)), *grid.cuts], mesh.shape)
    else:
        layout, mesh = place((len(shape), *shape), dtype, mesh, placements)
    return from_section(lambda section: _index_block(section, mesh, dtype), layout, mesh)


def _check_ranges(shape: Sequence[int], dtype: DType) -> None:
    """Raise NumPy's exception for a data type without ranges."""
    if dtype.kind not in "iufcm":
        for extent in shape:
            np.arange(min(extent, 3), dtype=dtype)


def _index_block(section: Sequence[slice], mesh: DeviceMesh, dtype: DTypeLike) -> Any:
    first, *rest = section
    block = mesh.xp.empty([part.stop - part.start for part in section], dtype)
    for position, dim in enumerate(range(first.start, first.stop)):
        values = mesh.asarray(positions(rest[dim].start, rest[dim].stop, dtype))
        block[position] = values.reshape((-1,) + (1,) * (len(rest) - dim - 1))
    return block


def _axis_array(dim: int, grid: Layout, mesh: DeviceMesh, dtype: DTypeLike) -> DistArray:
    """Return the indices along one dimension of a grid, of extent 1 in the others."""
    shape = tuple([extent if d == dim else 1 for d, extent in enumerate(grid.shape)])
    layout = restrict(grid, shape)

    def block(section: Sequence[slice]) -> Any:
        values = mesh.asarray(positions(section[dim].start, section[dim].stop, dtype))
        values = values.reshape([-1 if d == dim else 1 for d in range(len(section))])
        # A dimension of extent 1 may be cut, too; its only index is then on another rank.
        return values[tuple([slice(part.stop - part.start) for part in section])]

    return from_section(block, layout, mesh)


@creates(np.fromfunction)
def fromfunction(
    function: Callable[..., Any],
    shape: ShapeLike,
    *,
    dtype: DTypeLike = float,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
    **kwargs: Any,
) -> Any:
    """Call a function of the indices of each point; see :func:`numpy.fromfunction`.

    Every rank calls the function once, with one distributed array per dimension.

    Cost
    ----
    The messages of `function`; the memory of one block for each dimension.
    """
    shape, dtype = as_shape(shape), np.dtype(dtype)
    _check_ranges(shape, dtype)
    grid, mesh = place(shape, dtype, mesh, placements, None, like)
    axes = [_axis_array(dim, grid, mesh, dtype) for dim in range(len(shape))]
    return function(*[_spread(axis, grid, copy=True) for axis in axes], **kwargs)


def _spread(x: DistArray, grid: Layout, copy: bool) -> DistArray:
    """Broadcast an array to a grid, in the grid's layout."""
    mesh = x.mesh
    part = movement.moved(x.block, x.layout, restrict(grid, x.shape), mesh)
    block = mesh.xp.broadcast_to(part, grid.local_shape(mesh.coords))
    return wrap(block.copy() if copy else block, grid, mesh)


@creates(np.meshgrid, computes=False)
def meshgrid(
    *xi: ArrayLike,
    copy: bool = True,
    sparse: bool = False,
    indexing: str = "xy",
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> tuple[DistArray, ...]:
    """Return coordinates of a grid from coordinates along its axes; see :func:`numpy.meshgrid`.

    Parameters
    ----------
    placements : sequence of Placement, optional
        Placements of the grid. By default they follow the distributed arguments.

    Cost
    ----
    No message if `xi` are replicated; else the messages that bring each to the grid's layout.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError("Valid values for `indexing` are 'xy' and 'ij'.")
    mesh = common_mesh(*xi) if mesh is None else mesh
    lines = [_as_line(x, mesh) for x in xi]
    places = list(range(len(xi)))
    if indexing == "xy" and len(xi) > 1:
        places[:2] = 1, 0
    lifted = [
        line[(None,) * dim + (slice(None),) + (None,) * (len(xi) - 1 - dim)]
        for line, dim in zip(lines, places, strict=True)
    ]
    if not lifted:
        return ()
    grid = _grid_layout(lifted, places, mesh, placements)
    if not sparse:
        return tuple([_spread(x, grid, copy) for x in lifted])
    return tuple([_cut_line(x, grid, copy) for x in lifted])


def _as_line(x: ArrayLike, mesh: DeviceMesh) -> DistArray:
    """Return an argument of meshgrid as a 1-d array, flattened as NumPy flattens it."""
    line = as_distarray(x if isinstance(x, DistArray) else np.asanyarray(x), mesh)
    if line.mesh is not mesh:
        line = distribute(line, mesh)
    return line if line.ndim == 1 else line.reshape(-1)


def _grid_layout(
    lifted: Sequence[DistArray],
    places: Sequence[int],
    mesh: DeviceMesh,
    placements: Placements | None,
) -> Layout:
    extents = {dim: x.size for x, dim in zip(lifted, places, strict=True)}
    shape = tuple([extents[dim] for dim in range(len(lifted))])
    widest = max([x.dtype for x in lifted], key=lambda dtype: dtype.itemsize)
    if placements is None and not all(x.layout.is_replicated for x in lifted):
        return propagate(
            tuple([x.layout for x in lifted]), tuple([x.itemsize for x in lifted])
        ).result
    layout, _ = place(shape, widest, mesh, placements)
    return layout


def _cut_line(x: DistArray, grid: Layout, copy: bool) -> DistArray:
    """Cut a line of an open grid as the grid is, if this takes no message."""
    if x.layout.is_replicated:
        layout = restrict(grid, x.shape)
        x = wrap(movement.moved(x.block, x.layout, layout, x.mesh), layout, x.mesh)
    return x.like(x.block.copy()) if copy else x


@creates(np.vander)
def vander(
    x: ArrayLike,
    N: int | None = None,
    increasing: bool = False,
    *,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create a Vandermonde matrix with rows placed as `x` is; see :func:`numpy.vander`.

    A large matrix of a replicated `x` has its rows sharded.

    Cost
    ----
    No message.
    """
    if not isinstance(x, DistArray):
        x = distribute(np.asanyarray(x), mesh, src=None)
    if x.ndim != 1:
        raise ValueError("x must be a one-dimensional array or sequence.")
    columns = x.size if N is None else index(plain(N))
    if x.layout.is_replicated:
        grid = grown_layout((x.size, columns), x.itemsize, x.mesh, [x])
        x = to_layout(x, Layout.from_cuts(grid.cuts[:1], x.mesh.shape))
    layout = Layout.from_cuts([*x.layout.cuts, Cut.whole(columns)], x.mesh.shape)
    powers = x.mesh.xp.vander(x.block, columns, increasing)
    if x.mesh.coords is None:
        powers = powers[:, :0]
    result = wrap(powers, layout, x.mesh)
    moves = placements is not None or mesh not in (None, x.mesh)
    return distribute(result, mesh, placements) if moves else result


# -- grids by slices -----------------------------------------------------------------------------


class _Grid:
    """Type of :data:`mgrid` and :data:`ogrid`, which are indexed with the slices of a grid."""

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse

    def __len__(self) -> int:
        return 0

    def __getitem__(self, key: slice | Sequence[slice]) -> Any:
        if isinstance(key, slice):
            return _interval(key)
        limits = [_limits(part) for part in key]
        shape = tuple([limit[2] for limit in limits])
        numbers: list[Any] = [0]
        for part, (start, _, _) in zip(key, limits, strict=True):
            numbers += [start, plain(part.stop), _plain_step(part)]
        dtype = np.result_type(*numbers)
        if self.sparse:
            grid, mesh = place(shape, dtype)
            axes = [_axis_array(dim, grid, mesh, dtype) for dim in range(len(shape))]
            scaled = zip(axes, limits, strict=True)
            return tuple([axis * step + start for axis, (start, step, _) in scaled])
        return _scaled(indices(shape, dtype), limits)


def _scaled(grid: DistArray, limits: Sequence[tuple[Any, Any, int]]) -> DistArray:
    first, last = grid.layout.section(grid.mesh.coords)[0]
    for position, (start, step, _) in enumerate(limits[first:last]):
        grid.block[position] = grid.block[position] * step + start
    return grid


def _plain_step(part: slice) -> Any:
    step = 1 if part.step is None else plain(part.step)
    return abs(step) if isinstance(step, (complex, np.complexfloating)) else step


def _limits(part: slice) -> tuple[Any, Any, int]:
    """Return start, step and number of points of one slice; an imaginary step counts points."""
    start = 0 if part.start is None else plain(part.start)
    stop, step = plain(part.stop), 1 if part.step is None else plain(part.step)
    if not isinstance(step, (complex, np.complexfloating)):
        return start, step, max(0, ceil((stop - start) / step))
    points: Any = abs(step)
    count = int(points)
    return start, (stop - start) / float(count - 1) if count != 1 else count, count


def _interval(part: slice) -> DistArray:
    start, step, count = _limits(part)
    if not isinstance(plain(part.step), (complex, np.complexfloating)):
        return arange(start, plain(part.stop), step)
    dtype = np.result_type(start, part.stop, abs(plain(part.step)))
    result: DistArray = arange(0, count, 1, dtype) * step + start
    return result


#: Dense and open grids; see :data:`numpy.mgrid` and :data:`numpy.ogrid`.
mgrid = _Grid(sparse=False)
ogrid = _Grid(sparse=True)


# -- indices of triangles and diagonals ----------------------------------------------------------


def diag_indices(n: int, ndim: int = 2) -> tuple[DistArray, ...]:
    """Return the indices of the main diagonal; see :func:`numpy.diag_indices`."""
    return (arange(n),) * ndim


def tril_indices(n: int, k: int = 0, m: int | None = None) -> Any:
    """Return the indices of elements at and below a diagonal; see :func:`numpy.tril_indices`.

    Cost
    ----
    The cost of :func:`numpy.nonzero` of a matrix of truth values.
    """
    return np.nonzero(tri(n, m, k, bool))


def triu_indices(n: int, k: int = 0, m: int | None = None) -> Any:
    """Return the indices of elements at and above a diagonal; see :func:`numpy.triu_indices`.

    Cost
    ----
    The cost of :func:`numpy.nonzero` of a matrix of truth values.
    """
    return np.nonzero(~tri(n, m, k - 1, bool))


def mask_indices(n: int, mask_func: Callable[..., Any], k: int = 0) -> Any:
    """Return indices where a function like `numpy.triu` is nonzero; see :func:`numpy.mask_indices`.

    Cost
    ----
    The cost of `mask_func` and :func:`numpy.nonzero`.
    """
    return np.nonzero(mask_func(ones((n, n), int), k) != 0)
