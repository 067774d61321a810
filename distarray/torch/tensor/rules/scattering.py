"""Gathering and scattering by element: each index element is a place along one dimension."""

from functools import partial
from typing import Any

from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Cut, Layout
from distarray.torch.tensor.calls import Call
from distarray.torch.tensor.rules.extremes import delivered
from distarray.torch.tensor.rules.indexing import (
    busy,
    checked,
    found_here,
    is_even,
    local_places,
    pending,
    whole_along,
    written_here,
)
from distarray.torch.tensor.table import Decision, rule

_OUT = "index {{place}} is out of bounds for dimension {dim} with size {extent}"


def _beside(target: Layout, others: list[Layout], dim: int, fixed: bool) -> Layout:
    """Return the target's layout, with cuts along other dimensions only where all lengths agree.

    Where it is whole and not `fixed`, it is cut as the first of the others, without communication.
    """
    cuts, used = list(target.cuts), busy(target.cuts)
    for d, cut in enumerate(cuts):
        theirs = others[0].cuts[d]
        if d == dim:
            continue
        if any(layout.shape[d] != cut.extent for layout in others):
            cuts[d] = Cut.whole(cut.extent)
        elif cut.parts == 1 and not fixed and not used & set(theirs.mesh_dims):
            cuts[d] = theirs
            used |= busy([theirs])
    return target.with_cuts(cuts)


@rule("aten.gather", plain=True)
def _gather(call: Call) -> Decision | None:
    layout, index = [x.layout for x in call.operands]
    if not layout.ndim or index.ndim != layout.ndim:  # torch accepts any shapes without elements
        return None
    dim = call.dim()
    layout = _beside(layout, [index], dim, fixed=False)
    index = whole_along(index, busy(layout.cuts))
    cuts = list(layout.cuts)
    cuts[dim] = index.cuts[dim]
    index = index.with_cuts(
        [cut if cut.extent == n else Cut.whole(n) for cut, n in zip(cuts, index.shape, strict=True)]
    )
    result = pending(index.cuts, layout, layout.cuts[dim].mesh_dims, call.first.dtype)
    if layout.cuts[dim].parts == 1 and index.is_replicated and is_even(layout):
        return Decision([layout, index], [result])
    find = partial(_gathered, layout, dim, not index.is_replicated)
    return Decision([layout, index], [result], run=delivered(call, find), on_mesh=True)


def _gathered(
    layout: Layout,
    dim: int,
    apart: bool,
    mesh: DeviceMesh,
    x: Tensor,
    _: int,
    index: Tensor,
    **__: Any,
) -> Tensor:
    _check(index, layout, dim, mesh if apart else None)
    local, here = local_places(index, *layout.section(mesh.coords)[dim])
    return found_here(x, dim, lambda x: x.gather(dim, local), here)


def _check(index: Tensor, layout: Layout, dim: int, mesh: DeviceMesh | None) -> None:
    extent = layout.shape[dim]
    checked(index, extent, _OUT.format(dim=dim, extent=extent), RuntimeError, mesh)


@rule("aten.scatter", "aten.scatter_add", "aten.scatter_reduce", plain=True)
def _scatter(call: Call) -> Decision | None:
    """Keep places and sources whole along the dimension of the places."""
    target, index, *rest = [x.layout for x in call.operands]
    if not target.ndim or index.ndim != target.ndim:
        return None
    dim = call.dim()
    sources = [layout for layout in rest if layout.ndim]
    target = _beside(target, [index, *sources], dim, fixed=bool(call.written))
    wanted = [_along(target, layout, dim) for layout in (index, *rest)]
    if target.cuts[dim].parts == 1 and wanted[0].is_replicated and is_even(target):
        return Decision([target, *wanted], [target])
    apart = not wanted[0].is_replicated
    find = partial(_scattered, call.op.overloadpacket, target, dim, apart)
    run = delivered(call, find)
    return Decision([target, *wanted], [target], run=run, on_mesh=True)


def _along(target: Layout, layout: Layout, dim: int) -> Layout:
    if not layout.ndim:
        return Layout.replicated((), layout.mesh_shape)
    cuts = [
        Cut.whole(extent) if d == dim or cut.extent != extent else cut
        for d, (cut, extent) in enumerate(zip(target.cuts, layout.shape, strict=True))
    ]
    return Layout.from_cuts(cuts, target.mesh_shape)


def _scattered(
    packet: Any,
    layout: Layout,
    dim: int,
    apart: bool,
    mesh: DeviceMesh,
    x: Tensor,
    _: int,
    index: Tensor,
    *args: Any,
    **kwargs: Any,
) -> Tensor:
    _check(index, layout, dim, mesh if apart else None)

    def write(wide: Tensor, local: Tensor) -> Tensor:
        return packet(wide, dim, local, *args, **kwargs)

    return written_here(x, dim, index, layout.section(mesh.coords)[dim], write)
