"""searchsorted: values are looked up in a sorted array; if both are cut, the values are sent.

Every rank gets the last element of every block. From these it computes the block where a value
belongs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np

from distarray.array import (
    DistArray,
    Objects,
    as_distarray,
    call,
    common_mesh,
    implements,
    to_layout,
    wrap,
)
from distarray.array.portable import contiguous
from distarray.array.probes import tiny
from distarray.comm import devices
from distarray.config import config
from distarray.engines.indexing.gather import segments, swap
from distarray.engines.indexing.owners import grouped_by_owner
from distarray.engines.sorting.along_axis import canonical_along
from distarray.engines.sorting.parallel_sort import joined, lengths_of
from distarray.engines.sorting.sort_in_block import position
from distarray.layout import Layout, Partial
from distarray.typing import Array, ArrayLike, DType

__all__ = ["Haystack", "searchsorted"]

#: Place of a value: before equal elements or after them.
Side: TypeAlias = Literal["left", "right"]

_INDEX = np.dtype(np.intp)
_PURPOSE = "values looked up"


class Haystack:
    """Sorted array in one dimension, cut over ranks, in which values are looked up.

    Parameters
    ----------
    a : DistArray
        Sorted, cut, with ascending blocks.

    Cost
    ----
    An allgather of one element per rank.
    """

    def __init__(self, a: DistArray) -> None:
        self.block = a.mesh.asarray(a.block)
        cut = a.layout.cuts[0]
        lengths = lengths_of(cut)
        self.group = a.mesh.subgroup(cut.mesh_dims)
        self.start = sum(lengths[: self.group.rank])
        last = devices.to_host(self.block[-1:])
        held = [min(n, 1) for n in lengths]
        #: Ranks that have elements, and the last element of each.
        self.ranks = np.flatnonzero(np.array(held))
        self.lasts = np.concatenate(self.group.allgather_varied(last, held, "ends of blocks"))

    def ask(
        self, values: Array, side: Side, answer: Callable[[Array], Array], dtype: DType
    ) -> Array:
        """Return the results of the ranks that own the places of the values.

        Parameters
        ----------
        values : array
            This rank's values, 1-d, on the host.
        side : {"left", "right"}
            Place of a value: before or after equal elements.
        answer : callable
            Called with the values that this rank receives; returns one result per value.
        dtype : dtype
            Data type of the results.

        Cost
        ----
        One all-to-all of the values, and one exchange of the results.
        """
        group = self.group
        found = np.searchsorted(self.lasts, values, side)
        owners = self.ranks[np.minimum(found, len(self.ranks) - 1)]
        order, counts = grouped_by_owner(owners, group.size)
        asked = group.alltoall_varied(segments(values[order], counts), _PURPOSE)
        replies = segments(answer(joined(asked)), [len(part) for part in asked])
        landing = np.empty(len(values), dtype)
        segments(landing, counts)[group.rank][...] = replies[group.rank]
        swap(group, replies, landing, counts)
        result = np.empty_like(landing)
        result[order] = landing
        return result

    def places(self, values: Array, side: Side) -> Array:
        """Return the result of ``searchsorted`` for the whole array."""

        def answer(part: Array) -> Array:
            return (position(self.block, part, side) + self.start).astype(_INDEX, copy=False)

        return self.ask(values, side, answer, _INDEX)


@implements(np.searchsorted, objects=Objects.GATHER)
def searchsorted(
    a: ArrayLike, v: ArrayLike, side: Side = "left", sorter: ArrayLike | None = None
) -> DistArray:
    """Find where to insert values into a sorted array; see :func:`numpy.searchsorted`.

    Parameters
    ----------
    a : DistArray or array_like, 1-d
        Sorted, unless `sorter` is given.
    v : DistArray or array_like
        The values.
    side : {"left", "right"}
        Before or after equal elements.
    sorter : DistArray or array_like, optional
        As returned by :func:`argsort`.

    Returns
    -------
    DistArray
        In the layout of `v`. A pending sum if `v` is replicated and large and `a` is cut.

    Cost
    ----
    Nothing if every rank has all of `a`; one exchange if `a` is small. Otherwise, for values that
    every rank has, one allreduce of the places. If both are cut, an allgather of an element per
    rank, an all-to-all of the values and an exchange of their places. With `sorter`, also the cost
    of ``take(a, sorter)``.

    Notes
    -----
    For an array that is not sorted NumPy's result is arbitrary, and may differ from this one.
    """
    mesh = common_mesh(a, v, sorter)
    values = as_distarray(v, mesh)
    x = _checked(as_distarray(a, mesh), values, side, sorter)
    if x.layout.cuts[0].parts > 1 and (x.nbytes < config.replicate_below or not x.size):
        x = to_layout(x, Layout.replicated(x.shape, mesh.shape))
    block = mesh.asarray(values.block)
    if x.layout.cuts[0].parts == 1:
        found = _local(mesh.asarray(x.block), block, side)
    elif values.layout.is_replicated:
        return _counted(x, values, side)
    else:
        found = _routed(x, block, side)
    return wrap(found if values.ndim else mesh.scalar(found), values.layout, mesh)


def _checked(a: DistArray, v: DistArray, side: Side, sorter: ArrayLike | None) -> DistArray:
    """Return the array in its sorted order; raise NumPy's exceptions."""
    probe = tiny(a.shape, a.dtype)
    np.searchsorted(probe, tiny(v.shape, v.dtype), side)
    if sorter is None:
        return a
    order: Any = sorter if isinstance(sorter, DistArray) else np.asarray(sorter)
    none: Any = np.zeros((*order.shape[1:], probe.size), order.dtype)
    np.searchsorted(probe, probe[:0], side, none)
    if order.size != a.size:
        raise ValueError("sorter.size must equal a.size")
    if not a.size:
        return a
    try:
        # Negative indices are out of range here, as in NumPy.
        found: DistArray = call(np.take, a, np.where(order < 0, a.size, order))
        return found
    except IndexError:
        pass
    raise ValueError("Sorter index out of range.")


def _local(haystack: Array, values: Array, side: Side) -> Array:
    if not devices.on_device(haystack):
        return np.searchsorted(haystack, values, side)
    flat = np.searchsorted(haystack, contiguous(values).reshape(-1), side)
    return flat.reshape(values.shape)


def _counted(a: DistArray, v: DistArray, side: Side) -> DistArray:
    """Return the places of replicated values: the sums over blocks of the elements before them."""
    mesh = a.mesh
    found = mesh.asarray(_local(mesh.asarray(a.block), mesh.asarray(v.block), side))
    pending = {m: Partial() for m in a.layout.cuts[0].mesh_dims}
    whole = Layout.replicated(v.shape, mesh.shape)
    result = wrap(found, Layout.from_cuts(whole.cuts, mesh.shape, pending), mesh)
    if v.size * _INDEX.itemsize < config.replicate_below or not v.ndim:
        result.settle()
    return result if v.ndim else result.computed(result.block)


def _routed(a: DistArray, values: Array, side: Side) -> Array:
    """Return the places of values that are cut over the ranks."""
    if a.layout.cuts[0].step < 0:
        a = to_layout(a, canonical_along(a.layout, 0))
    if a.mesh.coords is None:
        return np.zeros(values.shape, _INDEX)
    flat = devices.to_host(contiguous(values).reshape(-1))
    found = Haystack(a).places(flat, side).reshape(values.shape)
    return devices.back(found, values) if devices.on_device(values) else found
