"""Looking values up in sorted arrays, where both may be spread: the values travel, never the array.

Every rank learns the last element of every block. That tells which block answers for a value.
"""

from collections.abc import Callable
from typing import Any

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
from distarray.comm import devices
from distarray.config import config
from distarray.engines.indexing.gather import segments, swap
from distarray.engines.indexing.owners import grouped_by_owner
from distarray.engines.sorting.along_axis import canonical_along
from distarray.engines.sorting.parallel_sort import joined, lengths_of
from distarray.engines.sorting.sort_in_block import position
from distarray.layout import Layout, Partial
from distarray.typing import Array

__all__ = ["Haystack", "searchsorted"]

_INDEX = np.dtype(np.intp)
_PURPOSE = "values looked up"


class Haystack:
    """A sorted array in one dimension, cut over ranks, in which values are looked up.

    Parameters
    ----------
    a : DistArray
        Sorted, cut, with ascending blocks.

    Cost
    ----
    An allgather of one element a rank.
    """

    def __init__(self, a: DistArray) -> None:
        self.block = a.mesh.asarray(a.block)
        cut = a.layout.cuts[0]
        lengths = lengths_of(cut)
        self.group = a.mesh.subgroup(cut.mesh_dims)
        self.start = sum(lengths[: self.group.rank])
        last = devices.to_host(self.block[-1:])
        held = [min(n, 1) for n in lengths]
        #: The ranks that have elements, and the last element of each.
        self.ranks = np.flatnonzero(np.array(held))
        self.lasts = np.concatenate(self.group.allgather_varied(last, held, "ends of blocks"))

    def ask(self, values: Array, side: Any, answer: Callable[[Array], Array], dtype: Any) -> Array:
        """What the rank says that has the place of each value.

        Parameters
        ----------
        values : array
            This rank's values, in one dimension, on the host.
        side : {"left", "right"}
            Whether the place of a value is before or after elements that are equal.
        answer : callable
            Called with the values that came here; gives an array of as many.
        dtype : dtype
            Of the answers.

        Cost
        ----
        One all-to-all of the values, and one exchange of the answers.
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

    def places(self, values: Array, side: Any) -> Array:
        """As ``searchsorted`` of the whole array."""

        def answer(part: Array) -> Array:
            return (position(self.block, part, side) + self.start).astype(_INDEX, copy=False)

        return self.ask(values, side, answer, _INDEX)


@implements(np.searchsorted, objects=Objects.GATHER)
def searchsorted(a: Any, v: Any, side: Any = "left", sorter: Any = None) -> DistArray:
    """Where to insert values into a sorted array; see :func:`numpy.searchsorted`.

    Parameters
    ----------
    a : DistArray or array_like, 1-d
        Sorted, or else `sorter` sorts it.
    v : DistArray or array_like
        The values.
    side : {"left", "right"}
        Before or after elements that are equal.
    sorter : DistArray or array_like, optional
        As given by :func:`argsort`.

    Returns
    -------
    DistArray
        Laid out as `v`. If `v` is replicated and large and `a` is cut, a pending sum.

    Cost
    ----
    Nothing if every rank has all of `a`; one exchange if `a` is small. Otherwise, for values that
    every rank has, one allreduce of the places. If both are spread, an allgather of an element a
    rank, an all-to-all of the values and an exchange of their places. With `sorter`, as
    ``take(a, sorter)``.

    Notes
    -----
    Of an array that is not sorted, NumPy's answer is arbitrary, and another one than this.
    """
    mesh = common_mesh(a, v, sorter)
    a, v = as_distarray(a, mesh), as_distarray(v, mesh)
    a = _checked(a, v, side, sorter)
    cut = a.layout.cuts[0]
    scalar = not v.ndim
    if cut.parts > 1 and (a.nbytes < config.replicate_below or not a.size):
        a = to_layout(a, Layout.replicated(a.shape, mesh.shape))
    block = mesh.asarray(v.block)
    if a.layout.cuts[0].parts == 1:
        found, layout = _local(mesh.asarray(a.block), block, side), v.layout
    elif v.layout.is_replicated:
        return _counted(a, v, side)
    else:
        found, layout = _routed(a, block, side), v.layout
    return wrap(mesh.scalar(found) if scalar else found, layout, mesh)


def _checked(a: DistArray, v: DistArray, side: Any, sorter: Any) -> DistArray:
    """The array in its sorted order; raises what NumPy raises."""
    probe = np.zeros([min(n, 1) for n in a.shape], a.dtype)
    np.searchsorted(probe, np.zeros([min(n, 1) for n in v.shape], v.dtype), side)
    if sorter is None:
        return a
    if not isinstance(sorter, DistArray):
        sorter = np.asarray(sorter)
    kind = sorter.dtype
    np.searchsorted(probe, probe[:0], side, np.zeros((*sorter.shape[1:], probe.size), kind))
    if sorter.size != a.size:
        raise ValueError("sorter.size must equal a.size")
    if not a.size:
        return a
    try:
        found: DistArray = call(np.take, a, sorter)
        return found
    except IndexError:
        pass
    raise ValueError("Sorter index out of range.")


def _local(haystack: Array, values: Array, side: Any) -> Array:
    if not devices.on_device(haystack):
        return np.searchsorted(haystack, values, side)
    flat = np.searchsorted(haystack, contiguous(values).reshape(-1), side)
    return flat.reshape(values.shape)


def _counted(a: DistArray, v: DistArray, side: Any) -> DistArray:
    """For values that every rank has: the number of elements before them is a sum over blocks."""
    mesh = a.mesh
    found = mesh.asarray(_local(mesh.asarray(a.block), mesh.asarray(v.block), side))
    pending = {m: Partial() for m in a.layout.cuts[0].mesh_dims}
    whole = Layout.replicated(v.shape, mesh.shape)
    result = wrap(found, Layout.from_cuts(whole.cuts, mesh.shape, pending), mesh)
    if v.size * _INDEX.itemsize < config.replicate_below or not v.ndim:
        result.settle()
    return result if v.ndim else result.computed(result.block)


def _routed(a: DistArray, values: Array, side: Any) -> Array:
    """The places of values of which every rank has a part."""
    if a.layout.cuts[0].step < 0:
        a = to_layout(a, canonical_along(a.layout, 0))
    if a.mesh.coords is None:
        return np.zeros(values.shape, _INDEX)
    flat = devices.to_host(contiguous(values).reshape(-1))
    found = Haystack(a).places(flat, side).reshape(values.shape)
    return devices.back(found, values) if devices.on_device(values) else found
