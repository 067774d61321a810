"""partition and argpartition: NumPy's promise, in an order that every number of ranks agrees on."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, call, implements
from distarray.comm.group import Group
from distarray.ops.order.selection import select
from distarray.ops.sorting.arrangements import argsort, comparable, sort
from distarray.ops.sorting.engine import order_line
from distarray.ops.sorting.lines import Line, Work, along_axis
from distarray.ops.sorting.local import stable_order

__all__ = ["argpartition", "partition"]

Array = Any
_INDEX = np.dtype(np.intp)
#: More places than this are not selected one by one: everything is sorted.
_MANY = 8


@implements(np.partition)
def partition(
    a: Any, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None
) -> DistArray:
    """A copy with certain elements where sorting puts them; see :func:`numpy.partition`.

    The smaller ones stand before each, the others behind it: in sorted order, which NumPy leaves
    open, so that every number of ranks gives the same array. A stable partition would do as well,
    but takes NumPy as long.

    Cost
    ----
    As :func:`sort`.
    """
    x = as_distarray(a)
    _places(np.partition, x, kth, axis, kind, order)
    return sort(x, axis, order=order)


@implements(np.argpartition)
def argpartition(
    a: Any, kth: Any, axis: int | None = -1, kind: Any = "introselect", order: Any = None
) -> DistArray:
    """Indices that partition an array; see :func:`numpy.argpartition`.

    Before, between and behind the elements asked for, and among those equal to them, indices
    ascend, so that every number of ranks gives the same array. With many places at once, of text,
    records and complex numbers, they are those that sort the array.

    Returns
    -------
    DistArray
        Laid out as :func:`sort` lays out.

    Cost
    ----
    Nothing where the axis is whole. Where it is cut: the selection of the elements (a few small
    allgathers), and as :func:`argsort`, but a byte and an index travel with each element.
    """
    x = as_distarray(a)
    places = _places(np.argpartition, x, kth, axis, kind, order)
    if x.dtype.kind not in "biufmM" or not x.ndim or len(places) > _MANY or not places:
        return argsort(x, axis, order=order)
    if axis is None:
        x, axis = call(np.ravel, x)._plain(), -1
    keys = comparable(x)

    def whole(blocks: Sequence[Array], axis: int) -> Array:
        block = blocks[0]
        if not block.size:  # a rank that has no lines
            return stable_order(block, axis)
        labels = 0
        for place in places:
            found = np.take(np.partition(block, place, axis), [place], axis)
            labels = labels + _label(block, found)
        return _grouped(labels, axis)

    def spread(parts: Sequence[Array], line: Line) -> Array:
        labels = 0
        for value in _selected(line, parts[0], places, x._mesh.to_host):
            labels = labels + _label(parts[0], value)
        return order_line(line.group, labels, line.lengths, line.stops, _grouped)

    work = Work(whole, spread, _INDEX)
    return along_axis([keys], normalize_axis_index(operator.index(axis), x.ndim), work)


def _label(block: Array, value: Array) -> Array:
    """0, 1 or 2: whether elements are below a value, equal to it or above it; NaN is the last."""
    above, not_below = block > value, block >= value
    lost = np.isnan(block) if block.dtype.kind == "f" else None
    if lost is not None and lost.any():
        above = above | (lost & ~np.isnan(value))
        not_below = not_below | lost
    return above.view(np.uint8) + not_below.view(np.uint8)


def _grouped(labels: Array, axis: int = 0) -> Array:
    """The stable argsort of a few small numbers."""
    if labels.ndim > 1 or not labels.size:
        return stable_order(labels, axis)
    return np.concatenate([np.flatnonzero(labels == n) for n in range(int(labels.max()) + 1)])


def _selected(line: Line, block: Array, places: Sequence[int], to_host: Any) -> list[Any]:
    """The elements that come to stand at certain places of a line."""
    known = block
    if block.dtype.kind == "f":
        lost = np.isnan(block)
        known = block[~lost] if lost.any() else block
    sizes = _sizes(line.group, known)
    count = int(sizes.sum())
    wanted = [place for place in places if place < count]
    (found,) = select([known], sizes, [wanted], line.group, to_host)
    return [found.get(place, np.nan) for place in places]


def _sizes(group: Group, block: Array) -> Array:
    return group.allgather(np.array([block.size]), "numbers of elements")


def _places(function: Any, x: DistArray, kth: Any, axis: Any, kind: Any, order: Any) -> list[int]:
    """The places, counted from the front; raises what NumPy raises about the arguments."""
    probe = np.zeros([min(extent, 1) for extent in x.shape], x.dtype)
    kth = kth.full() if isinstance(kth, DistArray) else np.asarray(kth)
    first = np.zeros_like(kth)
    function(probe, first if kth.size else kth, axis=axis, kind=kind, order=order)
    if not x.size or not kth.size or not x.ndim:
        return []
    extent = x.size if axis is None else x.shape[axis]
    found = [int(number) + (extent if number < 0 else 0) for number in kth.reshape(-1)]
    for place in found:
        if not 0 <= place < extent:
            raise ValueError(f"kth(={place}) out of bounds ({extent})")
    return sorted(set(found))
