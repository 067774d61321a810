"""Reshaping as a change of layout: the cuts that survive splitting and merging dimensions.

A reshape in C order pairs consecutive dimensions of the old shape with consecutive dimensions of
the new one that have as many elements (:func:`reshape_groups`). Within such a group a cut of the
leading dimension cuts the flattened group into contiguous stretches, and survives if the
boundaries fall between indices of the new leading dimension. A cut of any other dimension does
not survive. Dimensions of extent 1 are left out here: basic indexing adds and removes them.
"""

from collections.abc import Sequence
from itertools import accumulate
from math import prod

from distarray.layout.cut import Cut, Interval

__all__ = [
    "ReshapeGroup",
    "flat_boxes",
    "recounted_cut",
    "regrouped_cut",
    "reshape_groups",
    "rescaled_cut",
    "stretched_cut",
]

#: Dimensions of the old shape and of the new one, as half-open ranges.
#: ``((0, 1), (0, 2))``: the first dimension becomes the first two.
ReshapeGroup = tuple[Interval, Interval]


def reshape_groups(old: Sequence[int], new: Sequence[int]) -> tuple[ReshapeGroup, ...]:
    """Return the smallest groups of dimensions that a reshape maps onto each other.

    Parameters
    ----------
    old, new : tuple of int
        Shapes of equally many elements, every extent at least 2.

    Examples
    --------
    >>> reshape_groups((4, 6, 5), (2, 2, 30))
    (((0, 1), (0, 2)), ((1, 3), (2, 3)))
    """
    groups: list[ReshapeGroup] = []
    first = first_new = 0
    while first < len(old):
        last, last_new = first + 1, first_new + 1
        count, count_new = old[first], new[first_new]
        while count != count_new:
            if count < count_new:
                count *= old[last]
                last += 1
            else:
                count_new *= new[last_new]
                last_new += 1
        groups.append(((first, last), (first_new, last_new)))
        first, first_new = last, last_new
    return tuple(groups)


def regrouped_cut(cuts: Sequence[Cut], new: Sequence[int]) -> list[Cut] | None:
    """Return cuts of the new dimensions of a group that keep every element on its rank.

    Parameters
    ----------
    cuts : sequence of Cut
        The cuts of the old dimensions of the group.
    new : sequence of int
        The extents of the group's new dimensions.

    Returns
    -------
    list of Cut or None
        None if elements have to move.

    Examples
    --------
    >>> [rows] = regrouped_cut([Cut.chunked(4, (0,), (2,)), Cut.whole(3)], [12])
    >>> [rows.interval(part) for part in range(2)]
    [(0, 6), (6, 12)]
    """
    if len(cuts) == len(new) == 1:
        return list(cuts)
    dividing = [dim for dim, cut in enumerate(cuts) if cut.parts > 1]
    if not dividing:
        lead: Cut | None = Cut.whole(new[0])
    elif dividing == [0]:
        lead = rescaled_cut(cuts[0], prod([c.extent for c in cuts[1:]]), prod(new[1:]))
    else:
        return None
    if lead is None:
        return None
    # Mesh dimensions of size 1 divide nothing, but keep their placement.
    idle = tuple([m for cut in cuts if cut.parts == 1 for m in cut.mesh_dims])
    if idle:
        radix = (*lead.radix, *[1] * len(idle))
        lead = lead._replace(mesh_dims=(*lead.mesh_dims, *idle), radix=radix)
    return [lead, *[Cut.whole(extent) for extent in new[1:]]]


def rescaled_cut(cut: Cut, times: int, over: int = 1) -> Cut | None:
    """Return the cut whose boundaries are those of `cut` times ``times / over``.

    This is the cut of the leading dimension after `times` elements have been merged into each of
    its indices, and `over` elements have been split off each new index. Return None if a boundary
    is no integer.

    Examples
    --------
    >>> halves = Cut.chunked(6, (0,), (2,))
    >>> [rescaled_cut(halves, 5).interval(part) for part in range(2)]
    [(0, 15), (15, 30)]
    >>> rescaled_cut(halves, 1, 2) is None  # a boundary at 3 / 2
    True
    """
    if times == over:
        return cut
    found = _rescaled_evenly(cut, times, over)
    if found is not None:
        return found
    counts = []
    for part in range(cut.parts):
        start, stop = cut.interval(part)
        if start < stop and (start * times % over or stop * times % over):
            return None
        counts.append((stop - start) * times // over)
    return recounted_cut(cut, counts)


def recounted_cut(cut: Cut, counts: Sequence[int]) -> Cut:
    """Return a cut along the same mesh dimensions, with blocks of other lengths in the same order.

    Parameters
    ----------
    cut : Cut
        A cut of any extent.
    counts : sequence of int
        The new length of each block, by block number.

    Examples
    --------
    >>> cut = recounted_cut(Cut.chunked(6, (0,), (3,)), [1, 0, 4])
    >>> cut.extent, [cut.interval(part) for part in range(3)]
    (5, [(0, 1), (1, 1), (1, 5)])
    """
    if cut.step > 0:
        return Cut.ragged(counts, cut.mesh_dims, cut.radix)
    bounds = (0, *accumulate(counts))
    extent = bounds[-1]
    return Cut(extent, cut.mesh_dims, cut.radix, extent, extent - 1, -1, bounds)


def _rescaled_evenly(cut: Cut, times: int, over: int) -> Cut | None:
    """Return `rescaled_cut` if it needs no explicit bounds; otherwise None."""
    if cut.bounds is not None or abs(cut.step) != 1 or not _is_even(cut.radix, cut.base):
        return None
    block = -(-cut.base // cut.parts)
    origin = cut.offset + (cut.step < 0)  # the boundary before index 0
    if block * times % over or origin * times % over:
        return None
    extent, block = cut.extent * times // over, block * times // over
    offset = origin * times // over - (cut.step < 0)
    starts_alike = cut.step == 1 and not offset
    if starts_alike and -(-extent // cut.parts) == block and _is_even(cut.radix, extent):
        return Cut.chunked(extent, cut.mesh_dims, cut.radix)
    return Cut(extent, cut.mesh_dims, cut.radix, block * cut.parts, offset, cut.step)


def _is_even(radix: tuple[int, ...], extent: int) -> bool:
    """Return True if all blocks of the canonical cut, except for the last, are equally long."""
    return extent % prod(radix) == 0 or sum([size > 1 for size in radix]) <= 1


def stretched_cut(cut: Cut, before: int, after: int) -> Cut:
    """Return the cut of a dimension extended at both ends; the outermost blocks grow.

    Examples
    --------
    >>> cut = stretched_cut(Cut.chunked(6, (0,), (3,)), 1, 2)
    >>> cut.extent, [cut.interval(part) for part in range(3)]
    (9, [(0, 3), (3, 5), (5, 9)])
    """
    counts = [stop - start for start, stop in map(cut.interval, range(cut.parts))]
    held = [part for part, count in enumerate(counts) if count] or [0]
    first, last = (held[0], held[-1]) if cut.step > 0 else (held[-1], held[0])
    counts[first] += before
    counts[last] += after
    return recounted_cut(cut, counts)


def flat_boxes(start: int, stop: int, shape: Sequence[int]) -> list[tuple[Interval, ...]]:
    """Return the boxes that make up a range of the flattened index space, in C order.

    There are at most ``2 * len(shape) - 1`` boxes. Each box is itself a range of the flattened
    space: single indices, then a range, then whole dimensions.

    Examples
    --------
    >>> flat_boxes(3, 11, (4, 4))
    [((0, 1), (3, 4)), ((1, 2), (0, 4)), ((2, 3), (0, 3))]
    """
    if start >= stop:
        return []
    if len(shape) <= 1:
        return [((start, stop),)] if shape else [()]
    row = prod(shape[1:])
    first, last = -(-start // row), stop // row
    if first > last:
        return _in_row(last, start, stop, shape)
    boxes = _in_row(first - 1, start, first * row, shape)
    if first < last:
        boxes.append(((first, last), *[(0, extent) for extent in shape[1:]]))
    return boxes + _in_row(last, last * row, stop, shape)


def _in_row(index: int, start: int, stop: int, shape: Sequence[int]) -> list[tuple[Interval, ...]]:
    origin = index * prod(shape[1:])
    inner = flat_boxes(start - origin, stop - origin, shape[1:])
    return [((index, index + 1), *box) for box in inner]
