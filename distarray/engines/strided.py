"""Strided views of a 1-d array, whose rows may extend into the blocks of other ranks.

A strided view accesses one contiguous range of memory. Each rank therefore owns the rows that begin
in its block, and stores a copy of the range of the array that they access: usually its block and a
border. If rows overlap, several ranks store the same elements. The values that one rank writes to
these elements are sent to the owners at once, and from the owners to all other ranks.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import gcd
from typing import Any

import numpy as np

from distarray.array import DistArray, wrap
from distarray.array.base import raw_block
from distarray.array.geometry import within
from distarray.array.memory import is_writeable
from distarray.array.portable import make_read_only
from distarray.array.retyping import across
from distarray.array.sharing import derived, link
from distarray.array.storage import vacant
from distarray.array.views import permuted
from distarray.engines.halos import returned, spanning
from distarray.engines.reshaping import reshaped, reshaped_layout
from distarray.layout import Cut, Interval, Layout, recounted_cut
from distarray.typing import Array, DType, Shape

__all__ = ["across_cuts", "in_order", "offset_in", "over_line", "strided"]


def in_order(x: DistArray) -> tuple[DistArray, Array, Array] | None:
    """Return a 1-d view of all elements in the memory of an array, as far as it is known.

    Returns
    -------
    tuple or None
        The view, and two host arrays in a model address space, for all elements and for `x`. None
        if the array nearest to the beginning of the memory has gaps.

    Cost
    ----
    That of :func:`~distarray.engines.reshaping.reshaped`.
    """
    found = within(x)
    if found is None:
        return None
    top, order, space, place = found
    if order == "F":
        top = permuted(top, range(top.ndim)[::-1])
    return reshaped(top, (top.size,)), space, place


def across_cuts(x: DistArray, dtype: DType, size: int) -> DistArray:
    """View an array as items of another size, if a cut of the last dimension splits new items.

    Parameters
    ----------
    x : DistArray
        An array whose last dimension can be viewed as `dtype`.
    dtype : dtype
    size : int
        Bytes of an item of `dtype`.

    Cost
    ----
    That of a reshape that makes the old items of each new item a dimension, if this dimension can
    be whole on every rank. Else that of :func:`strided`.
    """
    few = size // gcd(size, x.itemsize)
    *outer, last = x.shape
    groups = (*outer, last // few, few)
    if reshaped_layout(x.layout, groups)[0].cuts[-1].parts == 1:
        viewed = reshaped(x, groups).view(dtype)
        inner = viewed.shape[len(groups) :]
        return reshaped(viewed, (*outer, last * x.itemsize // size, *inner))
    return over_line(x, dtype, size)


def over_line(x: DistArray, dtype: DType, size: int) -> DistArray:
    """View an array as :func:`across_cuts`, as a strided view of its memory in one dimension."""
    found = in_order(x)
    if found is None:
        raise ValueError(
            f"view({dtype}) of {x.dtype}: the last dimension is cut between ranks in the middle of "
            "a new item, in memory that has gaps; x.copy() has its own"
        )
    line, space, place = found
    view = place.view(dtype)
    offset = offset_in(space, view)
    return strided(line, view.shape, view.strides, offset, view.dtype, is_writeable(raw_block(x)))


across += [across_cuts, over_line]


def offset_in(space: Array, place: Array) -> int:
    """Return the offset in bytes of an array from the beginning of its address space."""
    address: int = place.__array_interface__["data"][0]
    return address - np.lib.array_utils.byte_bounds(space)[0]


def strided(
    line: DistArray, shape: Shape, strides: Shape, offset: int, dtype: DType, writeable: bool
) -> DistArray:
    """Return a view of a 1-d array with given shape and strides.

    Parameters
    ----------
    line : DistArray
        The 1-d array, cut, and stored without gaps.
    shape : tuple of int
        Shape of the view, with at least one element.
    strides : tuple of int
        Strides of the view in bytes.
    offset : int
        Bytes from the first element of `line` to the first of the view. All elements of the view
        are in `line`.
    dtype : dtype
        Data type of the view.
    writeable : bool
        True if the view is writeable whenever `line` is.

    Returns
    -------
    DistArray
        Read-only if rows overlap and NumPy's order of writing to them differs from the order of
        the ranks. For negative strides NumPy writes in the same order as for positive ones.

    Cost
    ----
    None if the view is a slice of a reshape of `line` that is itself a view. Else a message to a
    neighbor with the elements across the border, here and whenever `line` has been written to.
    """
    if not shape:
        return strided(line, (1,), (0,), offset, dtype, writeable).sliced((0,))
    backwards = [dim for dim, step in enumerate(strides) if step < 0 and shape[dim] > 1]
    for dim in backwards:
        offset += strides[dim] * (shape[dim] - 1)
    steps = tuple([abs(step) if n > 1 else 0 for step, n in zip(strides, shape, strict=True)])
    found = _sliced(line, shape, steps, offset, dtype)
    if found is None:
        found = _linked(line, shape, steps, offset, dtype, writeable)
    if not writeable:
        make_read_only(raw_block(found))
    if backwards:
        entries = [(0, 1, n) for n in shape]
        for dim in backwards:
            entries[dim] = (shape[dim] - 1, -1, shape[dim])
        found = found.sliced(tuple(entries))
    return found


def _sliced(
    line: DistArray, shape: Shape, steps: Shape, offset: int, dtype: DType
) -> DistArray | None:
    """Return the view as a reshaped slice of the line; None if it is not such a slice."""
    size = line.itemsize
    dims = sorted([dim for dim in range(len(shape)) if shape[dim] > 1], key=lambda d: -steps[d])
    if dtype != line.dtype or offset % size or not dims or steps[dims[-1]] % size:
        return None
    step = inner = steps[dims[-1]] // size
    for dim in reversed(dims):
        if not step or steps[dim] != step * size:
            return None
        step *= shape[dim]
    count = step // inner
    part = line.sliced(((offset // size, inner, count),))
    part = reshaped(part, tuple([shape[dim] for dim in dims]), viewable=lambda x, groups: True)
    part = permuted(part, np.argsort(dims).tolist())
    entries = [None if n == 1 else (0, 1, n) for n in shape]
    return part.sliced(tuple(entries)) if None in entries else part


class _Rows:
    """Rows of a strided view: their cut, and the range of the line that each rank's rows access.

    Attributes
    ----------
    cut : Cut
        The cut of the rows.
    """

    def __init__(self, line: DistArray, count: int, step: int, offset: int, span: int) -> None:
        self._line, self._step, self._offset, self._span = line.layout.cuts[0], step, offset, span
        self._size = line.itemsize
        counts = []
        for part in range(self._line.parts):
            first, last = [self._row_at(place, count) for place in self._line.interval(part)]
            counts.append(max(0, last - first))
        self.cut = recounted_cut(self._line, counts)

    def _row_at(self, place: int, count: int) -> int:
        """Return the first row that begins at or after an index of the line."""
        behind = place * self._size - self._offset
        if behind <= 0:
            return 0
        return count if not self._step else min(count, -(-behind // self._step))

    def needs(self, part: int) -> Interval:
        """Return the range of elements that a rank's rows access."""
        first, last = self.cut.interval(part)
        if first >= last:
            return 0, 0
        begin = self._offset + first * self._step
        end = self._offset + (last - 1) * self._step + self._span
        return begin // self._size, -(-end // self._size)

    def askers(self, start: int, stop: int) -> list[int]:
        """Return the ranks that need any element of a range."""
        found = [(part, self.needs(part)) for part in range(self.cut.parts)]
        return [part for part, (low, high) in found if low < stop and start < high]

    def overlap(self) -> bool:
        """Return True if several ranks need the same element."""
        ends = sorted([self.needs(part) for part in range(self.cut.parts)])
        held = [end for end in ends if end[0] < end[1]]
        return any(a[1] > b[0] for a, b in pairwise(held))


class Spans:
    """Transfer between a line and the ranges of it that the ranks' rows access."""

    def __init__(self, rows: _Rows, stretch: Array, overlaps: bool) -> None:
        self._rows, self._stretch, self.overlaps = rows, stretch, overlaps
        self._before = stretch.copy() if self.overlaps else stretch
        self._written: Array | None = None
        self._backwards = False

    def down(self, source: Any, target: Any) -> None:
        """Copy the elements that the rows access from the line."""
        self._stretch[...] = spanning(source, 0, self._rows.needs, self._rows.askers)
        if self.overlaps:
            self._before[...] = self._stretch

    def up(self, source: Any, target: Any) -> None:
        """Copy written elements back to their owners; of several ranks' values the last written."""
        written = None
        if self.overlaps:
            written = self._changed() if self._written is None else self._written
        rows, backwards = self._rows, self._backwards
        self._written, self._backwards = None, False
        returned(self._stretch, written, target, rows.needs, rows.askers, backwards)

    def _changed(self) -> Array:
        """Return a flag for each byte: 1 for elements, or bytes of records, that have changed."""
        kind = "u1" if self._stretch.dtype.fields else f"V{self._stretch.itemsize}"
        new, old = (part.view(kind) for part in (self._stretch, self._before))
        return np.repeat((new != old).view("u1"), new.itemsize)

    def note(self, x: Any, block: Array, strides: Shape, whole: bool) -> None:
        """Note which items of a view of the rows were written, and in which order by NumPy.

        NumPy writes by strides, then by dimensions. If a dimension with the rows' own stride comes
        before them, as in transposed windows, then the first of the rows that share an element is
        the last one written.
        """
        lead = next((dim for dim, cut in enumerate(x.layout.cuts) if cut.parts > 1), 0)
        before = zip(x.layout.shape[:lead], strides, strict=False)
        self._backwards = any(n > 1 and abs(s) == abs(strides[lead]) for n, s in before)
        if self._written is None:
            self._written = np.zeros(self._stretch.nbytes, "u1")
        if block.size and x.layout.holds(x.mesh.coords):
            new, old, flags = self._bytes_of(block, self._written)
            flags[...] |= True if whole else (new != old).any(axis=-1, keepdims=True)

    def _bytes_of(self, block: Array, written: Array) -> Iterator[Array]:
        """Yield the bytes of each item of a view: as they are, as they were, and their flags."""
        steps, shape = (*block.strides, 1), (*block.shape, block.itemsize)
        first = block.__array_interface__["data"][0] - self._stretch.__array_interface__["data"][0]
        for part in (self._stretch, self._before, written):
            yield np.ndarray(shape, "u1", part.view("u1"), first, steps)


def _linked(
    line: DistArray, shape: Shape, steps: Shape, offset: int, dtype: DType, in_turn: bool
) -> DistArray:
    """Return the view as rows over a copy of each rank's range, linked to the line."""
    if line.layout.ats:
        return derived(line, lambda y: _of_lone(y, shape, steps, offset, dtype))
    lead = max(range(len(shape)), key=lambda d: (steps[d], shape[d]))
    span = sum([step * (n - 1) for step, n in zip(steps, shape, strict=True)])
    span += dtype.itemsize - steps[lead] * (shape[lead] - 1)
    mesh = line.mesh
    rows = _Rows(line, shape[lead], steps[lead], offset, span)
    cuts = [Cut.whole(n) for n in shape]
    cuts[lead] = rows.cut
    layout = Layout.from_cuts(cuts, mesh.shape)
    stretch = mesh.xp.array(spanning(line, 0, rows.needs, rows.askers), copy=True)
    first = 0
    if mesh.coords is not None:
        part = line.layout.cuts[0].part(mesh.coords)
        begin = offset + rows.cut.interval(part)[0] * steps[lead]
        first = begin - rows.needs(part)[0] * line.itemsize
    block = _laid_over(mesh.xp, stretch, layout.local_shape(mesh.coords), steps, first, dtype)
    found = wrap(block, layout, mesh)
    overlaps = rows.overlap()
    in_turn = in_turn and all(n == 1 for n in shape[:lead])
    if not is_writeable(raw_block(line)) or (overlaps and not in_turn):
        make_read_only(block)
    transfer = Spans(rows, stretch, overlaps and in_turn)

    def make(y: Any) -> Any:
        block = _laid_over(np, y.block, shape, steps, offset, dtype)
        return wrap(block, Layout.replicated(shape, y.layout.mesh_shape), y.mesh)

    link(line, found, transfer, make)
    return found


def _of_lone(y: Any, shape: Shape, steps: Shape, offset: int, dtype: DType) -> Any:
    """Return the view of a line that is stored at a single mesh coordinate."""
    whole = [Cut.whole(n) for n in shape]
    layout = Layout.from_cuts(whole, y.mesh.shape, y.layout.others)
    if not layout.holds(y.mesh.coords):
        return wrap(vacant(y.block[:0].view(dtype), layout, y.mesh), layout, y.mesh)
    return wrap(_laid_over(y.mesh.xp, y.block, shape, steps, offset, dtype), layout, y.mesh)


def _laid_over(
    xp: Any, stretch: Array, shape: Shape, steps: Shape, first: int, dtype: DType
) -> Array:
    """Return the view of a contiguous range by strides in bytes."""
    if 0 in shape or not stretch.size:
        return stretch[:0].view("u1")[:0].view(dtype).reshape(shape)
    if xp is not np:
        rest = stretch.view("u1")[first:]
        items = rest[: len(rest) // dtype.itemsize * dtype.itemsize].view(dtype)
        of_device: Array = xp.lib.stride_tricks.as_strided(items, shape, steps)
        return of_device
    found: Array = np.ndarray(shape, dtype, stretch.view("u1"), first, steps)
    if not stretch.flags.writeable:
        found.flags.writeable = False
    return found
