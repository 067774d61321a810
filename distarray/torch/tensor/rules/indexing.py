"""Indexing by tensors of places (integer indices): on parts, along whole dimensions.

Along a dimension that is cut each rank reads its own elements, and the result is a pending sum. A
write changes the rank's own elements; values for other places go to padding beside its part, which
is dropped. Places out of range are refused by all ranks, also if only some of them have these
places.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.comm.agree import agree
from distarray.layout import Cut, Fold, Layout, Partial
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.rules.extremes import delivered
from distarray.torch.tensor.table import Decision, rule

__all__ = [
    "busy",
    "checked",
    "found_here",
    "is_even",
    "local_places",
    "pending",
    "whole_along",
    "written_here",
]


# -- layouts --------------------------------------------------------------------------------------


def busy(cuts: Sequence[Cut]) -> set[int]:
    """Return the mesh dimensions that cut."""
    return {m for cut in cuts if cut.parts > 1 for m in cut.mesh_dims}


def whole_along(layout: Layout, mesh_dims: set[int]) -> Layout:
    """Return the layout with every dimension whole that one of these mesh dimensions cuts."""
    dims = [d for d, cut in enumerate(layout.cuts) if mesh_dims & set(cut.mesh_dims)]
    return layout.without_cut(dims)


def pending(cuts: Sequence[Cut], like: Layout, mesh_dims: Sequence[int], dtype: Any) -> Layout:
    """Return the layout of contributions: each rank has its own elements, and zeros elsewhere."""
    fold = Fold.ANY if dtype is torch.bool else Fold.SUM
    others = {m: Partial(fold) for m in mesh_dims if like.mesh_shape[m] > 1}
    return Layout.from_cuts(cuts, like.mesh_shape, others)


def is_even(*layouts: Layout) -> bool:
    """Return True if no part of a nonempty tensor is empty, so that operators check alike."""
    return all(
        not layout.size or all(a < b for cut in layout.cuts for a, b in _intervals(cut))
        for layout in layouts
    )


def _intervals(cut: Cut) -> list[tuple[int, int]]:
    return [cut.interval(part) for part in range(cut.parts)]


# -- places ---------------------------------------------------------------------------------------


def checked(places: Tensor, extent: int, text: str, kind: Any, mesh: DeviceMesh | None) -> None:
    """Raise torch's error for places out of range; with a mesh, on all of its ranks.

    The text may contain the wrong ``{place}``.
    """
    bad = places[(places < 0) | (places >= extent)] if places.numel() else places
    error = kind(text.format(place=int(bad[0]))) if bad.numel() else None
    if mesh is not None:
        agree(mesh.group, error)
    elif error is not None:
        raise error


def local_places(places: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """Return places relative to the start of a part, 0 outside, and a mask of those inside."""
    here = (places >= start) & (places < stop)
    return torch.where(here, places - start, 0), here


def found_here(x: Tensor, dim: int, take: Callable[[Tensor], Tensor], here: Tensor) -> Tensor:
    """Return the elements that `take` reads from a part, with zeros where `here` is False."""
    if not x.shape[dim]:
        x = x.new_zeros([1 if d == dim else n for d, n in enumerate(x.shape)])
    found = take(x)
    return found.masked_fill_(~here, 0)


def written_here(
    x: Tensor, dim: int, places: Tensor, interval: tuple[int, int], write: Callable[..., Tensor]
) -> Tensor:
    """Return a part after a write; values for other ranks go to padding, which is dropped."""
    start, stop = interval
    beside = x.new_zeros([1 if d == dim else n for d, n in enumerate(x.shape)])
    local, here = local_places(places, start, stop)
    local = torch.where(here, local, stop - start)
    return write(torch.cat([x, beside], dim), local).narrow(dim, 0, stop - start)


# -- index_select and its like --------------------------------------------------------------------

_OUT_OF_SELF = "index out of range in self"


@rule("aten.index_select", plain=True)
def _index_select(call: Call) -> Decision | None:
    layout, index = call.first.layout, call.operands[1].layout
    if not layout.ndim or not index.ndim:
        return _of_a_number(call)
    dim = call.dim()
    index = whole_along(index, busy(layout.cuts))
    cuts = list(layout.cuts)
    cuts[dim] = index.cuts[0]
    result = pending(cuts, layout, layout.cuts[dim].mesh_dims, call.first.dtype)
    if layout.cuts[dim].parts == 1 and index.is_replicated and is_even(layout):
        return Decision([layout, index], [result])
    find = partial(_selected, layout, dim, not index.is_replicated)
    return Decision([layout, index], [result], run=delivered(call, find), on_mesh=True)


def _of_a_number(call: Call) -> Decision | None:
    """Index a tensor without dimensions, which every rank has."""
    if call.first.layout.ndim:
        return None
    wanted = [Layout.replicated(x.shape, call.mesh_shape) for x in call.operands]
    return Decision(wanted, [Layout.replicated(call.shape, call.mesh_shape)])


def _selected(
    layout: Layout, dim: int, apart: bool, mesh: DeviceMesh, x: Tensor, _: int, index: Tensor
) -> Tensor:
    checked(index, layout.shape[dim], _OUT_OF_SELF, IndexError, mesh if apart else None)
    local, here = local_places(index, *layout.section(mesh.coords)[dim])
    here = here.view([-1 if d == dim else 1 for d in range(x.ndim)])
    return found_here(x, dim, lambda x: x.index_select(dim, local), here)


@rule("aten.index_add", "aten.index_copy", "aten.index_fill", "aten.index_reduce", plain=True)
def _index_write(call: Call) -> Decision | None:
    """Use the layout of the target for the source, but whole along the dimension of the places."""
    target, index = call.first.layout, call.operands[1].layout
    if not target.ndim or not index.ndim:
        return _of_a_number(call)
    dim, rest = call.dim(), [x.layout for x in call.operands[2:]]
    sources = [layout for layout in rest if layout.ndim == target.ndim]
    target = _narrowed(call, target, sources, dim)
    index = Layout.replicated(index.shape, index.mesh_shape)
    added = _added(call, target, rest, dim)
    if added is not None:
        return added
    wanted = [
        target.replace(dim, Cut.whole(layout.shape[dim]))
        if layout.ndim == target.ndim
        else Layout.replicated(layout.shape, layout.mesh_shape)
        for layout in rest
    ]
    if target.cuts[dim].parts == 1 and is_even(target):
        return Decision([target, index, *wanted], [target])
    find = partial(_index_written, call.op.overloadpacket, target, dim)
    run = delivered(call, find)
    return Decision([target, index, *wanted], [target], run=run, on_mesh=True)


def _narrowed(call: Call, target: Layout, sources: Sequence[Layout], dim: int) -> Layout:
    """Return the target's layout; a whole target that is not written is cut as the source."""
    if call.written or busy(target.cuts) or not sources:
        return target
    cuts = [
        theirs if d != dim and theirs.extent == mine.extent else mine
        for d, (mine, theirs) in enumerate(zip(target.cuts, sources[0].cuts, strict=True))
    ]
    return target.with_cuts(cuts)


def _added(call: Call, target: Layout, rest: Sequence[Layout], dim: int) -> Decision | None:
    """Return the decision to add sources that are cut along the places: a pending sum."""
    if call.name != "aten.index_add" or call.written or rest[0].ndim != target.ndim:
        return None
    cut = rest[0].cuts[dim]
    if cut.parts == 1 or target.cuts[dim].parts > 1 or busy([cut]) & busy(target.cuts):
        return None
    if not is_even(rest[0]) or call.first.dtype is torch.bool:
        return None
    result = pending(target.cuts, target, cut.mesh_dims, call.first.dtype)
    index = Layout.from_cuts([cut], target.mesh_shape)
    source = target.replace(dim, cut)
    find = partial(_index_added, dim, target.shape[dim])
    run = delivered(call, find)
    return Decision([result, index, source], [result], run=run, on_mesh=True)


def _index_added(
    dim: int,
    extent: int,
    mesh: DeviceMesh,
    x: Tensor,
    _: int,
    index: Tensor,
    source: Tensor,
    alpha: Any = 1,
) -> Tensor:
    checked(index, extent, _OUT_OF_SELF, IndexError, mesh)
    return x.index_add(dim, index, source, alpha=alpha)


def _index_written(
    packet: Any,
    layout: Layout,
    dim: int,
    mesh: DeviceMesh,
    x: Tensor,
    _: int,
    index: Tensor,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    extent = layout.shape[dim]
    index = torch.where(index < 0, index + extent, index) if "fill" in str(packet) else index
    checked(index, extent, _OUT_OF_SELF, IndexError, None)

    def write(wide: Tensor, local: Tensor) -> Tensor:
        return packet(wide, dim, local, *args, **kwargs)

    return written_here(x, dim, index, layout.section(mesh.coords)[dim], write)
