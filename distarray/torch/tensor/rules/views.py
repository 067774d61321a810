"""Views: indexing, transposing, reshaping. Elements stay on their rank where possible.

Where a reshape has to move elements, it takes one exchange, and its result is a view with memory of
its own (see :mod:`distarray.torch.tensor.moved_views`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.array import wrap
from distarray.comm import DeviceMesh
from distarray.engines.reshaping import refitted, reshaped_layout
from distarray.layout import Cut, Entries, Fold, Layout, local_key, view_layout
from distarray.torch.collectives.blocks import movable, moved_back
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.table import Decision, instead, rule

__all__ = ["indexed"]

_ALL = tuple(Fold)


# -- basic indexing -------------------------------------------------------------------------------


def indexed(layout: Layout, views: Sequence[Entries]) -> Decision:
    """Return the decision for one or several views of a tensor by basic indexing."""
    results = [view_layout(layout, entries) for entries in views]
    return Decision([layout], results, run=partial(_take, layout, views), on_mesh=True)


def _take(
    layout: Layout, views: Sequence[Entries], mesh: DeviceMesh, x: Tensor, *_: Any, **__: Any
) -> Any:
    found = []
    for entries in views:
        key = local_key(layout, entries, mesh.coords)
        if key is None:
            found.append(x.new_empty(view_layout(layout, entries).local_shape(mesh.coords)))
        else:
            found.append(x[key])
    return found


def _one(decision: Decision) -> Decision:
    """Return the decision for a single view."""
    run = decision.run
    assert run is not None

    def first(*args: Any, **kwargs: Any) -> Tensor:
        return run(*args, **kwargs)[0]

    return decision._replace(run=first)


def _whole(layout: Layout) -> list[Any]:
    return [(0, 1, extent) for extent in layout.shape]


@rule("aten.select.int", takes=_ALL, lone=True)
def _select(call: Call) -> Decision:
    layout, dim = call.first.layout, call.dim()
    entries = _whole(layout)
    entries[dim] = int(call["index"]) % layout.shape[dim]
    return _one(indexed(layout, [tuple(entries)]))


@rule("aten.slice.Tensor", takes=_ALL, lone=True)
def _slice(call: Call) -> Decision:
    layout, dim = call.first.layout, call.dim()
    start, stop, step = slice(call["start"], call["end"], call["step"]).indices(layout.shape[dim])
    entries = _whole(layout)
    entries[dim] = (start, step, len(range(start, stop, step)))
    if entries[dim] == (0, 1, layout.shape[dim]):
        return Decision([layout], [layout])
    return _one(indexed(layout, [tuple(entries)]))


@rule("aten.unbind.int", takes=_ALL, lone=True)
def _unbind(call: Call) -> Decision:
    layout, dim = call.first.layout, call.dim()
    views = []
    for index in range(layout.shape[dim]):
        entries = _whole(layout)
        entries[dim] = index
        views.append(tuple(entries))
    return indexed(layout, views)


@rule("aten.split.Tensor", "aten.split_with_sizes", takes=_ALL, lone=True)
def _split(call: Call) -> Decision | None:
    layout, dim = call.first.layout, call.dim()
    if call.results is None:
        return None
    views, start = [], 0
    for result in call.results:
        entries, extent = _whole(layout), result.shape[dim]
        entries[dim] = (start, 1, extent)
        views.append(tuple(entries))
        start += extent
    return indexed(layout, views)


@rule("aten.squeeze", takes=_ALL, lone=True)
def _squeeze(call: Call) -> Decision:
    layout = call.first.layout
    given = call.get("dim")
    dims = () if isinstance(given, (list, tuple)) and not given else call.dims()
    entries = [
        0 if dim in dims and extent == 1 else (0, 1, extent)
        for dim, extent in enumerate(layout.shape)
    ]
    return _one(indexed(layout, [tuple(entries)]))


@rule("aten.unsqueeze", takes=_ALL, lone=True)
def _unsqueeze(call: Call) -> Decision:
    layout = call.first.layout
    dim = int(call["dim"]) % (layout.ndim + 1)
    if layout.ats:  # ranks that do not hold it have empty parts
        entries = _whole(layout)
        entries.insert(dim, None)
        return _one(indexed(layout, [tuple(entries)]))
    return Decision([layout], [layout.expand(dim)])


# -- transposing and stretching -------------------------------------------------------------------


def _permuted(layout: Layout, axes: Sequence[int]) -> Decision:
    found = layout.transpose(axes)
    run = partial(_turned, found, tuple(axes)) if layout.ats else None
    return Decision([layout], [found], run=run, on_mesh=True)


def _turned(
    layout: Layout, axes: Sequence[int], mesh: DeviceMesh, x: Tensor, *_: Any, **__: Any
) -> Tensor:
    """Permute the part of a lone tensor; other ranks get an empty part of the new shape."""
    if not layout.holds(mesh.coords):
        return x.new_empty(layout.local_shape(mesh.coords))
    return x.permute(axes)


@rule("aten.t", takes=_ALL, lone=True)
def _t(call: Call) -> Decision:
    return _permuted(call.first.layout, range(call.first.layout.ndim)[::-1])


@rule("aten.transpose.int", takes=_ALL, lone=True)
def _transpose(call: Call) -> Decision:
    layout = call.first.layout
    axes = list(range(layout.ndim))
    if axes:
        a, b = call.dim("dim0"), call.dim("dim1")
        axes[a], axes[b] = b, a
    return _permuted(layout, axes)


@rule("aten.permute", takes=_ALL, lone=True)
def _permute(call: Call) -> Decision:
    layout = call.first.layout
    return _permuted(layout, [dim % layout.ndim for dim in call["dims"]])


@rule("aten.expand", takes=_ALL, lone=True)
def _expand(call: Call) -> Decision:
    """Make a cut dimension of extent 1 whole before it is stretched."""
    layout, shape = call.first.layout, call.shape
    ahead = len(shape) - layout.ndim
    stretched = [dim for dim, extent in enumerate(layout.shape) if extent != shape[dim + ahead]]
    source = layout.without_cut(stretched)
    cuts = [
        Cut.whole(extent) if dim < ahead or dim - ahead in stretched else source.cuts[dim - ahead]
        for dim, extent in enumerate(shape)
    ]
    result = source.with_cuts(cuts)
    return Decision([source], [result], run=partial(_stretched, result), on_mesh=True)


def _stretched(layout: Layout, mesh: DeviceMesh, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """Expand a part; a rank without the lone tensor gets an empty part of the new shape."""
    shape = layout.local_shape(mesh.coords)
    return x.expand(shape) if layout.holds(mesh.coords) else x.new_empty(shape)


# -- reshaping ------------------------------------------------------------------------------------


@rule(
    "aten.view.default",
    "aten._unsafe_view",
    "aten._reshape_alias",
    "aten.view_copy.default",
    takes=_ALL,
    lone=True,
)
def _view(call: Call) -> Decision:
    layout, shape = call.first.layout, call.shape
    result, stays = reshaped_layout(layout, shape)
    if layout.size and stays:
        return Decision([layout], [result], run=partial(_viewed, result), on_mesh=True)
    layout = layout.settled()
    result, _ = reshaped_layout(layout, shape)
    if not layout.size:
        whole = Layout.replicated(layout.shape, layout.mesh_shape)
        return Decision([whole], [result])
    return Decision(
        [layout], [result], run=partial(_exchanged, layout, shape), on_mesh=True, moves=True
    )


@instead("aten.reshape")
def _as_torch_reshapes(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Return a view where the global tensor's order in memory allows one, else a view of a copy.

    torch decides this itself where programs call `reshape`, but not below autograd, where rules
    call it: a rank's part may have another order in memory than the global tensor.
    """
    aten, whole = torch.ops.aten, torch.empty_strided(x.shape, x.stride(), device="meta")
    sizes = tuple(whole.reshape(shape).shape)
    try:
        whole.view(sizes)
    except RuntimeError:
        copy: Tensor = aten._unsafe_view.default(x.contiguous(), sizes)
        return copy
    view: Tensor = aten.view.default(x, sizes)
    return view


def _viewed(layout: Layout, mesh: DeviceMesh, x: Tensor, *_: Any, **__: Any) -> Tensor:
    """Return a view of a part."""
    shape = layout.local_shape(mesh.coords)
    if not x.numel():  # without elements there is no memory to share
        return x.new_empty(shape)
    try:
        return x.view(shape)
    except RuntimeError as error:
        raise RuntimeError(
            f"this rank's part has strides {tuple(x.stride())} for its shape {tuple(x.shape)}, so "
            f"that a view of shape {shape} cannot share its memory; x.clone() has no gaps"
        ) from error


def _exchanged(
    layout: Layout, shape: tuple[int, ...], mesh: DeviceMesh, x: Tensor, *_: Any, **__: Any
) -> Tensor:
    """Return this rank's part of the reshaped global tensor, received from other ranks."""
    array = wrap(movable(x), layout, mesh.on("cpu"))
    found = refitted(array, shape)
    return moved_back(found.block.copy(), x)


# -- other data types -----------------------------------------------------------------------------


@rule("aten.view_as_real", takes=_ALL, lone=True)
def _as_real(call: Call) -> Decision:
    layout = call.first.layout
    result = layout.expand(layout.ndim).replace(layout.ndim, Cut.whole(2))
    return Decision([layout], [result], run=partial(_in_pairs, result), on_mesh=True)


def _in_pairs(layout: Layout, mesh: DeviceMesh, x: Tensor) -> Tensor:
    """Return a part as pairs of numbers; a rank without the lone tensor gets an empty part."""
    if layout.holds(mesh.coords):
        return torch.view_as_real(x)
    return x.new_empty(layout.local_shape(mesh.coords), dtype=x.dtype.to_real())


@rule("aten.view_as_complex", takes=(Fold.SUM,))
def _as_complex(call: Call) -> Decision:
    layout = call.first.layout
    source = layout.without_cut([layout.ndim - 1])
    return Decision([source], [source.with_cuts(source.cuts[:-1])], run=_complex)


def _complex(x: Tensor) -> Tensor:
    """Return a part of pairs as complex numbers; an empty part may have any strides."""
    if x.numel():
        return torch.view_as_complex(x)
    return x.new_empty(x.shape[:-1], dtype=x.dtype.to_complex())


@rule("aten._conj", "aten._neg_view", takes=(Fold.SUM, Fold.AVG), lone=True)
def _negated(call: Call) -> Decision:
    """Compute at once: a part that is negated lazily would differ from the global tensor."""
    layout = call.first.layout
    run = torch.conj_physical if call.name == "aten._conj" else torch.neg
    return Decision([layout], [layout], run=run, moves=True)
