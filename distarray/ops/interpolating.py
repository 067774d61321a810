"""interp: values between sample points, which every rank has or which are divided among them."""

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


#: Sample points of fewer bytes are gathered on every rank.
GATHERED_BELOW = 1 << 22


@implements(np.interp)
def interp(
    x: ArrayLike,
    xp: Any,
    fp: ArrayLike,
    left: ArrayLike | None = None,
    right: ArrayLike | None = None,
    period: ArrayLike | None = None,
) -> Any:
    """Values between sample points, linearly interpolated; see :func:`numpy.interp`.

    Parameters
    ----------
    x : array_like
        Where to interpolate; the values are where it is.
    xp, fp : array_like
        Sample points in ascending order, and their values.
    left, right, period
        As in :func:`numpy.interp`.

    Returns
    -------
    DistArray
        Laid out as `x`.

    Cost
    ----
    Few sample points, or a `period`, which mixes them: that of gathering `xp` and `fp`, within
    `config.gather_limit`; `x` stays where it is. Many: they stay where they are, and each element
    of `x` travels to the rank with the points around it, and its value back, in two exchanges.
    """
    mesh = common_mesh(x, xp, fp)
    x = as_distarray(x, mesh)
    if period is None:
        np.interp(np.empty(0, x.dtype), [0.0], [0.0])  # NumPy's complaints about its kind
    if _are_many(xp) and period is None and np.shape(fp) == xp.shape:
        heights = as_distarray(fp, mesh)
        kind = np.interp(np.zeros(1), np.zeros(1), np.zeros(1, heights.dtype), left, right).dtype
        return _sent_around(x, xp, heights, (left, right), kind)
    xp, fp = np.asarray(xp), np.asarray(fp)
    if mesh.coords is None and not (xp.size and fp.size):  # whatever an outsider has of them
        xp, fp = np.zeros(1), np.zeros(1, fp.dtype)
    np.interp(np.empty(0), xp, fp, left, right, period)  # NumPy's complaints, on every rank
    return apply_blockwise(
        lambda block: np.interp(block, beside(xp, block), beside(fp, block), left, right, period),
        [x.astype(float, copy=False)],
    )


def _are_many(xp: Any) -> bool:
    if not isinstance(xp, DistArray) or xp.ndim != 1:
        return False
    return xp.nbytes >= GATHERED_BELOW and xp.layout.cuts[0].parts > 1


def _sent_around(
    x: DistArray, xp: DistArray, fp: DistArray, ends: tuple[Any, Any], kind: np.dtype[Any]
) -> DistArray:
    """Values at `x`, from sample points that are cut."""
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
    if xp.size > 1:  # of a single point NumPy makes no NaN
        np.copyto(found, positions, where=np.isnan(positions))
    lengths = np.cumsum([len(part) for part in arrived])[:-1]
    returned = group.alltoall_varied(np.split(found.astype(kind, copy=False), lengths))
    result = np.empty(asked.shape, kind)
    result[order] = np.concatenate(returned)
    part = mesh.asarray(result.reshape(np.shape(block)))
    return x.like(part if part.ndim else mesh.scalar(part))


def _with_next(line: DistArray, cut: Cut) -> Array:
    """The block and the first point of the next one, up to which it is responsible."""

    def needs(part: int) -> Interval:
        start, stop = cut.interval(part)
        return (start, min(stop + 1, cut.extent)) if start < stop else (0, 0)

    def askers(start: int, stop: int) -> range:
        return cut.owners(max(0, start - 1), stop) if start < stop else range(0)

    return spanning(line, 0, needs, askers)


def _by_owner(asked: Array, points: Array, group: Group) -> tuple[Array, Array]:
    """The order that puts positions by the ranks responsible for them; how many each gets.

    A position belongs to the last block that begins at or before it, to the first one if none
    does.
    """
    firsts = group.allgather_varied(points[:1])
    holders = np.array([rank for rank, first in enumerate(firsts) if first.size])
    begins = np.concatenate(firsts)
    owner = holders[np.maximum(np.searchsorted(begins, asked, "right") - 1, 0)]
    return np.argsort(owner, kind="stable"), np.bincount(owner, minlength=group.size)
