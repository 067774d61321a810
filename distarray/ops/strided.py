"""Views by strides: windows, as_strided, and arrays over the memory of other arrays."""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from distarray.array import DistArray, as_distarray, implements, wrap
from distarray.array.base import raw_block
from distarray.array.memory import is_writeable
from distarray.array.one_rank import Alone
from distarray.array.portable import make_read_only
from distarray.array.probes import hollow
from distarray.array.sharing import derived, link
from distarray.array.storage import vacant
from distarray.engines.halos import extended
from distarray.engines.strided import in_order, offset_in, strided
from distarray.layout import Cut, Layout
from distarray.typing import Array, ArrayLike, Axes, DType, DTypeLike, Order, Shape, ShapeLike

__all__ = ["as_strided", "over_memory", "sliding_window_view"]

_windows_of: Any = np.lib.stride_tricks.sliding_window_view
_as_strided: Any = np.lib.stride_tricks.as_strided


@implements(_windows_of, at=True, computes=False, alone=Alone())
def sliding_window_view(
    x: ArrayLike,
    window_shape: ShapeLike,
    axis: Axes = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Any:
    """View every window of a shape; see :func:`numpy.lib.stride_tricks.sliding_window_view`.

    Parameters
    ----------
    x : DistArray
        Any layout.
    window_shape, axis, subok, writeable
        As in NumPy's function.

    Returns
    -------
    DistArray
        The dimensions of `x`, cut as before, followed by the windows' dimensions: a view. If
        windows reach across ranks, each rank has a copy of its block and of its neighbours'
        adjacent elements, which is updated when the windows are read.

    Raises
    ------
    ValueError
        NumPy's own; also with `writeable`, if windows reach across ranks and the array that `x` is
        a view of has blocks with gaps.

    Cost
    ----
    For each windowed axis that is cut, one message to a neighbour: a slab one element shorter than
    the window. The same again when windows are read after `x` has been written to.
    """
    x = as_distarray(x)
    listed: Any = window_shape
    shape = tuple(listed) if np.iterable(listed) else (listed,)
    _windows_of(hollow(x.shape, x.dtype), shape, axis)  # raises NumPy's errors
    axes = normalize_axis_tuple(range(x.ndim) if axis is None else axis, x.ndim, "axis", True)
    shape = tuple([index(extent) for extent in shape])
    reach = [0] * x.ndim
    for dim, extent in zip(axes, shape, strict=True):
        reach[dim] += extent - 1
    across = any(beyond > 0 and cut.parts > 1 for beyond, cut in zip(reach, x.layout.cuts))
    if not across:
        return derived(x, lambda y: _windows(y, shape, axes, reach, bool(writeable)))
    if writeable or x.layout.ats:
        return _windows_by_strides(x, shape, axes, bool(writeable))
    return _linked_windows(x, shape, axes, reach)


def _windows(
    x: DistArray, shape: Shape, axes: Shape, reach: list[int], writeable: bool = False
) -> DistArray:
    """Return the windows of an array; no windowed axis is cut."""
    mesh, layout = x.mesh, x.layout
    cuts = [
        Cut.chunked(cut.extent - beyond, cut.mesh_dims, cut.radix) if beyond else cut
        for cut, beyond in zip(layout.cuts, reach, strict=True)
    ]
    layout = layout.with_cuts([*cuts, *map(Cut.whole, shape)])
    if mesh.coords is None or not layout.holds(mesh.coords):
        block = vacant(x.block, layout, mesh)
        if not writeable:
            make_read_only(block)
        return wrap(block, layout, mesh)
    return wrap(_viewed(x.block, layout, shape, axes, mesh, writeable), layout, mesh)


def _viewed(
    block: Array, layout: Layout, shape: Shape, axes: Shape, mesh: Any, writeable: bool
) -> Array:
    """Return the windows of a block; a rank may have none."""
    local = layout.local_shape(mesh.coords)
    if not all(local) or mesh.coords is None:
        view = mesh.xp.empty(local, block.dtype)
        if mesh.device_type == "cpu":  # a view whose flag cannot be set later, as in NumPy
            view = _as_strided(view, writeable=writeable and block.flags.writeable)
    else:
        # On a device every view is writeable, and the function has no such parameter.
        named: Any = {"writeable": writeable} if mesh.device_type == "cpu" else {}
        view = _windows_of(block, shape, axes, **named)
    found: Array = view
    return found


class _Borders:
    """Link that copies an array to blocks extended by the reach of windows; never back."""

    overlaps = False

    def __init__(self, block: Array, cuts: list[Cut], reach: list[int]) -> None:
        self._block, self._cuts, self._reach = block, cuts, reach

    def down(self, source: Any, target: Any) -> None:
        """Update the extended block."""
        self._block[...] = _extended(source, self._cuts, self._reach).block

    def up(self, source: Any, target: Any) -> None:
        """Do nothing: the windows are read-only."""


def _extended(x: DistArray, cuts: list[Cut], reach: list[int]) -> DistArray:
    for dim, (cut, beyond) in enumerate(zip(cuts, reach, strict=True)):
        if beyond > 0 and cut.parts > 1:
            x = x.like(extended(x, dim, cut, beyond))
    return x


def _linked_windows(x: DistArray, shape: Shape, axes: Shape, reach: list[int]) -> DistArray:
    """Return windows that reach across ranks, over extended copies of the blocks."""
    mesh, cuts = x.mesh, list(x.layout.cuts)
    for dim, beyond in enumerate(reach):
        cut = cuts[dim]
        if beyond > 0 and cut.parts > 1:
            cuts[dim] = cut.view(0, 1, cut.extent - beyond)
        elif beyond:  # a window of extent 0 has one position more
            cuts[dim] = Cut.chunked(cut.extent - beyond, cut.mesh_dims, cut.radix)
    block = _extended(x, cuts, reach).block
    layout = Layout.from_cuts([*cuts, *map(Cut.whole, shape)], mesh.shape)
    found = wrap(_viewed(block, layout, shape, axes, mesh, False), layout, mesh)
    if found.layout.size:
        transfer = _Borders(block, cuts, reach)
        link(x, found, transfer, lambda y: _windows(y, shape, axes, reach))
    return found


def _windows_by_strides(x: DistArray, shape: Shape, axes: Shape, writeable: bool) -> DistArray:
    """Return windows that reach across ranks, over the memory in one dimension."""
    found = in_order(x)
    if found is None:
        raise ValueError(
            "windows that reach across ranks and are written to, or of what few ranks have, need "
            "memory without gaps; x.copy() has memory of its own"
        )
    line, space, place = found
    view = _windows_of(place, shape, axes)
    writeable = writeable and is_writeable(raw_block(x))
    return _by_strides(line, space, place, view.shape, view.strides, x.dtype, writeable)


def as_strided(
    x: ArrayLike,
    shape: ShapeLike | None = None,
    strides: Any = None,
    subok: bool = False,
    writeable: bool = True,
) -> Any:
    """Return a view by strides; see :func:`numpy.lib.stride_tricks.as_strided`.

    Parameters
    ----------
    x : array_like
        The strides of a cut array are ``x.strides``: in the memory that the whole array would
        have in NumPy.
    shape, strides, subok, writeable
        As in NumPy's function.

    Raises
    ------
    ValueError
        If elements are not in the memory of the array; NumPy does not check.

    Cost
    ----
    The cost of :func:`~distarray.engines.strided.strided`.
    """
    if not isinstance(x, DistArray):
        return _as_strided(x, shape, strides, subok, writeable)
    if x.layout.partials:
        x.settle()
    extents = x.shape if shape is None else _integers(shape)
    if x.layout.is_whole:
        return _on_every_rank(x, extents, strides, writeable)
    found = in_order(x)
    if found is None:
        raise ValueError(
            "as_strided of an array whose memory has gaps; x.copy() has memory of its own"
        )
    line, space, place = found
    steps = place.strides if strides is None else _integers(strides)
    writeable = writeable and is_writeable(raw_block(x))
    return _by_strides(line, space, place, extents, steps, x.dtype, writeable)


def _integers(value: Any) -> Shape:
    return tuple([index(n) for n in value]) if np.iterable(value) else (index(value),)


def _on_every_rank(x: DistArray, shape: Shape, strides: Any, writeable: bool) -> DistArray:
    """Return the same view of every rank's block."""
    block: Any = x.mesh.asarray(x.block)
    steps = block.strides if strides is None else _integers(strides)
    memory = block
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    _check_bounds(memory, block, shape, steps, block.dtype)
    view = _as_strided(block, shape, steps, writeable=writeable)
    return wrap(view, Layout.replicated(shape, x.mesh.shape), x.mesh)


def _by_strides(
    line: DistArray,
    space: Array,
    place: Array,
    shape: Shape,
    strides: Shape,
    dtype: DType,
    writeable: bool,
) -> DistArray:
    """Return the view by strides from the start of `place` in `space`, the line's address space."""
    _check_bounds(space, place, shape, strides, dtype)
    if 0 in shape:
        layout = Layout.replicated(shape, line.mesh.shape)
        block = raw_block(line)[:0].view("u1").view(dtype).reshape(shape)
        if not writeable:
            make_read_only(block)
        return wrap(block, layout, line.mesh)
    return strided(line, shape, strides, offset_in(space, place), dtype, writeable)


def _check_bounds(memory: Array, place: Array, shape: Shape, strides: Shape, dtype: DType) -> None:
    """Raise ValueError if a view from the start of `place` reaches beyond its memory."""
    if any(n < 0 for n in shape):
        np.empty(shape)  # NumPy's error
    if len(shape) != len(strides):
        raise ValueError("strides, if given, must be the same length as shape")
    if 0 in shape:
        return
    low, high = np.lib.array_utils.byte_bounds(memory)
    first = last = place.__array_interface__["data"][0]
    for n, step in zip(shape, strides, strict=True):
        first, last = first + min(0, step * (n - 1)), last + max(0, step * (n - 1))
    if first < low or last + dtype.itemsize > high:
        raise ValueError(
            f"strides {strides} and shape {shape} reach from byte {first - low} to "
            f"{last + dtype.itemsize - low} of memory of {high - low} bytes"
        )


def over_memory(
    x: DistArray,
    shape: ShapeLike,
    dtype: DTypeLike,
    offset: int,
    strides: Any = None,
    order: Order | None = None,
) -> DistArray:
    """Return the array that NumPy makes of the memory of a cut array as its buffer.

    Cost
    ----
    The cost of :func:`as_strided`.
    """
    if x.layout.partials:
        x.settle()
    kind, extents = np.dtype(dtype), _integers(shape)
    found = in_order(x)
    if found is None or not (found[2].flags.c_contiguous or found[2].flags.f_contiguous):
        raise ValueError("ndarray is not contiguous")
    line, space, place = found
    if kind.hasobject or x.dtype.hasobject:
        raise ValueError("cannot make an array of objects over the memory of another one")
    begin = place.reshape(-1, order="A").view("u1")
    model = np.ndarray(extents, kind, begin, offset, strides, order)
    return _by_strides(line, space, model, model.shape, model.strides, kind, True)
