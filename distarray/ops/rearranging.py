"""roll, tile, repeat, resize and copy: the same elements in other places, or several times."""

from collections.abc import Sequence
from itertools import product
from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distarray.array import (
    DistArray,
    as_distarray,
    default_layout,
    grown_layout,
    implements,
    to_layout,
    wrap,
)
from distarray.array import portable as blocks
from distarray.array.one_rank import Alone
from distarray.array.probes import as_axis
from distarray.array.small import bounded
from distarray.array.storage import stored_order
from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.engines.assembling import Part, assemble
from distarray.engines.reshaping import in_line, refitted, reshaped
from distarray.layout import Cut, Layout, recounted_cut, rescaled_cut
from distarray.ops.broadcasting import stretched
from distarray.ops.joining import concatenate
from distarray.typing import Array, ArrayLike, Axes, Order, ShapeLike

__all__ = ["balanced", "copy", "is_balanced", "repeat", "resize", "roll", "tile"]


@implements(np.roll, at=True, computes=False, alone=Alone())
def roll(a: ArrayLike, shift: int | Sequence[int], axis: Axes = None) -> DistArray:
    """Shift the elements along some dimensions, wrapping around at the end.

    Parameters
    ----------
    a : DistArray
        Any placement.
    shift : int or tuple of int
        Number of indices to shift by.
    axis : int or tuple of int, optional
        Dimensions to shift along. None shifts the flattened array.

    Returns
    -------
    DistArray
        In the layout of `a`.

    Cost
    ----
    Along a dimension that is not sharded, nothing. Along a sharded one, the rows that cross the
    boundaries between blocks: `shift` rows per rank for small shifts. All in one exchange.
    """
    a = as_distarray(a)
    if axis is None:
        flat = np.broadcast_to(np.False_, (a.size,))
        np.roll(flat[:0], shift, 0)  # raises NumPy's error about the shift
        total = sum([int(amount) for amount in np.atleast_1d(shift)])
        return _assembled(a, _flat_runs(a.shape, total % (a.size or 1)), ordered=False)
    axes = normalize_axis_tuple(axis, a.ndim, allow_duplicate=True)
    if not a.ndim:
        np.roll(np.empty((), bool), shift, axes)  # raises NumPy's exception
    pairs = np.broadcast(shift, axes)
    if pairs.ndim > 1:
        raise ValueError("'shift' and 'axis' should be scalars or 1D sequences")
    shifts = dict.fromkeys(range(a.ndim), 0)
    for amount, dim in pairs:
        shifts[dim] += int(amount)
    return _rolled(a, {d: s % (a.shape[d] or 1) for d, s in shifts.items()})


def _shifted_runs(extent: int, shift: int) -> list[tuple[int, int, int, int]]:
    """Return one dimension's two runs: (origin in the result, start, length, 1 if wrapped)."""
    parts = [(shift, 0, extent - shift, 0), (0, extent - shift, shift, 1)]
    return [part for part in parts if part[2]] or parts[:1]


def _rolled(a: DistArray, shifts: dict[int, int]) -> DistArray:
    runs = [_shifted_runs(extent, shifts[dim]) for dim, extent in enumerate(a.shape)]
    return _assembled(a, [tuple(zip(*choice, strict=True))[:3] for choice in product(*runs)])


def _flat_runs(shape: tuple[int, ...], shift: int) -> list[Any]:
    """Return the boxes that a shift of the flattened array moves in one piece."""
    found: list[Any] = [((), (), (), 0)]
    row = 1
    for extent in reversed(shape):
        amount = shift // row % (extent or 1)
        row *= extent or 1
        found = [
            ((to, *tos), (start, *starts), (length, *lengths), carry)
            for tos, starts, lengths, carried in found
            for to, start, length, carry in _shifted_runs(extent, amount + carried)
        ]
    return [run[:3] for run in found]


def _assembled(a: DistArray, runs: Sequence[Any], ordered: bool = True) -> DistArray:
    """Return the array with its boxes moved, in its memory order if `ordered`, else in C order."""
    parts: list[Part] = []
    for run in runs:
        origin, starts, lengths = run or ((), (), ())
        entries = [(start, 1, n) for start, n in zip(starts, lengths, strict=True)]
        parts.append((origin, a.sliced(tuple(entries))))
    order = stored_order(a) if ordered else ()
    return assemble(a.shape, a.dtype, parts, a.mesh, a.layout, order)


def _times_all(x: ArrayLike, times: Any, *_: Any, **__: Any) -> int:
    """Count an array's elements times a number; a large number if the number is unknown."""
    return np.size(x) * times if type(times) is int and isinstance(x, np.ndarray) else 1 << 62


@implements(np.tile, at=True, computes=False, alone=Alone(), small=bounded(np.tile, _times_all))
def tile(A: ArrayLike, reps: int | Sequence[int]) -> DistArray:
    """Repeat the whole array along each dimension.

    Parameters
    ----------
    A : DistArray
        Any placement.
    reps : int or sequence of int
        Repetitions along each dimension; fewer numbers apply to the last dimensions.

    Returns
    -------
    DistArray
        A sharded dimension stays sharded, with the canonical cut. A large result of a replicated
        array is sharded.

    Cost
    ----
    Nothing along dimensions that are not sharded. Along a sharded one, each rank receives the
    missing elements of its new block, but never more than the whole length of `A`.
    """
    a = as_distarray(A)
    times = _times(reps, a.shape)
    a = a.sliced((None,) * (len(times) - a.ndim) + tuple([(0, 1, n) for n in a.shape]))
    times = (1,) * (a.ndim - len(times)) + times
    if any(n < 0 for n in times):
        raise ValueError("negative dimensions are not allowed")
    if all(n == 1 for n in times):
        return copy(a)
    if not a.size:
        return reshaped(a, tuple([n * extent for n, extent in zip(times, a.shape, strict=True)]))
    a = _whole_where_often(a, times)
    # Each dimension (n,) becomes (times, n), is broadcast along the first one and merged again.
    pairs: list[Any] = []
    for extent in a.shape:
        pairs += [None, (0, 1, extent)]
    wide = a.sliced(tuple(pairs))
    shape = tuple([m for n, extent in zip(times, a.shape, strict=True) for m in (n, extent)])
    spread = stretched(wide, shape)
    result = tuple([n * extent for n, extent in zip(times, a.shape, strict=True)])
    return reshaped(spread, result, copy=True)


def _whole_where_often(a: DistArray, times: Sequence[int]) -> DistArray:
    """Make the array whole along dimensions repeated more often than they have parts.

    Each rank then receives each element once, and not once for each repetition.
    """
    often = [
        dim
        for dim, (n, cut) in enumerate(zip(times, a.layout.cuts, strict=True))
        if cut.parts > 1 and n > cut.parts
    ]
    if not often:
        return a
    return to_layout(a, a.layout.without_cut(often))


@implements(np.repeat, computes=False, alone=Alone(), small=bounded(np.repeat, _times_all))
def repeat(a: ArrayLike, repeats: ArrayLike, axis: int | None = None) -> DistArray:
    """Repeat each index along a dimension.

    Parameters
    ----------
    a : DistArray
        Any placement.
    repeats : int or array of int
        Repetitions of all indices or of each; a DistArray may be sharded.
    axis : int, optional
        The dimension. None flattens first.

    Returns
    -------
    DistArray
        Every element stays on its rank, with its repetitions; blocks differ in length if the
        counts do. If a block is more than twice as long as in an even cut, the result is cut
        evenly. A large result of a replicated array is sharded, if there is one count for all.

    Cost
    ----
    None if `repeats` is known on all ranks. A sharded `repeats` is sent to the ranks of the
    elements, the ranks agree that no count is negative, and one integer per rank is gathered along
    the mesh dimensions that cut `axis`.

    Raises
    ------
    ValueError
        If a count is negative, or there are not as many counts as indices; on all ranks.
    """
    x = as_distarray(a)
    axis = axis if axis is None else as_axis(axis)
    counts = _as_counts(repeats)
    if axis is None:
        x, axis = in_line(x).plain(), 0  # a short line may be on one rank only
    elif not x.ndim:
        x = in_line(x)  # NumPy treats a number as a line of one
    axis = normalize_axis_index(axis, x.ndim)
    _check_counts(counts, x.shape[axis])
    if isinstance(counts, DistArray):
        return _repeated_by_distributed(x, counts, axis)
    if x.shape[axis] and (counts < 0).any():
        np.repeat(np.zeros(counts.size), counts)  # NumPy's error
    if counts.size == 1:
        return _repeated_alike(x, max(counts.item(), 0), axis)
    cut = x.layout.cuts[axis]
    if cut.mesh_dims:
        below = np.concatenate(([0], np.cumsum(counts)))
        ends = [cut.interval(part) for part in range(cut.parts)]
        found = recounted_cut(cut, [int(below[b] - below[a]) for a, b in ends])
    else:
        found = Cut.whole(int(counts.sum()))
    start, stop = x.layout.section(x.mesh.coords)[axis]
    block = blocks.repeat(x.to_local(), counts[start:stop], axis)
    return balanced(wrap(block, x.layout.replace(axis, found), x.mesh), axis)


def _repeated_alike(x: DistArray, times: int, axis: int) -> DistArray:
    """Repeat all indices of an array equally often."""
    if x.layout.is_replicated and times > 1:
        return _spread_out(x, times, axis)
    cut = x.layout.cuts[axis]
    scaled = rescaled_cut(cut, times) if times else None
    nothing = Cut.chunked(0, cut.mesh_dims, cut.radix)
    layout = x.layout.replace(axis, scaled or nothing)
    return wrap(x.to_local().repeat(times, axis), layout, x.mesh)


def _spread_out(x: DistArray, times: int, axis: int) -> DistArray:
    """Repeat a replicated array; if the result is large, each rank makes only its block."""
    shape = (*x.shape[:axis], times * x.shape[axis], *x.shape[axis + 1 :])
    layout = grown_layout(shape, x.itemsize, x.mesh, [x])
    key = [slice(*interval) for interval in layout.section(x.mesh.coords)]
    start, stop = key[axis].start, key[axis].stop
    key[axis] = slice(start // times, -(-stop // times))
    block = x.to_local()[tuple(key)].repeat(times, axis)
    if len(range(start, stop)) != block.shape[axis]:  # a cut between repetitions of an index
        first = start % times
        block = block[(slice(None),) * axis + (slice(first, first + stop - start),)].copy()
    return wrap(block, layout, x.mesh)


def _times(reps: int | Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the repetitions along each dimension; raise the exceptions of :func:`numpy.tile`."""
    times = tuple(reps) if np.iterable(reps) else (reps,)
    if all(n == 1 for n in times):
        return (1,) * len(times)
    if not all(hasattr(n, "__index__") for n in times):
        np.tile(np.zeros([min(extent, 3) for extent in shape]), times)
    return tuple(map(index, times))


def _as_counts(repeats: ArrayLike) -> Any:
    """Return counts as integers, as :func:`numpy.repeat` does; DistArrays stay distributed."""
    if isinstance(repeats, DistArray):
        _check_depth(repeats)
        np.empty(0, repeats.dtype).astype(np.intp, casting="safe")
        return repeats if repeats.size != 1 else repeats.full()
    if isinstance(repeats, np.ndarray):
        _check_depth(repeats)
        return repeats.astype(np.intp, casting="safe", copy=False)
    counts = np.asarray(repeats, np.intp)  # Python numbers, and lists of them, are truncated
    _check_depth(counts)
    return counts


def _check_depth(counts: DistArray | Array) -> None:
    if counts.ndim > 1:
        raise ValueError("object too deep for desired array")


def _check_counts(counts: DistArray | Array, extent: int) -> None:
    if counts.size != 1 and counts.shape[0] != extent:
        raise ValueError(
            f"operands could not be broadcast together with shape ({extent},) ({counts.shape[0]},)"
        )


def _repeated_by_distributed(a: DistArray, repeats: DistArray, axis: int) -> DistArray:
    cut, mesh = a.layout.cuts[axis], a.mesh
    counts = to_layout(repeats, Layout.from_cuts([cut], mesh.shape)).block
    negative = ValueError("repeats may not contain negative values.")
    agree(mesh.group, negative if (counts < 0).any() else None)
    lengths = shared_lengths(int(counts.sum()), cut, mesh)
    found = recounted_cut(cut, lengths) if cut.mesh_dims else Cut.whole(lengths[0])
    block = blocks.repeat(a.to_local(), counts, axis)
    return balanced(wrap(block, a.layout.replace(axis, found), mesh), axis)


def shared_lengths(length: int, cut: Cut, mesh: DeviceMesh) -> list[int]:
    """Gather the lengths of all blocks along a dimension, from ranks that know only their own."""
    if not cut.mesh_dims:
        return [length]
    group = mesh.subgroup(cut.mesh_dims)
    return [int(n) for n in group.allgather(np.array(length), "lengths of blocks").ravel()]


def balanced(x: DistArray, axis: int) -> DistArray:
    """Return `x` itself, or `x` evenly cut if a block along `axis` is much longer than necessary.

    Ragged blocks cost nothing to keep, but later work takes as long as the longest of them.
    """
    cut = x.layout.cuts[axis]
    if is_balanced(cut):
        return x
    even = Cut.chunked(cut.extent, cut.mesh_dims, cut.radix)
    return to_layout(x, x.layout.replace(axis, even))


def is_balanced(cut: Cut) -> bool:
    """Return True if no part is more than twice as long as the parts of an even cut."""
    if cut.parts == 1:
        return True
    longest = max([stop - start for start, stop in map(cut.interval, range(cut.parts))])
    return longest <= 2 * -(-cut.extent // cut.parts)


@implements(np.resize, at=True, computes=False, alone=Alone(), small=False)
def resize(a: ArrayLike, new_shape: ShapeLike) -> DistArray:
    """Repeat the elements in C order to fill a new shape. See :func:`numpy.resize`.

    Cost
    ----
    One message per pair of ranks for elements that change rank, two if the array is repeated more
    than twice, and the cost of :func:`reshape`.
    """
    shape = (new_shape,) if isinstance(new_shape, (int, np.integer)) else tuple(new_shape)
    if any(extent < 0 for extent in shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    shape = np.empty((0, *shape)).shape[1:]  # NumPy's error
    flat = in_line(as_distarray(a))
    total = int(np.prod(shape, dtype=object))
    if not flat.size or not total:
        layout = default_layout(shape, flat.itemsize, flat.mesh)
        block = flat.mesh.xp.zeros(layout.local_shape(flat.mesh.coords), flat.dtype)
        return wrap(block, layout, flat.mesh)
    if total <= flat.size:
        part = flat[:total]
        # NumPy joins here, which drops the padding of records and a swapped byte order.
        joined = np.concatenate([np.empty(0, flat.dtype)]).dtype
        return reshaped(part if joined == flat.dtype else part.astype(joined), shape, copy=True)
    times, rest = divmod(total, flat.size)
    repeated = tile(flat, times) if times > 1 else flat
    return refitted(concatenate([repeated, flat[:rest]]), shape)


@implements(np.copy, at=True, computes=False, alone=Alone())
def copy(a: ArrayLike, order: Order = "K", subok: bool = False) -> DistArray:
    """Copy the array to memory of its own, with the canonical cut.

    Parameters
    ----------
    a : DistArray
        Any placement; a pending fold is completed first.
    order : {"C", "F", "A", "K"}
        Order in which the blocks are stored.
    subok : bool
        Has no effect.

    Returns
    -------
    DistArray

    Cost
    ----
    None for an array with the canonical cut. For a view, the missing elements of the canonical
    blocks.
    """
    a = as_distarray(a)
    layout = a.layout.settled().canonical()
    if a.layout.ats:
        layout = _spread(a)
    moved = to_layout(a.like(a.to_local()), layout)
    return wrap(moved.block.copy(order), layout, a.mesh)


def _spread(a: DistArray) -> Layout:
    """Return the layout for copying an array that one mesh coordinate holds: spread over all."""
    wanted = default_layout(a.shape, a.itemsize, a.mesh)
    settled = a.layout.settled().canonical()
    free = [d for d, cut in enumerate(settled.cuts) if not cut.mesh_dims]
    if wanted.is_replicated or not free:
        return settled
    dim = max(free, key=lambda d: a.shape[d])
    radix = tuple([a.mesh.shape[m] for m in a.layout.ats])
    return settled.replace(dim, Cut.chunked(a.shape[dim], a.layout.ats, radix))
