"""Sorting, selecting, and extremes with their places.

Operators on lines (all elements along one dimension) work on parts, where each rank has its lines
whole. A cut along the lines is first moved to another dimension. Extremes along a dimension that is
cut take one small exchange: each rank sends the extreme of its part and the place of that extreme,
and all ranks pick the first of the best.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Cut, Layout
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.moving import moved
from distarray.torch.tensor.table import Decision, rule

__all__ = ["delivered", "exchanged", "lined", "linewise", "single"]


def lined(layout: Layout, dim: int) -> Layout | None:
    """Return a layout in which every rank has whole lines along a dimension.

    A cut along this dimension is moved to the longest dimension that is not cut. If all are cut, it
    is moved to the longest, which is then cut more finely. Return None if no other dimension has
    several elements.
    """
    cut = layout.cuts[dim]
    if cut.parts <= 1:
        return layout
    others = [d for d, c in enumerate(layout.cuts) if d != dim and c.extent > 1]
    if not others:
        return None
    other = max(others, key=lambda d: (layout.cuts[d].parts == 1, layout.shape[d], -d))
    mesh_dims = tuple(sorted((*layout.cuts[other].mesh_dims, *cut.mesh_dims)))
    radix = tuple([layout.mesh_shape[m] for m in mesh_dims])
    cuts = list(layout.cuts)
    cuts[dim] = Cut.whole(cut.extent)
    cuts[other] = Cut.chunked(layout.shape[other], mesh_dims, radix)
    return layout.with_cuts(cuts)


def _after(layout: Layout, dim: int, shape: tuple[int, ...]) -> Layout:
    """Return the layout of a result whose lines have another length, or are single elements."""
    cuts = list(layout.cuts)
    cuts[dim : dim + 1] = [Cut.whole(shape[dim])] if len(shape) == layout.ndim else []
    return layout.with_cuts(cuts)


def linewise(call: Call) -> Decision | None:
    """Return the decision for an operator on the lines along its ``dim`` argument."""
    assert call.results is not None
    layout = call.first.layout
    if not layout.ndim:
        return Decision([layout], [layout] * len(call.results))
    dim = call.dim()
    here = lined(layout, dim)
    if here is None:
        return None
    return Decision([here], [_after(here, dim, x.shape) for x in call.results])


@rule(
    *("aten.sort", "aten.kthvalue", "aten.mode", "aten.cummax", "aten.cummin"),
    *("aten.argsort.stable", "aten.median.dim", "aten.nanmedian.dim"),
    *("aten.median.dim_values", "aten.nanmedian.dim_values"),
)
def _lines(call: Call) -> Decision | None:
    return linewise(call)


@rule("aten.topk")
def _best(call: Call) -> Decision | None:
    """Let each rank send the best of its part of a line, if no other dimension can be cut."""
    found = linewise(call)
    if found is not None:
        return found
    layout, dim = call.first.layout, call.dim()
    find = partial(_best_of_parts, layout, dim, call["k"], bool(call["largest"]))
    result = _after(layout, dim, call.shape)
    return Decision([layout], [result, result], run=delivered(call, find), on_mesh=True)


def _best_of_parts(
    layout: Layout, dim: int, most: int, largest: bool, mesh: DeviceMesh, x: Tensor, *_: Any
) -> tuple[Tensor, Tensor]:
    values, places = x.topk(min(most, x.shape[dim]), dim, largest)
    start = layout.section(mesh.coords)[dim][0]
    values = exchanged(values, layout, dim, mesh, most)
    places = exchanged(places + start, layout, dim, mesh, most)
    best, pick = values.topk(most, dim, largest)
    return best, places.gather(dim, pick)


# -- extremes and their places --------------------------------------------------------------------


@rule("aten.max.dim", "aten.min.dim", "aten.max.dim_max", "aten.min.dim_min")
def _extreme_and_place(call: Call) -> Decision | None:
    layout = call.first.layout
    if not layout.ndim or layout.cuts[call.dim()].parts <= 1:
        return linewise(call)
    op = torch.max if call.name == "aten.max" else torch.min
    dim, keepdim = call.dim(), bool(call["keepdim"])
    result = _after(layout, dim, call.shape)
    run = delivered(call, partial(_first_best, layout, op, dim, keepdim))
    return Decision([layout], [result, result], run=run, on_mesh=True)


@rule("aten.argmax", "aten.argmin")
def _place(call: Call) -> Decision | None:
    layout, flat = call.first.layout, call["dim"] is None
    op = torch.max if call.name == "aten.argmax" else torch.min
    keepdim = bool(call["keepdim"])
    if flat or not layout.ndim:
        result = Layout.replicated(call.shape, call.mesh_shape)
        find: Callable[..., Any] = partial(_first_of_all, layout, op, call.shape)
    else:
        dim = call.dim()
        if layout.cuts[dim].parts <= 1:
            return linewise(call)
        result = _after(layout, dim, call.shape)
        find = partial(_first_place, layout, op, dim, keepdim)
    return Decision([layout], [result], run=delivered(call, find), on_mesh=True)


def _first_best(
    layout: Layout,
    op: Callable[..., Any],
    dim: int,
    keepdim: bool,
    mesh: DeviceMesh,
    x: Tensor,
    *_: Any,
) -> tuple[Tensor, Tensor]:
    """Return the extremes along a dimension that is cut, and the place of the first of each."""
    full = x.shape[dim] > 0
    values, places = op(x if full else single(x, dim), dim, True)
    start = layout.section(mesh.coords)[dim][0]
    if not full:
        values, places = values.narrow(dim, 0, 0), places.narrow(dim, 0, 0)
    values = exchanged(values, layout, dim, mesh)
    places = exchanged(places + start, layout, dim, mesh)
    order = places.argsort(dim)
    best, pick = op(values.gather(dim, order), dim, True)
    places = places.gather(dim, order.gather(dim, pick))
    return (best, places) if keepdim else (best.squeeze(dim), places.squeeze(dim))


def _first_place(
    layout: Layout,
    op: Callable[..., Any],
    dim: int,
    keepdim: bool,
    mesh: DeviceMesh,
    x: Tensor,
    *_: Any,
) -> Tensor:
    return _first_best(layout, op, dim, keepdim, mesh, x)[1]


def _first_of_all(
    layout: Layout,
    op: Callable[..., Any],
    shape: tuple[int, ...],
    mesh: DeviceMesh,
    x: Tensor,
    *_: Any,
) -> Tensor:
    """Return the place of the first extreme in the global tensor, counted in C order."""
    full = x.numel() > 0
    values, place = op((x if full else x.new_zeros(1)).reshape(-1), 0, True)
    number, step = torch.zeros_like(place), 1
    for extent, (start, stop) in zip(
        reversed(layout.shape), reversed(layout.section(mesh.coords)), strict=True
    ):
        number += (place % max(stop - start, 1) + start) * step
        place = place // max(stop - start, 1)
        step *= extent
    if not full:
        values, number = values[:0], number[:0]
    line = _winners(layout)
    whole = line.without_cut([0])
    values, number = moved(values, mesh, line, whole), moved(number, mesh, line, whole)
    order = number.argsort()
    _, pick = op(values[order], 0, True)
    return number[order[pick]].reshape(shape)


def _winners(layout: Layout) -> Layout:
    """Return the layout of one element from each nonempty part."""
    mesh_dims = tuple([m for cut in layout.cuts for m in cut.mesh_dims])
    radix = tuple([layout.mesh_shape[m] for m in mesh_dims])
    grid = Cut.whole(0)._replace(mesh_dims=mesh_dims, radix=radix)
    counts = []
    for number in range(grid.parts):
        coords = [0] * len(layout.mesh_shape)
        for m, digit in zip(mesh_dims, grid.digits(number) if mesh_dims else ()):
            coords[m] = digit
        counts.append(int(all(start < stop for start, stop in layout.section(tuple(coords)))))
    return Layout.from_cuts([Cut.ragged(counts, mesh_dims, radix)], layout.mesh_shape)


# -- small exchanges ------------------------------------------------------------------------------


def single(x: Tensor, dim: int) -> Tensor:
    """Return lines of one element for empty ones, so that operators refuse alike on all ranks."""
    return x.new_zeros([1 if d == dim else n for d, n in enumerate(x.shape)])


def exchanged(x: Tensor, layout: Layout, dim: int, mesh: DeviceMesh, most: int = 1) -> Tensor:
    """Return at most `most` slabs from the start of each part along a cut dimension, gathered."""
    cut = layout.cuts[dim]
    counts = [min(most, stop - start) for start, stop in map(cut.interval, range(cut.parts))]
    slabs = layout.replace(dim, Cut.ragged(counts, cut.mesh_dims, cut.radix))
    return moved(x, mesh, slabs, slabs.without_cut([dim]))


def delivered(call: Call, find: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls `find` and writes its results to the targets of the call."""
    outs = [argument.name for argument in call.op._schema.arguments if argument.is_out]
    return partial(_deliver, find, outs, bool(call.written), _ndims(call))


def _ndims(call: Call) -> list[int]:
    return [len(x.shape) for x in call.results or ()]


def _deliver(
    find: Callable[..., Any],
    outs: Sequence[str],
    in_place: bool,
    ndims: Sequence[int],
    mesh: DeviceMesh,
    *args: Any,
    **kwargs: Any,
) -> Any:
    targets = [kwargs.pop(name) for name in outs] or ([args[0]] if in_place else [])
    if mesh.coords is None:
        empty = [args[0].new_empty((0,) * ndim) for ndim in ndims]
        return targets or (empty if len(empty) > 1 else empty[0])
    found = find(mesh, *args, **kwargs)
    results = found if isinstance(found, tuple) else (found,)
    for target, values in zip(targets, results):
        target.copy_(values)
    return found if not targets else targets[0] if len(targets) == 1 else tuple(targets)
