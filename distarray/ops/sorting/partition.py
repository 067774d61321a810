"""partition and argpartition, by NumPy's own call if lines are whole.

NumPy leaves the order inside the parts undefined. If lines are whole this order is that of NumPy's
call; under `config.reproducible` it is the same on any number of ranks.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, Objects, as_distarray, call, faults, implements
from distarray.array.probes import tiny
from distarray.comm import devices
from distarray.comm.group import Group
from distarray.config import config
from distarray.engines.reshaping import in_line
from distarray.engines.selecting.selection import select
from distarray.engines.sorting.along_axis import Line, Work, along_axis
from distarray.engines.sorting.parallel_sort import Routed, order_line
from distarray.ops.sorting.sort import Fields, argsort, comparable, sort, viewed
from distarray.typing import Array, ArrayLike, Axis

__all__ = ["argpartition", "partition"]

_INDEX = np.dtype(np.intp)
#: Maximum number of places that are selected individually; for more places everything is sorted.
_MANY = 8
#: An axis with at least `_LINES` lines has many, unless a line takes more than `_LONG` bytes.
_LINES, _LONG = 64, 1 << 26


@implements(np.partition, objects=Objects.GATHER)
def partition(
    a: ArrayLike,
    kth: ArrayLike,
    axis: int | None = -1,
    kind: str = "introselect",
    order: Fields = None,
) -> DistArray:
    """Copy an array with certain elements in their sorted places; see :func:`numpy.partition`.

    Returns
    -------
    DistArray
        In the layout of the result of :func:`sort`.

    Cost
    ----
    Nothing if the axis is whole. Many lines: two exchanges. A long line: the selection of the
    elements (a few small allgathers), and an all-to-all of elements that change rank.

    Notes
    -----
    NumPy does not define the order of the smaller elements before each place and of the other
    elements after it. A line that is whole on a rank has the order of NumPy's own call. In a line
    that is cut the elements keep their original order; with many places at once, and for text,
    records and complex numbers, the line is sorted. So the order depends on how the array is cut.
    Under `config.reproducible` every number of ranks returns the same array; a single line then
    takes two to three times as long as in NumPy.
    """
    x = as_distarray(a)
    places = _places(np.partition, x, kth, axis, kind, order)
    if places and _numpys(x, axis):
        return _by_numpy(faults.partition, x, places, axis, order)
    if not _selects(x, places):
        return sort(x, axis, order=order)
    x, axis = _lined_up(x, axis)
    many = _many_lines(x, axis)

    def whole(blocks: Sequence[Array], axis: int) -> Array:
        if many or not blocks[0].size or not config.settings.reproducible:
            return faults.partition(blocks[0], places, axis)
        return _by_line(lambda line: line[_order_at(line, places)], blocks[0], axis)

    def spread(parts: Sequence[Array], line: Line) -> Array:
        labels = _labels(parts[0], _selected(line, parts[0], places, x.mesh.to_host))
        return _routed(parts[0], labels, line)

    keys = comparable(x)
    return viewed(along_axis([keys], axis, Work(whole, spread, keys.dtype, many)), x.dtype)


@implements(np.argpartition, objects=Objects.GATHER)
def argpartition(
    a: ArrayLike,
    kth: ArrayLike,
    axis: int | None = -1,
    kind: str = "introselect",
    order: Fields = None,
) -> DistArray:
    """Return indices that partition an array; see :func:`numpy.argpartition`.

    Returns
    -------
    DistArray
        In the layout of the result of :func:`sort`.

    Cost
    ----
    The cost of :func:`partition`; for each element of a long line, a byte and an index are sent.

    Notes
    -----
    The order inside the parts is undefined, see :func:`partition`. In a line that is cut, and in a
    single line under `config.reproducible`, indices ascend before, between and after the requested
    elements, and among the elements equal to them.
    """
    x = as_distarray(a)
    places = _places(np.argpartition, x, kth, axis, kind, order)
    if places and _numpys(x, axis):
        return _by_numpy(faults.argpartition, x, places, axis, order)
    if not _selects(x, places):
        return argsort(x, axis, order=order)
    x, axis = _lined_up(x, axis)
    many = _many_lines(x, axis)

    def whole(blocks: Sequence[Array], axis: int) -> Array:
        if many or not blocks[0].size or not config.settings.reproducible:
            return faults.argpartition(blocks[0], places, axis)
        return _by_line(lambda line: _order_at(line, places), blocks[0], axis)

    def spread(parts: Sequence[Array], line: Line) -> Array:
        labels = _labels(parts[0], _selected(line, parts[0], places, x.mesh.to_host))
        return order_line(line.group, labels, line.lengths, line.stops, _order)

    return along_axis([comparable(x)], axis, Work(whole, spread, _INDEX, many))


@implements(DistArray.partition, writes=0, at=True, objects=Objects.GATHER)
def partition_in_place(
    x: DistArray, kth: ArrayLike, axis: int = -1, kind: str = "introselect", order: Fields = None
) -> None:
    """Partition ``x`` as :func:`partition` does, in the array's own layout and memory."""
    axis = operator.index(axis)
    places = _places(np.partition, x, kth, axis, kind, order)
    fits = x.layout.is_plain and not devices.on_device(x.block)  # CuPy does not partition views
    if places and fits and order is None and _numpys(x, axis):
        if kind := faults.sort_kind(x.dtype):
            x.block.sort(axis, kind)
        else:
            x.block.partition(places, axis)
    else:
        x[...] = call(np.partition, x, kth, axis=axis, kind=kind, order=order)


def _numpys(x: DistArray, axis: Axis) -> bool:
    """Return True if NumPy's call suffices: lines are whole, and parts may be in any order."""
    if config.settings.reproducible:
        return False
    axes = range(x.ndim) if axis is None else [operator.index(axis)]
    return all(x.layout.cuts[dim].parts == 1 for dim in axes)


def _by_numpy(
    function: Callable[..., Any], x: DistArray, places: Sequence[int], axis: Axis, order: Fields
) -> DistArray:
    """Return the result of NumPy's function for lines that are whole."""
    x, axis = _lined_up(x, axis)
    keys = x if order is None else comparable(x, order)
    found = keys.like(function(keys.block, places, axis))
    return viewed(found, x.dtype) if function is faults.partition else found


def _selects(x: DistArray, places: Sequence[int]) -> bool:
    """Return True if places are selected individually; otherwise everything is sorted."""
    return x.dtype.kind in "biufmM" and bool(x.ndim) and 0 < len(places) <= _MANY


def _lined_up(x: DistArray, axis: Axis) -> tuple[DistArray, int]:
    """Return the array, flattened if there is no axis, and the axis counted from the front."""
    if axis is None:
        return in_line(x).plain(), 0
    return x, normalize_axis_index(operator.index(axis), x.ndim)


def _many_lines(x: DistArray, axis: int) -> bool:
    """Return True if each line is sent to one rank; must not depend on the number of ranks."""
    others = [extent for dim, extent in enumerate(x.shape) if dim != axis]
    longest = max(others, default=1)
    return longest >= _LINES and x.nbytes // longest <= _LONG


def _by_line(function: Callable[[Array], Array], block: Array, axis: int) -> Array:
    """Apply a function to each line of a block along an axis."""
    if block.ndim == 1:
        return function(block)
    lines = np.moveaxis(block, axis, -1)
    found = [function(lines[place]) for place in np.ndindex(lines.shape[:-1])]
    return np.moveaxis(np.stack(found).reshape(lines.shape), -1, axis)


def _order_at(line: Array, places: Sequence[int]) -> Array:
    """Return the order of a line that puts the right elements at certain places."""
    return _order(_labels(line, faults.partition(line, places)[places]))


def _label(block: Array, value: Array) -> Array:
    """Return 0, 1 or 2 for elements below, equal to or above a value; NaN is above all others."""
    above, not_below = block > value, block >= value
    lost = np.isnan(block) if block.dtype.kind == "f" else None
    if lost is not None and lost.any():
        above = above | (lost & ~np.isnan(value))
        not_below = not_below | lost
    return above.view(np.uint8) + not_below.view(np.uint8)


def _labels(line: Array, values: Sequence[Array] | Array) -> Array:
    """Count for each element the values below it, plus the values not above it."""
    labels = _label(line, values[0])
    for value in values[1:]:
        labels += _label(line, value)
    return labels


def _order(labels: Array) -> Array:
    """Return the stable argsort of a few small numbers."""
    if not labels.size:
        return labels.astype(_INDEX)
    return np.concatenate([np.flatnonzero(labels == n) for n in range(int(labels.max()) + 1)])


def _routed(part: Array, labels: Array, line: Line) -> Array:
    """Return this rank's section of a line in the stable order of labels."""
    order = _order(labels)
    routed = Routed(line.group, labels[order], line.lengths, line.stops)
    return routed.carried(part[order])[_order(routed.keys)]


def _selected(
    line: Line, block: Array, places: Sequence[int], to_host: Callable[[Array], Array]
) -> list[Any]:
    """Return the elements that belong at certain places of a line."""
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


def _places(
    function: Callable[..., Any], x: DistArray, kth: ArrayLike, axis: Axis, kind: str, order: Fields
) -> list[int]:
    """Return the places, counted from the front; raise NumPy's exceptions about the arguments."""
    wanted = kth.full() if isinstance(kth, DistArray) else np.asarray(kth)
    first = np.zeros_like(wanted)
    probe = tiny(x.shape, x.dtype)
    function(probe, first if wanted.size else wanted, axis=axis, kind=kind, order=order)
    if not x.size or not wanted.size or not x.ndim:
        return []
    extent = x.size if axis is None else x.shape[axis]
    found = [int(number) + (extent if number < 0 else 0) for number in wanted.reshape(-1)]
    for place in found:
        if not 0 <= place < extent:
            raise ValueError(f"kth(={place}) out of bounds ({extent})")
    return sorted(set(found))
