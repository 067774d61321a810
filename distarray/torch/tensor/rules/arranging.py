"""Joining, repeating, shifting, padding and triangles: elements move to other positions.

Dimensions along which nothing is rearranged stay cut. Along the others, elements stay on their rank
where possible; otherwise each element is sent once.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from distarray.array import wrap
from distarray.comm import DeviceMesh
from distarray.layout import Coords, Cut, Fold, Layout, local_key
from distarray.ops.joining import concatenate
from distarray.torch.collectives.blocks import movable, moved_back
from distarray.torch.tensor.aligning import elsewhere, is_spread
from distarray.torch.tensor.calls import Call, Operand
from distarray.torch.tensor.moving import moved
from distarray.torch.tensor.table import Decision, composed, rule

_LINEAR = (Fold.SUM, Fold.AVG)


def _by_arrays(
    function: Callable[..., Any],
    layouts: Sequence[Layout],
    result: Layout,
    mesh: DeviceMesh,
    parts: Sequence[Tensor],
) -> Tensor:
    """Apply a NumPy function to distributed arrays of these parts; return the part in `result`."""
    arrays = [
        wrap(movable(x), layout, mesh.on("cpu")) for x, layout in zip(parts, layouts, strict=True)
    ]
    found = function(arrays)
    part = moved_back(found.block.copy(), parts[0])
    return moved(part, mesh, found.layout, result)


def _again(layout: Layout, shape: Sequence[int]) -> Layout:
    """Return the layout of another shape, its last dimensions cut by the same mesh dimensions."""
    ahead = len(shape) - layout.ndim
    cuts = [Cut.whole(extent) for extent in shape]
    for dim, cut in enumerate(layout.cuts, ahead):
        same = cut.extent == shape[dim]
        cuts[dim] = cut if same else Cut.chunked(shape[dim], cut.mesh_dims, cut.radix)
    return layout.with_cuts(cuts)


# -- joining --------------------------------------------------------------------------------------


def _largest(operands: Sequence[Operand]) -> Layout:
    """Return the layout of the largest operand that is cut."""
    layouts = [x.layout for x in operands]
    return max(layouts, key=lambda layout: (bool(layout.sharded_dims), layout.size))


@rule("aten.cat")
def _cat(call: Call) -> Decision | None:
    """Join parts locally where another dimension is cut."""
    if call.results is None:
        return None
    ndim = len(call.shape)
    real = [x for x in call.operands if len(x.shape) == ndim]
    dim, target = int(call["dim"]) % ndim, _largest(real)
    if is_spread(target.cuts[dim]):
        return _cat_along(call, target, dim)
    wanted = [_joining(target, dim, x, ndim) for x in call.operands]
    return Decision(wanted, [target.replace(dim, Cut.whole(call.shape[dim]))])


def _joining(target: Layout, dim: int, x: Operand, ndim: int) -> Layout:
    """Return the layout of an operand for joining; torch accepts an empty one of any shape."""
    if len(x.shape) != ndim:
        return Layout.replicated(x.shape, target.mesh_shape)
    return target.replace(dim, Cut.whole(x.shape[dim]))


def _cat_along(call: Call, target: Layout, dim: int) -> Decision:
    """Join along the dimension that is cut: elements move to their ranks in the result."""
    assert call.results is not None
    cut = Cut.chunked(call.shape[dim], target.cuts[dim].mesh_dims, target.cuts[dim].radix)
    result = target.replace(dim, cut)
    wanted = [
        x.layout if len(x.shape) == target.ndim else Layout.replicated(x.shape, call.mesh_shape)
        for x in call.operands
    ]
    run = partial(_joined, tuple(wanted), result, dim, call.results[0].dtype)
    return Decision(wanted, [result], run=run, on_mesh=True, moves=True)


def _joined(
    layouts: Sequence[Layout],
    result: Layout,
    dim: int,
    dtype: torch.dtype,
    mesh: DeviceMesh,
    tensors: Sequence[Tensor],
    *_: Any,
    out: Tensor | None = None,
    **__: Any,
) -> Tensor:
    pairs = [
        (x.to(dtype), y) for x, y in zip(tensors, layouts, strict=True) if y.ndim == result.ndim
    ]
    found = _by_arrays(
        partial(concatenate, axis=dim), [y for _, y in pairs], result, mesh, [x for x, _ in pairs]
    )
    return found if out is None else out.copy_(found)


@rule("aten.stack")
def _stack(call: Call) -> Decision:
    target = _largest(call.operands)
    dim = int(call["dim"]) % (target.ndim + 1)
    result = target.expand(dim).replace(dim, Cut.whole(len(call.operands)))
    return Decision([target] * len(call.operands), [result])


# -- repeating and shifting -----------------------------------------------------------------------


@rule("aten.repeat.default")
def _repeat(call: Call) -> Decision:
    layout, repeats = call.first.layout, tuple(call["repeats"])
    ahead = len(repeats) - layout.ndim
    result = _again(layout, call.shape)
    if not any(is_spread(c) and repeats[d + ahead] != 1 for d, c in enumerate(layout.cuts)):
        return Decision([layout], [result])
    run = partial(_repeated, layout, result, repeats)
    return Decision([layout], [result], run=run, on_mesh=True, moves=True)


def _repeated(
    layout: Layout, result: Layout, repeats: Sequence[int], mesh: DeviceMesh, x: Tensor, *_: Any
) -> Tensor:
    def tiled(arrays: Sequence[Any]) -> Any:
        return np.tile(arrays[0], repeats)

    return _by_arrays(tiled, [layout], result, mesh, [x])


@rule("aten.roll.default")
def _roll(call: Call) -> Decision | None:
    layout, dims = call.first.layout, call["dims"]
    if call.results is None:
        return None
    rolled = call.dims("dims") if dims else range(layout.ndim)
    if not any(is_spread(layout.cuts[dim]) for dim in rolled):
        return Decision([layout], [layout])
    axes = tuple([dim % layout.ndim for dim in dims]) if dims else None
    shifts = tuple(call["shifts"]) if dims else call["shifts"][0]
    run = partial(_rolled, layout, shifts, axes)
    return Decision([layout], [layout], run=run, on_mesh=True, moves=True)


def _rolled(
    layout: Layout,
    shifts: Any,
    axes: tuple[int, ...] | None,
    mesh: DeviceMesh,
    x: Tensor,
    *_: Any,
    **__: Any,
) -> Tensor:
    def rolled(arrays: Sequence[Any]) -> Any:
        return np.roll(arrays[0], shifts, axes)

    return _by_arrays(rolled, [layout], layout, mesh, [x])


@rule("aten.flip", takes=tuple(Fold), lone=True)
def _flip(call: Call) -> Decision:
    """Flip every part in place: afterwards the first rank has the last elements."""
    layout = call.first.layout
    dims = {dim % max(layout.ndim, 1) for dim in call["dims"]}
    cuts = [
        cut.view(cut.extent - 1, -1, cut.extent) if dim in dims and cut.extent else cut
        for dim, cut in enumerate(layout.cuts)
    ]
    return Decision([layout], [layout.with_cuts(cuts)])


# -- padding --------------------------------------------------------------------------------------


@rule("aten.constant_pad_nd.default")
def _pad(call: Call) -> Decision | None:
    """Lengthen or shorten the first and the last part of a dimension that is cut."""
    if call.results is None:
        return None
    layout, pads = call.first.layout, list(call["pad"])
    lows = [0] * layout.ndim
    for dim in range(len(pads) // 2):
        lows[layout.ndim - 1 - dim] = pads[2 * dim]
    wanted = layout.without_cut([dim for dim, cut in enumerate(layout.cuts) if cut.step < 0])
    cuts = [
        _longer(cut, low, extent)
        for cut, low, extent in zip(wanted.cuts, lows, call.shape, strict=True)
    ]
    result = wanted.with_cuts(cuts)
    run = partial(_padded, wanted, result, tuple(lows))
    return Decision([wanted], [result], run=run, on_mesh=True)


def _longer(cut: Cut, low: int, extent: int) -> Cut:
    if not is_spread(cut):
        return Cut(extent, cut.mesh_dims, cut.radix, extent)
    ends = [min(max(cut.interval(part)[1] + low, 0), extent) for part in range(cut.parts - 1)]
    counts = [stop - start for start, stop in zip([0, *ends], [*ends, extent], strict=True)]
    return Cut.ragged(counts, cut.mesh_dims, cut.radix)


def _padded(
    layout: Layout,
    result: Layout,
    lows: Sequence[int],
    mesh: DeviceMesh,
    x: Tensor,
    pad: Any,
    value: Any = 0,
    **_: Any,
) -> Tensor:
    found = x.new_full(result.local_shape(mesh.coords), value)
    there, here = [], []
    boxes = zip(layout.section(mesh.coords), result.section(mesh.coords), lows, strict=True)
    for (low, high), (start, stop), shift in boxes:
        first, last = max(low + shift, start), min(high + shift, stop)
        last = max(first, last)
        there.append(slice(first - start, last - start))
        here.append(slice(first - shift - low, last - shift - low))
    found[tuple(there)] = x[tuple(here)]
    return found


# -- gradients of views ---------------------------------------------------------------------------


@rule("aten.select_backward.default", takes=_LINEAR)
def _select_backward(call: Call) -> Decision:
    """Pad the gradient with zeros; it is whole along the dimension."""
    layout, sizes = call.first.layout, tuple(call["input_sizes"])
    dim = int(call["dim"]) % len(sizes)
    result = layout.expand(dim).replace(dim, Cut.whole(sizes[dim]))
    return Decision([layout], [result], lambda c: {"input_sizes": list(result.local_shape(c))})


@rule("aten.slice_backward.default", takes=_LINEAR)
def _slice_backward(call: Call) -> Decision:
    """Cut the gradient as the sliced tensor, if the slice's layout follows from that one's."""
    layout, sizes = call.first.layout, tuple(call["input_sizes"])
    dim = int(call["dim"]) % len(sizes)
    start, stop, step = slice(call["start"], call["end"], call["step"]).indices(sizes[dim])
    cut = layout.cuts[dim]
    source = Cut(sizes[dim], cut.mesh_dims, cut.radix, cut.base, bounds=cut.bounds)
    entry = (start, step, len(range(start, stop, step)))
    if is_spread(cut) and (cut.base != sizes[dim] or source.view(*entry) != cut):
        layout = elsewhere(layout, [dim])
        cut = layout.cuts[dim]
    if not is_spread(cut):
        source = Cut.whole(sizes[dim])
    result = layout.replace(dim, source)
    entries = [(0, 1, extent) for extent in sizes]
    entries[dim] = entry
    run = partial(_into_zeros, result, tuple(entries))
    return Decision([layout], [result], run=run, on_mesh=True)


def _into_zeros(
    result: Layout, entries: Any, mesh: DeviceMesh, grad: Tensor, *_: Any, **__: Any
) -> Tensor:
    found = grad.new_zeros(result.local_shape(mesh.coords))
    found[local_key(result, entries, mesh.coords)] = grad
    return found


# -- triangles and diagonals ----------------------------------------------------------------------


@rule("aten.tril", "aten.triu", takes=_LINEAR)
def _triangle(call: Call) -> Decision:
    """Compute the part of the triangle on each rank, with a diagonal relative to its part."""
    layout, diagonal = call.first.layout, int(call["diagonal"])

    def here(coords: Coords | None) -> dict[str, Any]:
        (row, _), (column, _) = layout.section(coords)[-2:]
        return {"diagonal": diagonal + row - column}

    return Decision([layout], [layout], here)


@rule("aten.diagonal", "aten.diagonal_copy.default", takes=_LINEAR)
def _diagonal(call: Call) -> Decision:
    """Take each rank's part of the diagonal, with at most one of the two dimensions cut."""
    layout = call.first.layout
    row, column = call.dim("dim1"), call.dim("dim2")
    offset = int(call["offset"])
    if is_spread(layout.cuts[row]) and is_spread(layout.cuts[column]):
        layout = layout.without_cut([column])
    along = column if is_spread(layout.cuts[column]) else row
    start = max(offset, 0) if along == column else max(-offset, 0)
    start = min(start, layout.shape[along])
    cut = layout.cuts[along].view(start, 1, call.shape[-1])
    cuts = [c for dim, c in enumerate(layout.cuts) if dim not in (row, column)]
    sign = 1 if along == row else -1

    def here(coords: Coords | None) -> dict[str, Any]:
        first = layout.section(coords)[along][0]
        return {"offset": offset + sign * first}

    return Decision([layout], [layout.with_cuts([*cuts, cut])], here)


@rule("aten.diagonal_backward.default", "aten.diag_embed.default")
def _embedded(call: Call) -> Decision | None:
    """Cut the rows as the diagonal was cut; the diagonal itself is whole on every rank."""
    if call.results is None:
        return None
    layout, ndim = call.first.layout, len(call.shape)
    row, column = call.dim("dim1", ndim), call.dim("dim2", ndim)
    wanted = layout.without_cut([layout.ndim - 1])
    cut, cuts = layout.cuts[-1], list(wanted.cuts[:-1])
    for dim in sorted((row, column)):
        cuts.insert(dim, Cut.whole(call.shape[dim]))
    cuts[row] = Cut.chunked(call.shape[row], cut.mesh_dims, cut.radix)
    result = wanted.with_cuts(cuts)
    run = partial(_embedding, result, int(call["offset"]), row, column)
    return Decision([wanted], [result], run=run, on_mesh=True)


def _embedding(
    result: Layout,
    offset: int,
    row: int,
    column: int,
    mesh: DeviceMesh,
    x: Tensor,
    *_: Any,
    **__: Any,
) -> Tensor:
    found = x.new_zeros(result.local_shape(mesh.coords))
    first = result.section(mesh.coords)[row][0]
    there = found.diagonal(offset + first, row, column)
    start = max(first - max(-offset, 0), 0)
    there.copy_(x[..., start : start + there.shape[-1]])
    return found


@composed("aten.trace")
def _trace(x: Tensor) -> Tensor:
    return x.diagonal().sum()


@composed("aten.rot90")
def _turned(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    one, other = dims
    if k % 4 == 2:
        return x.flip((one, other))
    if k % 4 == 0:
        return x.clone()
    return x.flip((other if k % 4 == 1 else one,)).transpose(one, other)
