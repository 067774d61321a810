"""Histograms: every rank counts its own elements, and the counts are added."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements, wrap
from distarray.array.one_rank import Alone
from distarray.array.portable import on_host
from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.engines.bin_widths import bin_count
from distarray.engines.blockwise import prepare
from distarray.engines.folds import identity
from distarray.layout import Cut, Fold, Layout, Partial, Shard
from distarray.typing import Array, ArrayLike

#: Outer edges of a row of bins.
_Range: TypeAlias = tuple[float, float]
#: Number of bins, name of a rule that chooses it, or edges.
_Bins: TypeAlias = "int | str | ArrayLike"

__all__ = ["bincount", "histogram", "histogram2d", "histogram_bin_edges", "histogramdd"]


def _added(counts: Array, layout: Layout, mesh: DeviceMesh) -> DistArray:
    """Sum the ranks' counts of their blocks of a layout; a large result is a pending sum."""
    apart = [*layout.ats, *[m for dim in layout.cuts for m in dim.mesh_dims]]
    placed = Layout.from_cuts(
        [Cut.whole(extent) for extent in counts.shape], mesh.shape, {m: Partial() for m in apart}
    )
    if mesh.coords is None:
        counts = counts[(slice(0, 0),) * counts.ndim]
    return wrap(counts, placed, mesh)


def _limits(a: DistArray, limits: _Range | None) -> tuple[Any, Any]:
    """Return the outer edges: `limits`, or the least and the greatest element."""
    if limits is not None:
        return limits
    if not a.size:
        return 0, 1
    low, high = _extremes(a)
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError(f"autodetected range of [{low}, {high}] is not finite")
    return low, high


def _countable(a: ArrayLike, mesh: DeviceMesh) -> DistArray:
    x = as_distarray(a, mesh)
    return x.astype(np.uint8) if x.dtype == bool else x


def _extremes(a: DistArray) -> tuple[Any, Any]:
    """Return the least and the greatest element, as NumPy scalars, by one small allgather."""
    a = a.plain()  # a column of points may be on one rank only
    block, mesh = a.block, a.mesh
    if mesh.coords is None:
        return a.dtype.type(0), a.dtype.type(0)
    if block.size:
        own = np.stack([mesh.to_host(block.min()), mesh.to_host(block.max())])
    else:
        own = np.stack([identity(ufunc, a.dtype) for ufunc in (np.minimum, np.maximum)])
    cutting = tuple(sorted({m for cut in a.layout.cuts for m in cut.mesh_dims}))
    found = mesh.subgroup(cutting).allgather(own) if cutting else own[None]
    return found[:, 0].min(), found[:, 1].max()


def _operands(a: DistArray, weights: ArrayLike | None) -> tuple[list[Any], Layout, DeviceMesh]:
    """Return the blocks of the array and of its weights, in one layout."""
    if weights is None:
        return [a.block], a.layout, a.mesh
    if np.shape(weights) != a.shape:
        raise ValueError("weights should have the same shape as a.")
    return prepare(a, weights)


@implements(np.histogram)
def histogram(
    a: ArrayLike,
    bins: _Bins = 10,
    range: _Range | None = None,
    density: bool | None = None,
    weights: ArrayLike | None = None,
) -> Any:
    """Count the elements in each of a row of bins; see :func:`numpy.histogram`.

    Returns
    -------
    counts, edges : DistArray
        Replicated.

    Cost
    ----
    One allgather of two numbers if no `range` is given, and one allreduce of the counts, when they
    are read. A rule that chooses the number of bins adds the cost of the statistics that it needs.
    """
    x = _countable(a, common_mesh(a, weights))
    wanted, limits = _settings(x, bins, range, weights)
    edges = _listed_edges(x, wanted, limits)
    found, layout, mesh = _operands(x, weights)
    # NumPy gets the number of bins, not the edges: it then finds the bin by a division. Blocks on
    # GPUs are counted on the host: CuPy finds the bin by another computation, and counts elements
    # on edges in other bins.
    counts, _ = on_host(np.histogram, found[0], wanted, limits, weights=_rest(found))
    total = _added(counts, layout, mesh)
    if not density:
        return total, edges
    widths = np.diff(edges).astype(float)
    return total / widths / np.sum(total), edges


def _rest(found: Sequence[Any]) -> Any:
    return found[1] if len(found) > 1 else None


@implements(np.histogram_bin_edges, alone=Alone(by_size=True), small=False)  # may be the given bins
def histogram_bin_edges(
    a: ArrayLike, bins: _Bins = 10, range: _Range | None = None, weights: ArrayLike | None = None
) -> Any:
    """Return the edges of the bins of a histogram; see :func:`numpy.histogram_bin_edges`.

    Cost
    ----
    One allgather of two numbers if no `range` is given, and the cost of a rule, as for
    :func:`histogram`.
    """
    x = _countable(a, common_mesh(a, bins, weights))
    if weights is not None and np.shape(weights) != x.shape:
        raise ValueError("weights should have the same shape as a.")
    return _listed_edges(x, *_settings(x, bins, range, weights))


def _settings(
    a: DistArray, bins: _Bins, limits: _Range | None, weights: ArrayLike | None
) -> tuple[Any, Any]:
    """Return edges, or a number of bins and the outer edges; a rule for the number is evaluated."""
    given: Any = bins
    if np.ndim(given):
        return np.asarray(given), limits
    if isinstance(given, DistArray):
        given = bins = np.asarray(given)[()]  # a number of bins, or the name of a rule
    probe = np.empty((0,), a.dtype)
    # NumPy's errors about a number of bins, a range, or a rule and weights.
    np.histogram_bin_edges(probe, given, limits, None if weights is None else np.empty((0,)))
    outer = _limits(a, limits)
    if isinstance(bins, str):
        low, high = outer
        if low == high:
            low, high = low - 0.5, high + 0.5
        bins = bin_count(bins, a, (low, high), limits is not None)
    return bins, outer


def _listed_edges(a: DistArray, bins: int | Array, limits: _Range | None) -> DistArray:
    probe = np.empty((0,), a.dtype)
    return as_distarray(np.histogram_bin_edges(probe, bins, limits), a.mesh)


@implements(np.histogramdd, small=False)
def histogramdd(
    sample: ArrayLike | Sequence[ArrayLike],
    bins: int | Sequence[_Bins] = 10,
    range: Sequence[_Range | None] | None = None,
    density: bool | None = None,
    weights: ArrayLike | None = None,
) -> Any:
    """Count the points in each cell of a grid; see :func:`numpy.histogramdd`.

    Returns
    -------
    counts : DistArray
        With a dimension for each coordinate of the points; pending if large.
    edges : list of DistArray

    Cost
    ----
    One allgather of two numbers for each coordinate without a `range`, and one allreduce of the
    counts, when they are read. One exchange comes first if the coordinates of a point are on
    several ranks.
    """
    coordinates = _coordinates(sample)
    mesh = common_mesh(*coordinates, weights)
    coordinates = [as_distarray(x, mesh) for x in coordinates]
    if coordinates:  # NumPy makes one array of the coordinates
        kind = np.result_type(*[x.dtype for x in coordinates])
        coordinates = [as_distarray(x, mesh, kind) for x in coordinates]
    listed = _edges(coordinates, bins, range)
    edges = [as_distarray(edge, mesh) for edge in listed]
    operands = [*coordinates] if weights is None else [*coordinates, weights]
    if np.ndim(operands[-1]) == 1 and np.shape(operands[-1]) != operands[0].shape:
        raise ValueError("The weights and list don't have the same length.")
    found, layout, mesh = prepare(*operands)
    points = found[: len(coordinates)]
    weighed = found[-1] if weights is not None else None
    counts, _ = on_host(np.histogramdd, points, listed, weights=weighed)
    total: Any = _added(counts, layout, mesh)
    if density:
        whole = np.sum(total)
        for dim, edge in enumerate(listed):
            shape = [1] * total.ndim
            shape[dim] = -1
            total = total / np.diff(edge).reshape(shape)
        total = total / whole
    return total, edges


def _coordinates(sample: ArrayLike | Sequence[ArrayLike]) -> list[Any]:
    """Return one array per coordinate: the columns of an array, or a sequence of arrays."""
    given: Any = sample
    if hasattr(given, "ndim"):
        columns = given if given.ndim == 2 else np.atleast_2d(given).T
        if isinstance(columns, DistArray) and columns.layout.cuts[1].parts > 1:
            placed = [Shard(0) if isinstance(p, Shard) else p for p in columns.placements]
            columns = columns.redistribute(placements=placed)  # every rank counts whole points
        return [columns[:, number] for number in np.arange(columns.shape[1]).tolist()]
    return list(given)


def _length(bins: int | Sequence[Any]) -> int | None:
    """Return the number of entries of `bins`, None for a number."""
    return len(bins) if hasattr(bins, "__len__") and getattr(bins, "shape", None) != () else None


def _edges(
    coordinates: Sequence[DistArray],
    bins: int | Sequence[_Bins],
    limits: Sequence[_Range | None] | None,
) -> list[Any]:
    """Return the edges along each coordinate."""
    count = len(coordinates)
    wanted: Any = [bins] * count if _length(bins) is None else bins
    if len(wanted) != count:
        raise ValueError("The dimension of bins must be equal to the dimension of the sample x.")
    ranges = [None] * count if limits is None else limits
    if len(ranges) != count:
        raise ValueError("range argument must have one entry per dimension")
    return [
        _edges_along(x, number, limit)
        for x, number, limit in zip(coordinates, wanted, ranges, strict=True)
    ]


def _edges_along(x: DistArray, bins: int | ArrayLike, limit: _Range | None) -> Any:
    given: Any = bins
    if np.ndim(given):
        values = np.asarray(given)
        if np.any(values[:-1] > values[1:]):
            raise ValueError("bins must be monotonically increasing, when an array")
        return values
    if given < 1:
        raise ValueError("bins must be positive, when an integer")
    low, high = _limits(x, limit)
    if low > high:
        raise ValueError("max must be larger than min in range parameter.")
    if not np.isfinite(low - high):
        raise ValueError(f"supplied range of [{low}, {high}] is not finite")
    if low == high:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low, high, operator.index(given) + 1)


@implements(np.histogram2d, small=False)
def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: int | Sequence[_Bins] = 10,
    range: Sequence[_Range | None] | None = None,
    density: bool | None = None,
    weights: ArrayLike | None = None,
) -> Any:
    """Count the points in each cell of a plane; see :func:`numpy.histogram2d`.

    Cost
    ----
    The cost of :func:`histogramdd`.
    """
    if np.shape(x) != np.shape(y):
        raise ValueError("x and y must have the same length.")
    # A sequence lists edges for both axes, unless its one or two entries are one for each axis.
    wanted: Any = bins if _length(bins) in (None, 1, 2) else [bins, bins]
    counts, edges = histogramdd([x, y], wanted, range, density, weights)
    return counts, *edges


@implements(np.bincount)
def bincount(x: ArrayLike, /, weights: ArrayLike | None = None, minlength: int = 0) -> Any:
    """Count how often each number occurs; see :func:`numpy.bincount`.

    Returns
    -------
    DistArray
        Pending if large; reading it then takes a reduce-scatter.

    Cost
    ----
    One allreduce to agree on errors, one of the length, and one of the counts when they are read.
    """
    array = as_distarray(x, common_mesh(x, weights))
    np.bincount(np.zeros((0,) * array.ndim, array.dtype), minlength=minlength)  # NumPy's errors
    if weights is not None and np.shape(weights) != array.shape:
        raise ValueError("The weights and list don't have the same length.")
    found, layout, mesh = _operands(array, weights)
    counts: Any = None
    error = None
    try:
        counts = np.bincount(found[0], _rest(found), minlength)
    except (ValueError, MemoryError) as caught:  # for negative and for very large elements
        error = caught
    agree(mesh.group, error)
    length = int(mesh.group.allreduce(np.array(len(counts)), Fold.MAX))
    if len(counts) < length:
        counts = np.concatenate([counts, np.zeros(length - len(counts), counts.dtype, like=counts)])
    if array.size and weights is not None:
        counts = counts.astype(np.float64)  # NumPy returns integers on a rank without elements
    return _added(counts, layout, mesh)
