"""interp: values between sample points, which are replicated or cut."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements, to_layout
from distarray.array.portable import beside
from distarray.comm.group import Group
from distarray.engines.blockwise import apply_blockwise
from distarray.engines.halos import spanning
from distarray.layout import Cut, Layout
from distarray.layout.cut import Interval
from distarray.typing import Array, ArrayLike

__all__ = ["interp"]


#: Sample points with fewer bytes are gathered on every rank.
GATHERED_BELOW = 1 << 22


@implements(np.interp)
def interp(
    x: ArrayLike,
    xp: ArrayLike,
    fp: ArrayLike,
    left: float | None = None,
    right: float | None = None,
    period: float | None = None,
) -> Any:
    """Interpolate linearly between sample points; see :func:`numpy.interp`.

    Parameters
    ----------
    x : array_like
        The positions to interpolate at.
    xp, fp : array_like
        Sample points in ascending order, and their values.
    left, right, period
        As in :func:`numpy.interp`.

    Returns
    -------
    DistArray
        In the layout of `x`.

    Cost
    ----
    Few sample points, or a `period`, which mixes the points: the cost of gathering `xp` and `fp`,
    within `config.gather_limit`; `x` stays in place. Many sample points stay in place. Each element
    of `x` is then sent to the rank with the points around it, and its value back, in two exchanges.
    """
    mesh = common_mesh(x, xp, fp)
    x = as_distarray(x, mesh)
    if period is None:
        np.interp(np.empty(0, x.dtype), [0.0], [0.0])  # NumPy's errors about its kind
    if period is None and isinstance(xp, DistArray) and _are_many(xp) and np.shape(fp) == xp.shape:
        heights = as_distarray(fp, mesh)
        kind = np.interp(np.zeros(1), np.zeros(1), np.zeros(1, heights.dtype), left, right).dtype
        return _sent_around(x, xp, heights, (left, right), kind)
    points, values = np.asarray(xp), np.asarray(fp)
    if mesh.coords is None and not (points.size and values.size):  # ranks outside the mesh
        points, values = np.zeros(1), np.zeros(1, values.dtype)
    np.interp(np.empty(0), points, values, left, right, period)  # NumPy's errors, on every rank

    def local(block: Array) -> Array:
        at, heights = beside(points, block), beside(values, block)
        return np.interp(block, at, heights, left, right, period)

    return apply_blockwise(local, [x.astype(float, copy=False)])


def _are_many(xp: DistArray) -> bool:
    return xp.ndim == 1 and xp.nbytes >= GATHERED_BELOW and xp.layout.cuts[0].parts > 1


def _sent_around(
    x: DistArray, xp: DistArray, fp: DistArray, ends: tuple[Any, Any], kind: np.dtype[Any]
) -> DistArray:
    """Interpolate at `x` between sample points that are cut."""
    layout = Layout.chunked(xp.shape, xp.layout.mesh_shape, xp.layout.placements)
    cut, mesh = layout.cuts[0], x.mesh
    points, values = (to_layout(line, layout) for line in (xp.astype(float, copy=False), fp))
    segment, heights = (_with_next(line, cut) for line in (points, values))
    if mesh.coords is None:
        return x.like(mesh.xp.zeros(x.block.shape, kind))
    block = mesh.to_host(x.block)
    asked = np.asarray(block, float).reshape(-1)
    segment, heights = mesh.to_host(segment), mesh.to_host(heights)
    group = mesh.subgroup(cut.mesh_dims)
    order, counts = _by_owner(asked, mesh.to_host(points.block), group)
    arrived = group.alltoall_varied(np.split(asked[order], np.cumsum(counts)[:-1]))
    positions = np.concatenate(arrived)
    found = np.interp(positions, segment, heights, *ends) if positions.size else np.empty(0, kind)
    if xp.size > 1:  # with a single point NumPy returns no NaN
        np.copyto(found, positions, where=np.isnan(positions))
    lengths = np.cumsum([len(part) for part in arrived])[:-1]
    returned = group.alltoall_varied(np.split(found.astype(kind, copy=False), lengths))
    result = np.empty(asked.shape, kind)
    result[order] = np.concatenate(returned)
    part = mesh.asarray(result.reshape(np.shape(block)))
    return x.like(part if part.ndim else mesh.scalar(part))


def _with_next(line: DistArray, cut: Cut) -> Array:
    """Return the block and the first point of the next block, at which the last interval ends."""

    def needs(part: int) -> Interval:
        start, stop = cut.interval(part)
        return (start, min(stop + 1, cut.extent)) if start < stop else (0, 0)

    def askers(start: int, stop: int) -> range:
        return cut.owners(max(0, start - 1), stop) if start < stop else range(0)

    return spanning(line, 0, needs, askers)


def _by_owner(asked: Array, points: Array, group: Group) -> tuple[Array, Array]:
    """Return the order that sorts positions by their owners, and how many each owner has.

    The owner of a position has the last block that begins at or before the position. If no block
    does, the owner has the first block.
    """
    firsts = group.allgather_varied(points[:1])
    holders = np.array([rank for rank, first in enumerate(firsts) if first.size])
    begins = np.concatenate(firsts)
    owner = holders[np.maximum(np.searchsorted(begins, asked, "right") - 1, 0)]
    return np.argsort(owner, kind="stable"), np.bincount(owner, minlength=group.size)
