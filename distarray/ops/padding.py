"""pad: an array in the middle of a larger one, whose edges are filled from views of the larger one.

As in NumPy, the edges are filled axis by axis, by assignments between views of the padded array.
The layout of the result leaves the middle in place, so a pad needs messages only if its source
elements are on another rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, empty, implements, to_layout, wrap
from distarray.array.one_rank import Alone
from distarray.array.storage import is_fortran_alone
from distarray.comm import alone
from distarray.comm.agree import agreed
from distarray.engines.assembling import fill_parts, placed_by_size
from distarray.engines.mapping.every_rank import divided_or_not, spread
from distarray.layout import Cut, Fold, Layout, stretched_cut
from distarray.ops.rearranging import is_balanced
from distarray.typing import Array, ArrayLike

__all__ = ["pad"]

#: Widths, or values, before and after one dimension.
Pair = Sequence[Any]

_KEYWORDS: dict[str, tuple[str, ...]] = {
    "empty": (),
    "edge": (),
    "wrap": (),
    "constant": ("constant_values",),
    "linear_ramp": ("end_values",),
    "maximum": ("stat_length",),
    "mean": ("stat_length",),
    "median": ("stat_length",),
    "minimum": ("stat_length",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
}
_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": np.max,
    "minimum": np.min,
    "mean": np.mean,
    "median": np.median,
}


@implements(np.pad, alone=Alone(), small=False)
def pad(
    array: ArrayLike,
    pad_width: ArrayLike | dict[int, Any],
    mode: str | Callable[..., Any] = "constant",
    **kwargs: Any,
) -> DistArray:
    """Pad the array with elements at both ends of its dimensions.

    Parameters
    ----------
    array : DistArray
        Any placement.
    pad_width : int, sequence or dict
        Numbers of elements before and after, as in :func:`numpy.pad`.
    mode : str or callable
        Any mode of NumPy. A function changes each padded vector, a NumPy array, in place.
    **kwargs
        `constant_values`, `end_values`, `stat_length` or `reflect_type`, or keywords of the
        function.

    Returns
    -------
    DistArray
        The elements of `array` stay on their ranks, and the first and last block of a dimension
        grow by the pads. If a block becomes more than twice as long as in an even cut, the
        dimension is cut evenly.

    Cost
    ----
    Along a dimension that is not sharded, and for "constant" and "edge", none. "reflect",
    "symmetric" and "wrap" send as many rows as the pads have if these come from another rank.
    "linear_ramp" and odd reflections send the edge to all ranks along the dimension; statistics
    cost a reduction. A function gets whole vectors: the array is redistributed once per dimension.
    An array in Fortran order keeps this order: if the blocks do not show it, the ranks agree on it
    by two allreduces of an integer.

    Raises
    ------
    ValueError
        If NumPy has no such mode or keyword, or an empty dimension cannot be extended.
    """
    array = as_distarray(array)
    widths = _as_pairs(_given_widths(pad_width, array.ndim), array.ndim, as_index=True)
    if callable(mode):
        return _by_function(array, mode, widths, kwargs)
    _check_keywords(mode, kwargs)
    if not array.size and mode not in ("constant", "empty"):
        _check_nonempty(array.shape, widths)
    padded = _grown(array, widths)
    _place(padded, array, widths)
    if mode == "constant":
        values = _as_pairs(kwargs.get("constant_values", 0), array.ndim)
        for axis, region in _regions(padded, array, widths):
            _set_both(region, axis, widths[axis], values[axis])
    elif mode != "empty" and array.size:
        _FILLS[mode](padded, array, widths, mode, kwargs)
    return padded


def _check_keywords(mode: str, kwargs: dict[str, Any]) -> None:
    if mode not in _KEYWORDS:
        raise ValueError(f"mode '{mode}' is not supported")
    surplus = set(kwargs) - set(_KEYWORDS[mode])
    if surplus:
        raise ValueError(f"unsupported keyword arguments for mode '{mode}': {surplus}")


def _check_nonempty(shape: tuple[int, ...], widths: Sequence[Pair]) -> None:
    for axis, (extent, pair) in enumerate(zip(shape, widths, strict=True)):
        if extent == 0 and any(pair):
            raise ValueError(
                f"can't extend empty axis {axis} using modes other than 'constant' or 'empty'"
            )


def _given_widths(pad_width: ArrayLike | dict[int, Any], ndim: int) -> Array:
    if isinstance(pad_width, dict):
        pairs: list[Any] = [(0, 0)] * ndim
        for axis, width in pad_width.items():
            pairs[axis] = (width, width) if isinstance(width, int) else tuple(width)
        widths = np.asarray(pairs)
    else:
        widths = np.asarray(pad_width)
    if widths.dtype.kind != "i":
        raise TypeError("`pad_width` must be of integral type.")
    return widths


def _as_pairs(x: ArrayLike | None, ndim: int, as_index: bool = False) -> Sequence[Pair]:
    """Return one pair (before, after) for each dimension, from any form that NumPy accepts."""
    if x is None:
        return ((None, None),) * ndim
    values = np.array(x)
    if as_index:
        values = np.round(values).astype(np.intp, copy=False)
        if values.size and values.min() < 0:
            raise ValueError("index can't contain negative values")
    if values.ndim < 3 and (values.size == 1 or (values.size == 2 and values.shape != (2, 1))):
        flat = values.ravel()  # NumPy's scalars, unlike Python's, are cast without a check
        return ((flat[0], flat[-1]),) * ndim
    return np.broadcast_to(values, (ndim, 2)).tolist()  # type: ignore[no-any-return]


def _grown(array: DistArray, widths: Sequence[Pair]) -> DistArray:
    """Return an array of the padded shape, in a layout that leaves the middle in place."""
    cuts = []
    for cut, (before, after) in zip(array.layout.cuts, widths, strict=True):
        extent = cut.extent + int(before) + int(after)
        if not cut.mesh_dims or extent == cut.extent:
            cuts.append(cut if cut.mesh_dims else Cut.whole(extent))
            continue
        longer = stretched_cut(cut, int(before), int(after))
        even = Cut.chunked(extent, cut.mesh_dims, cut.radix)
        cuts.append(longer if is_balanced(longer) else even)
    layout = array.layout.with_cuts(cuts)
    if layout.is_replicated:
        layout = placed_by_size(layout.shape, array.dtype, [array], array.mesh)
    padded = empty(layout, array.dtype, array.mesh)
    if is_fortran_alone(array):
        padded.block = array.mesh.xp.empty(padded.block.shape, array.dtype, order="F")
    return padded


def _place(padded: DistArray, array: DistArray, widths: Sequence[Pair]) -> None:
    fill_parts(padded, [(tuple([int(before) for before, _ in widths]), array)])


def _regions(padded: DistArray, array: DistArray, widths: Sequence[Pair]) -> Any:
    """Yield each axis, with the section of the padded array in which its pads are set.

    The section is whole along earlier axes, which are padded already, and has only the middle
    along later ones.
    """
    for axis in range(padded.ndim):
        if not any(widths[axis]):
            continue
        key = [slice(None)] * (axis + 1)
        for (before, _), extent in list(zip(widths, array.shape, strict=True))[axis + 1 :]:
            key.append(slice(before, before + extent))
        yield axis, padded[(*key, ...)]


def _along(region: DistArray, axis: int, start: int, stop: int | None, step: int = 1) -> DistArray:
    return region[(slice(None),) * axis + (slice(start, stop, step), ...)]


def _set_both(region: DistArray, axis: int, widths: Pair, values: Pair) -> None:
    extent = region.shape[axis]
    _along(region, axis, 0, widths[0])[...] = values[0]
    _along(region, axis, extent - widths[1], extent)[...] = values[1]


# -- modes -----------------------------------------------------------------------------------------


def _edge(
    padded: DistArray, array: DistArray, widths: Sequence[Pair], mode: str, kwargs: dict[str, Any]
) -> None:
    for axis, region in _regions(padded, array, widths):
        _set_edges(region, axis, widths[axis])


def _set_edges(region: DistArray, axis: int, widths: Pair) -> None:
    """Fill the pads with the outermost rows, doubling the filled part at each step.

    Assigning one row to many rows would send it to every rank along the axis.
    """
    before, after = (int(width) for width in widths)
    extent = region.shape[axis]
    filled = 1
    while filled <= before:
        count = min(filled, before + 1 - filled)
        low = before + 1 - filled
        _along(region, axis, low - count, low)[...] = _along(region, axis, low, low + count)
        filled += count
    filled = 1
    while filled <= after:
        count = min(filled, after + 1 - filled)
        high = extent - after - 1 + filled
        _along(region, axis, high, high + count)[...] = _along(region, axis, high - count, high)
        filled += count


def _edges(region: DistArray, axis: int, widths: Pair) -> tuple[DistArray, DistArray]:
    high = region.shape[axis] - widths[1]
    return _along(region, axis, widths[0], widths[0] + 1), _along(region, axis, high - 1, high)


def _linear_ramp(
    padded: DistArray, array: DistArray, widths: Sequence[Pair], mode: str, kwargs: dict[str, Any]
) -> None:
    ends = _as_pairs(kwargs.get("end_values", 0), padded.ndim)
    for axis, region in _regions(padded, array, widths):
        first, last = _edges(region, axis, widths[axis])
        left = _ramp(ends[axis][0], first, widths[axis][0], axis)
        right = _ramp(ends[axis][1], last, widths[axis][1], axis)
        _set_both(region, axis, widths[axis], (left, _along(right, axis, -1, None, -1)))


def _ramp(end: ArrayLike, edge: DistArray, width: int, axis: int) -> DistArray:
    """Ramp from an end value to the edge; each rank computes the ramp beside its edge elements."""
    row = to_layout(edge, edge.layout.without_cut((axis,)))
    block = _linspace(end, row, int(width), axis)
    return wrap(block, row.layout.replace(axis, Cut.whole(int(width))), edge.mesh)


def _linspace(end: ArrayLike, row: DistArray, width: int, axis: int) -> Any:
    """Compute NumPy's linspace, bit for bit.

    NumPy uses another formula for all elements if one step is zero. If only another rank has such
    a step, this rank adds a zero step and drops it afterwards.
    """
    if row.mesh.coords is None:
        return row.block
    xp, stop = row.mesh.xp, row.block.squeeze(axis)
    block, step = xp.linspace(
        end, stop, width, endpoint=False, retstep=True, dtype=row.dtype, axis=axis
    )
    if row.layout.is_replicated or not width:
        return block
    here = bool(np.any(step == 0))
    if bool(row.mesh.group.allreduce(np.array(here), Fold.ANY, "steps of zero")) and not here:
        more = xp.append(stop.ravel(), xp.asarray(end, stop.dtype))
        flat = xp.linspace(end, more, width, endpoint=False, dtype=row.dtype)[:, :-1]
        block = xp.moveaxis(flat.reshape((width, *stop.shape)), 0, axis)
    return block


def _statistics(
    padded: DistArray, array: DistArray, widths: Sequence[Pair], mode: str, kwargs: dict[str, Any]
) -> None:
    lengths = _as_pairs(kwargs.get("stat_length"), padded.ndim, as_index=True)
    for axis, region in _regions(padded, array, widths):
        low, extent = int(widths[axis][0]), array.shape[axis]
        left, right = [extent if n is None else min(int(n), extent) for n in lengths[axis]]
        if (left == 0 or right == 0) and mode in ("maximum", "minimum"):
            raise ValueError("stat_length of 0 yields no value for padding")
        first = _statistic(mode, _along(region, axis, low, low + left), axis)
        last = first
        if not left == right == extent:
            chunk = _along(region, axis, low + extent - right, low + extent)
            last = _statistic(mode, chunk, axis)
        _set_both(region, axis, widths[axis], (first, last))


def _statistic(mode: str, chunk: DistArray, axis: int) -> Any:
    value = _STATISTICS[mode](chunk, axis=axis, keepdims=True)
    return np.round(value) if chunk.dtype.kind in "iu" else value


def _reflect(
    padded: DistArray, array: DistArray, widths: Sequence[Pair], mode: str, kwargs: dict[str, Any]
) -> None:
    odd = kwargs.get("reflect_type", "even") == "odd"
    include_edge = mode == "symmetric"
    for axis, region in _regions(padded, array, widths):
        left, right = (int(width) for width in widths[axis])
        period = array.shape[axis]
        if period == 1 and (left or right):
            _set_edges(padded, axis, widths[axis])
            continue
        while left or right:
            # Several rounds, if the pad is longer than the section that can be reflected.
            known = region.shape[axis] - left - right
            if include_edge:
                known = known // period * period
            else:
                known = (known - 1) // (period - 1) * (period - 1)
            left = _reflect_left(region, axis, left, known, odd, include_edge)
            right = _reflect_right(region, axis, right, known, odd, include_edge)


def _reflect_left(
    region: DistArray, axis: int, width: int, known: int, odd: bool, include_edge: bool
) -> int:
    """Reflect as many elements as are known at the left edge; return the number still missing."""
    count = min(known, width)
    if count:
        first = width if include_edge else width + 1
        chunk = _along(region, axis, first, first + count)
        target = _along(region, axis, width - count, width)
        _set_reflected(target, chunk, _along(region, axis, width, width + 1), axis, odd)
    return width - count


def _reflect_right(
    region: DistArray, axis: int, width: int, known: int, odd: bool, include_edge: bool
) -> int:
    """Reflect as many elements as are known at the right edge; return the number still missing."""
    count = min(known, width)
    if count:
        end = region.shape[axis] - width
        last = end if include_edge else end - 1
        chunk = _along(region, axis, last - count, last)
        target = _along(region, axis, end, end + count)
        _set_reflected(target, chunk, _along(region, axis, end - 1, end), axis, odd)
    return width - count


def _set_reflected(
    target: DistArray, chunk: DistArray, edge: DistArray, axis: int, odd: bool
) -> None:
    chunk = chunk[(slice(None),) * axis + (slice(None, None, -1), ...)]
    target[...] = 2 * edge - chunk if odd else chunk


def _wrap(
    padded: DistArray, array: DistArray, widths: Sequence[Pair], mode: str, kwargs: dict[str, Any]
) -> None:
    for axis, region in _regions(padded, array, widths):
        left, right = (int(width) for width in widths[axis])
        period = array.shape[axis]
        while left or right:
            extent = region.shape[axis]
            known = (extent - left - right) // period * period
            count, low = min(known, left), left
            if count:
                chunk = _along(region, axis, low + known - count, low + known)
                _along(region, axis, low - count, low)[...] = chunk
                left -= count
            count, high = min(known, right), extent - right
            if count:
                chunk = _along(region, axis, high - known, high - known + count)
                _along(region, axis, high, high + count)[...] = chunk
                right -= count


_FILLS: dict[str, Callable[..., None]] = {
    "edge": _edge,
    "linear_ramp": _linear_ramp,
    "reflect": _reflect,
    "symmetric": _reflect,
    "wrap": _wrap,
    **dict.fromkeys(_STATISTICS, _statistics),
}


# -- the user's function -------------------------------------------------------------------------


def _by_function(
    array: DistArray, function: Callable[..., Any], widths: Sequence[Pair], kwargs: dict[str, Any]
) -> DistArray:
    """Let a function change every vector in place, axis by axis."""
    call: Any = np.pad

    def by_all(arrays: list[Any]) -> DistArray:
        padded: DistArray = spread(call(arrays[0], widths, function, **kwargs), array)
        return padded

    return divided_or_not(
        function,
        kwargs.values(),
        [array],
        lambda: _divided_by_function(array, function, widths, kwargs),
        by_all,
    )


def _divided_by_function(
    array: DistArray, function: Callable[..., Any], widths: Sequence[Pair], kwargs: dict[str, Any]
) -> DistArray:
    """Let the ranks that have a vector as a whole call the function on it."""
    padded = _grown(array, widths)
    padded.block[...] = 0
    _place(padded, array, widths)
    final = padded.layout

    def change(vectors: Array, axis: int) -> None:
        with alone(array.mesh):
            for place in np.ndindex(vectors.shape[:-1]):
                function(vectors[(*place, ...)], widths[axis], axis, kwargs)

    for axis in range(padded.ndim):
        layout = _whole_along(padded.layout, axis)
        padded = to_layout(padded, layout)
        agreed(array.mesh.group, partial(change, np.moveaxis(padded.block, axis, -1), axis))
    return to_layout(padded, final)


def _whole_along(layout: Layout, axis: int) -> Layout:
    """Return the layout with the cut of an axis moved to the longest uncut one, if any."""
    cut = layout.cuts[axis]
    if not cut.mesh_dims:
        return layout
    free = [dim for dim, other in enumerate(layout.cuts) if not other.mesh_dims]
    layout = layout.replace(axis, Cut.whole(cut.extent))
    if not free:
        return layout
    dim = max(free, key=lambda d: layout.shape[d])
    return layout.replace(dim, Cut.chunked(layout.shape[dim], cut.mesh_dims, cut.radix))
