"""insert, delete and trim_zeros: indices are added or removed; the elements stay on their ranks."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distarray.array import DistArray, as_distarray, call, common_mesh, implements, to_layout, wrap
from distarray.array import portable as blocks
from distarray.array.one_rank import Alone
from distarray.array.probes import hollow
from distarray.array.storage import is_fortran_alone
from distarray.engines.assembling import assemble
from distarray.engines.indexing.values import as_values
from distarray.engines.reshaping import in_line
from distarray.layout import Cut, Fold, Interval, Layout, recounted_cut
from distarray.ops.rearranging import balanced, shared_lengths
from distarray.ops.shape import moveaxis
from distarray.plan import restrict
from distarray.typing import Array, ArrayLike, Axes, Axis, Shape

__all__ = ["delete", "insert", "trim_zeros"]


class _Chosen(Protocol):
    """Indices along a dimension, known on all ranks."""

    def below(self, position: int) -> int:
        """Count the indices before a position."""

    def within(self, start: int, stop: int) -> slice | Array:
        """Return the indices in an interval, relative to its start, for :func:`numpy.delete`."""


class _Stride:
    """Indices of a slice."""

    def __init__(self, entry: slice, extent: int) -> None:
        found = range(*entry.indices(extent))
        self.found = found if found.step > 0 else found[::-1]

    def below(self, position: int) -> int:
        """See :class:`_Chosen`."""
        found = self.found
        return min(max(-((found.start - position) // found.step), 0), len(found))

    def within(self, start: int, stop: int) -> slice:
        """See :class:`_Chosen`."""
        part = self.found[self.below(start) : self.below(stop)]
        return slice(part.start - start, max(part.stop - start, 0), part.step) if part else slice(0)


class _Listed:
    """Indices listed individually, in ascending order."""

    def __init__(self, numbers: Array) -> None:
        self.numbers = numbers

    def below(self, position: int) -> int:
        """See :class:`_Chosen`."""
        return int(np.searchsorted(self.numbers, position))

    def within(self, start: int, stop: int) -> Array:
        """See :class:`_Chosen`."""
        return self.numbers[self.below(start) : self.below(stop)] - start


def _flattened(arr: ArrayLike, axis: Axis, *others: ArrayLike | slice) -> tuple[DistArray, int]:
    x = as_distarray(arr, common_mesh(arr, *others))
    if axis is None:
        return (x if x.ndim == 1 else in_line(x).plain()), 0  # a short line may be on one rank
    return x, normalize_axis_index(axis, x.ndim)


# -- delete --------------------------------------------------------------------------------------


@implements(np.delete, computes=False, alone=Alone())
def delete(arr: ArrayLike, obj: ArrayLike | slice, axis: int | None = None) -> DistArray:
    """Delete some indices of a dimension.

    Parameters
    ----------
    arr : DistArray
        Any placement.
    obj : slice, int, array of int or of bool
        The indices to delete. A mask may be a sharded DistArray.
    axis : int, optional
        The dimension. None flattens first.

    Returns
    -------
    DistArray
        The remaining elements stay on their ranks, so blocks may differ in length. If a block is
        more than twice as long as in an even cut, the result is cut evenly.

    Cost
    ----
    None if `obj` is known on all ranks. A sharded mask is sent to the ranks of the elements, and
    one integer per rank is gathered along the mesh dimensions that cut `axis`. For a slice or a
    single index, if the blocks do not show the order of elements in memory, two allreduces of an
    integer.

    Raises
    ------
    IndexError
        If an index is out of bounds, on all ranks.
    """
    x, axis = _flattened(arr, axis, obj)
    if isinstance(obj, DistArray) and obj.ndim:
        return _deleted_by_mask(x, _as_mask(obj, x, axis), axis)
    if isinstance(obj, DistArray):
        obj = obj.full()
    chosen = _chosen(obj, x.shape[axis], axis)
    cut = x.layout.cuts[axis]
    lengths = []
    for part in range(cut.parts):
        start, stop = cut.interval(part)
        lengths.append(stop - start - chosen.below(stop) + chosen.below(start))
    start, stop = x.layout.section(x.mesh.coords)[axis]
    block = blocks.delete(x.to_local(), chosen.within(start, stop), axis)
    result = _cut_anew(x, block, axis, lengths)
    return _stored_as(x, result) if isinstance(chosen, _Stride) else result


def _cut_anew(arr: DistArray, block: Array, axis: int, lengths: list[int]) -> DistArray:
    """Return the result with these block lengths along an axis; cut evenly if they differ much."""
    layout = _with_lengths(arr.layout, axis, lengths)
    return balanced(wrap(block, layout, arr.mesh), axis)


def _stored_as(arr: DistArray, result: DistArray) -> DistArray:
    """Return the result in Fortran order if the array is, as NumPy stores it."""
    if is_fortran_alone(arr):
        block = arr.mesh.xp.empty(result.block.shape, arr.dtype, order="F")
        block[...] = result.block
        result.block = block
    return result


def _with_lengths(layout: Layout, axis: int, lengths: list[int]) -> Layout:
    """Return the layout with other lengths of the blocks along an axis."""
    cut = layout.cuts[axis]
    new = recounted_cut(cut, lengths) if cut.mesh_dims else Cut.whole(lengths[0])
    return layout.replace(axis, new)


def _chosen(obj: ArrayLike | slice, extent: int, axis: int) -> _Chosen:
    if isinstance(obj, slice):
        return _Stride(obj, extent)
    numbers = np.asarray(obj)
    if not numbers.size and not isinstance(obj, np.ndarray):
        numbers = numbers.astype(np.intp)
    if numbers.dtype == bool:
        if numbers.shape != (extent,):
            raise ValueError(
                "boolean array argument obj to delete must be one dimensional and match the axis "
                f"length of {extent}"
            )
        return _Listed(np.flatnonzero(numbers))
    single = numbers.size == 1
    for number in (numbers.ravel().tolist()) if single else ():
        if not isinstance(number, int) or not -extent <= number < extent:
            raise IndexError(f"index {obj} is out of bounds for axis {axis} with size {extent}")
    if numbers.dtype.kind not in "iu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    return _listed(_counted_from_front(numbers.ravel(), extent, axis), extent)


def _listed(numbers: Array, extent: int) -> _Chosen:
    """Return individual indices; a single one as a slice, as NumPy stores the result then."""
    if numbers.size == 1:
        return _Stride(slice(int(numbers[0]), int(numbers[0]) + 1), extent)
    return _Listed(np.unique(numbers))


def _counted_from_front(numbers: Array, extent: int, axis: int) -> Array:
    numbers = numbers.astype(np.intp)
    wrong = (numbers < -extent) | (numbers >= extent)
    if wrong.any():
        raise IndexError(
            f"index {numbers[wrong][0]} is out of bounds for axis {axis} with size {extent}"
        )
    return np.where(numbers < 0, numbers + extent, numbers)


def _as_mask(obj: DistArray, arr: DistArray, axis: int) -> DistArray:
    """Return the mask of the indices to delete; integers become a mask cut as the dimension."""
    extent = arr.shape[axis]
    if obj.dtype == bool:
        if obj.shape != (extent,):
            raise ValueError(
                "boolean array argument obj to delete must be one dimensional and match the axis "
                f"length of {extent}"
            )
        return obj
    layout = Layout.from_cuts([arr.layout.cuts[axis]], arr.mesh.shape)
    block = arr.mesh.xp.zeros(layout.local_shape(arr.mesh.coords), bool)
    mask = wrap(block, layout, arr.mesh)
    mask[in_line(obj)] = True
    return mask


def _deleted_by_mask(arr: DistArray, mask: DistArray, axis: int) -> DistArray:
    cut = arr.layout.cuts[axis]
    local = to_layout(mask, Layout.from_cuts([cut], arr.mesh.shape)).block
    block = blocks.delete(arr.to_local(), local, axis)
    return _cut_anew(arr, block, axis, shared_lengths(block.shape[axis], cut, arr.mesh))


# -- insert --------------------------------------------------------------------------------------


@implements(np.insert, alone=Alone())
def insert(
    arr: ArrayLike, obj: ArrayLike | slice, values: ArrayLike, axis: int | None = None
) -> DistArray:
    """Insert values before some indices of a dimension.

    Parameters
    ----------
    arr : DistArray
        Any placement.
    obj : int, slice, or sequence of int or of bool
        The indices before which values are inserted; every rank gets all of them.
    values : array_like
        The values to insert, broadcast as in :func:`numpy.insert`.
    axis : int, optional
        The dimension. None flattens first.

    Returns
    -------
    DistArray
        The elements of `arr` stay on their ranks and the values join them, so blocks may differ in
        length. If a block is more than twice as long as in an even cut, the result is cut evenly.
        An array in Fortran order keeps this order.

    Cost
    ----
    None for values that all ranks have. Sharded values are sent to the ranks that insert them. If
    the blocks do not show the order of elements in memory, two allreduces of an integer.

    Raises
    ------
    IndexError
        If an index is out of bounds, on all ranks.
    """
    x, axis = _flattened(arr, axis, obj, values)
    result = _inserted(x, obj, values, axis)
    return _stored_as(x, result)


def _inserted(x: DistArray, obj: ArrayLike | slice, values: ArrayLike, axis: int) -> DistArray:
    """Insert values before some indices; the order in memory is arbitrary."""
    extent = x.shape[axis]
    numbers, printed = _insertion_points(obj, extent)
    if numbers.size == 1:
        return _insert_run(x, numbers, values, axis, printed)
    if not numbers.size and not isinstance(obj, np.ndarray):
        numbers = numbers.astype(np.intp)
    np.empty(0, bool)[numbers[:0]]  # raises NumPy's exception for types that are not integers
    numbers = np.where(numbers < 0, numbers + extent, numbers)
    wrong = (numbers < 0) | (numbers > extent)
    if wrong.any():
        raise IndexError(
            f"index {numbers[wrong][0]} is out of bounds for axis {axis} with size {extent}"
        )
    return _insert_each(x, numbers, as_distarray(as_values(values, x.dtype), x.mesh), axis)


def _insertion_points(obj: ArrayLike | slice, extent: int) -> tuple[Array, Any]:
    """Return the indices as NumPy reads them, and as its error messages print them."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(extent), dtype=np.intp), obj
    if isinstance(obj, DistArray):
        obj = obj.full()
    numbers = np.array(obj)
    if numbers.dtype == bool:
        if numbers.ndim != 1:
            raise ValueError("boolean array argument obj to insert must be one dimensional")
        return np.flatnonzero(numbers), obj
    if numbers.ndim > 1:
        raise ValueError("index array argument obj to insert must be one dimensional or scalar")
    return numbers, obj


def _insert_run(
    arr: DistArray, numbers: Array, values: ArrayLike, axis: int, obj: ArrayLike | slice
) -> DistArray:
    """Insert all the values before a single index."""
    extent = arr.shape[axis]
    number = numbers.item()
    if not -extent <= number <= extent:
        raise IndexError(f"index {obj} is out of bounds for axis {axis} with size {extent}")
    number = number + extent if number < 0 else number
    new: DistArray = as_distarray(as_values(values, arr.dtype), arr.mesh)
    if type(number) is not int:
        [][:number]  # raises NumPy's exception
    new = new.sliced((None,) * (arr.ndim - new.ndim) + _ends(new.shape))
    if numbers.ndim == 0:
        new = moveaxis(new, 0, axis)
    count = new.shape[axis]
    layout = _with_lengths(arr.layout, axis, _grown(arr.layout.cuts[axis], np.full(count, number)))
    ends = [list(_ends(arr.shape)) for _ in range(2)]
    ends[0][axis], ends[1][axis] = (0, 1, number), (number, 1, extent - number)
    origin = [0] * arr.ndim
    origin[axis] = number + count
    parts = [
        ((0,) * arr.ndim, arr.sliced(tuple(ends[0]))),
        (tuple(origin), arr.sliced(tuple(ends[1]))),
    ]
    shape = arr.shape[:axis] + (extent + count,) + arr.shape[axis + 1 :]
    result = assemble(shape, arr.dtype, parts, arr.mesh, layout)
    gap = list(_ends(shape))
    gap[axis] = (number, 1, count)
    result.sliced(tuple(gap)).assign(new)
    return balanced(result, axis)


def _ends(shape: Shape) -> tuple[tuple[int, int, int], ...]:
    """Return the entries of :meth:`DistArray.sliced` that keep every dimension whole."""
    return tuple([(0, 1, extent) for extent in shape])


def _grown(cut: Cut, numbers: Array) -> list[int]:
    """Return the block lengths after insertion before these (sorted) indices."""
    return [stop - start + high - low for (start, stop), (low, high) in _shares(cut, numbers)]


def _shares(cut: Cut, numbers: Array) -> list[tuple[Interval, Interval]]:
    """Return each block's interval, and the interval of the sorted insertions into it.

    An insertion belongs to the block that holds the index after it; at the very end, to the last
    block.
    """
    shares = []
    closed = False
    for part in range(cut.parts):
        start, stop = cut.interval(part)
        last = not closed and stop == cut.extent and (start < stop or not cut.extent)
        closed = closed or last
        low = int(np.searchsorted(numbers, start)) if start < stop or last else 0
        high = len(numbers) if last else int(np.searchsorted(numbers, stop))
        shares.append(((start, stop), (low, high if start < stop or last else low)))
    return shares


def _insert_each(arr: DistArray, numbers: Array, values: DistArray, axis: int) -> DistArray:
    """Insert one value before each of several indices."""
    order = numbers.argsort(kind="stable")
    shape = arr.shape[:axis] + (len(numbers),) + arr.shape[axis + 1 :]
    np.broadcast_to(hollow(values.shape, values.dtype), shape)  # raises for wrong shapes
    cut, coords = arr.layout.cuts[axis], arr.mesh.coords
    shares = _shares(cut, numbers[order])
    lengths = [stop - start + high - low for (start, stop), (low, high) in shares]
    there = Cut.whole(len(numbers))
    along = axis - arr.ndim + values.ndim
    several = along >= 0 and values.shape[along] != 1  # else all ranks need the whole values
    if several and cut.mesh_dims:
        there = recounted_cut(cut, [high - low for _, (low, high) in shares])
    if several and (np.diff(order) < 0).any():
        values = call(np.take, values, order, along)
    layout = arr.layout.replace(axis, there)
    part = to_layout(values, restrict(layout, values.shape)).block
    (start, _), (low, high) = shares[cut.part(coords)] if coords is not None else ((0, 0), (0, 0))
    local = arr.mesh.xp.broadcast_to(part, _local(arr, axis, high - low))
    block = blocks.insert(arr.to_local(), numbers[order][low:high] - start, local, axis)
    return _cut_anew(arr, block, axis, lengths)


def _local(arr: DistArray, axis: int, count: int) -> Shape:
    shape = list(arr.to_local().shape)
    shape[axis] = count
    return tuple(shape)


# -- trim_zeros ----------------------------------------------------------------------------------


@implements(np.trim_zeros, at=True, computes=False)
def trim_zeros(filt: ArrayLike, trim: str = "fb", axis: Axes = None) -> DistArray:
    """Return the array without the zeros at its ends, as a view; see :func:`numpy.trim_zeros`.

    Parameters
    ----------
    filt : DistArray
        Any placement.
    trim : {"fb", "f", "b"}
        The ends to trim, front and back.
    axis : int or tuple of int, optional
        The dimensions to trim; all by default.

    Returns
    -------
    DistArray
        A view; the elements stay on their ranks.

    Cost
    ----
    One allreduce of two integers per dimension.
    """
    x = as_distarray(filt)
    ends = trim.lower()
    if ends not in {"fb", "bf", "f", "b"}:
        raise ValueError(f"unexpected character(s) in `trim`: {trim!r}")
    axes = range(x.ndim) if axis is None else normalize_axis_tuple(axis, x.ndim, "axis")
    low, high = _bounds_of_nonzero(x)
    entries = list(_ends(x.shape))
    for dim in axes:
        start = low[dim] if "f" in ends else 0
        stop = high[dim] if "b" in ends else x.shape[dim]
        entries[dim] = (start, 1, max(stop - start, 0))
    return x.sliced(tuple(entries))


def _bounds_of_nonzero(x: DistArray) -> tuple[list[int], list[int]]:
    """Return the smallest box around all nonzero elements; an empty box if there are none."""
    section = x.layout.section(x.mesh.coords)
    found = np.array([[*x.shape], [0] * x.ndim]) if x.ndim else np.zeros((2, 0), int)
    block = x.mesh.to_host(x.to_local())
    if block.dtype.names is None:
        block = block.astype(bool)
    else:  # structured elements cannot be cast to truth values
        nonzero = np.nonzero(block)
        block = np.zeros(block.shape, bool)
        block[nonzero] = True
    for dim, (start, _) in enumerate(section):
        where = np.flatnonzero(block.any(tuple([d for d in range(x.ndim) if d != dim])))
        if where.size:
            found[:, dim] = start + where[0], start + where[-1] + 1
    found[1] *= -1
    if not x.layout.is_replicated:
        found = x.mesh.group.allreduce(found, Fold.MIN, "bounds of nonzero elements")
    return found[0].tolist(), (-found[1]).tolist()
