"""Fancy indexing, ``x[i, :, j]`` with tensors of integers: reading, writing and accumulating.

Dimensions that are not indexed stay cut. Along an indexed dimension that is cut each rank reads and
writes its own elements. Masks are supported only for writing one number. Otherwise the length of
the result depends on the mask's values.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Cut, Layout, Partial
from distarray.plan.propagate import broadcast_shapes, propagate, restrict
from distarray.torch.tensor.calls import Call, Operand
from distarray.torch.tensor.rules.extremes import delivered
from distarray.torch.tensor.rules.indexing import busy, checked, local_places, pending, whole_along
from distarray.torch.tensor.table import Decision, rule

_OUT = "index {{place}} is out of bounds for dimension {dim} with size {extent}"
_WRITES = ("aten.index_put", "aten._index_put_impl", "aten._unsafe_index_put")


class _Key(NamedTuple):
    """Indexed dimensions, and the layout of the places after broadcasting."""

    dims: tuple[int, ...]
    places: Layout

    def cuts(self, layout: Layout) -> list[Cut]:
        """Return the cuts of the elements that the key selects from a tensor."""
        rest = [cut for d, cut in enumerate(layout.cuts) if d not in self.dims]
        first, last = self.dims[0], self.dims[-1]
        front = first if last - first + 1 == len(self.dims) else 0
        return [*rest[:front], *self.places.cuts, *rest[front:]]

    def cutting(self, layout: Layout) -> set[int]:
        """Return the mesh dimensions that cut indexed dimensions."""
        return busy([layout.cuts[d] for d in self.dims])


def _key(call: Call, layout: Layout) -> _Key | None:
    """Return the key of a call on a tensor in this layout; None for masks."""
    entries = list(call["indices"])
    given = [x for x in entries if isinstance(x, Operand)]
    if not given or any(x.dtype in (torch.bool, torch.uint8) for x in given):
        return None
    dims = tuple([d for d, x in enumerate(entries) if isinstance(x, Operand)])
    shape = broadcast_shapes(*[x.shape for x in given])
    found = propagate(tuple([x.layout.settled() for x in given]), (8,) * len(given)).result
    if found.shape != shape:
        return None
    return _Key(dims, whole_along(found, busy(layout.cuts)))


@rule("aten.index", "aten._unsafe_index", plain=True)
def _index(call: Call) -> Decision | None:
    layout = call.first.layout
    key = _key(call, layout)
    if key is None or call.results is None:
        return None
    mesh_dims = tuple(sorted(key.cutting(layout)))
    result = pending(key.cuts(layout), layout, mesh_dims, call.first.dtype)
    wanted = [restrict(key.places, x.shape) for x in call.operands[1:]]
    find = partial(_taken, layout, key, bool(busy(key.places.cuts)))
    return Decision([layout, *wanted], [result], run=delivered(call, find), on_mesh=True)


def _local(
    layout: Layout, key: _Key, apart: bool, mesh: DeviceMesh, indices: Sequence[Any]
) -> tuple[list[Any], Tensor | None]:
    """Return the indices relative to a part, and a mask of those inside; None if all are inside."""
    local, here = list(indices), None
    for d in key.dims:
        extent = layout.shape[d]
        places = torch.where(indices[d] < 0, indices[d] + extent, indices[d]).long()
        text = _OUT.format(dim=d, extent=extent)
        checked(places, extent, text, IndexError, mesh if apart else None)
        local[d] = places
        if layout.cuts[d].parts > 1:
            local[d], mine = local_places(places, *layout.section(mesh.coords)[d])
            here = mine if here is None else here & mine
    return local, here


def _taken(
    layout: Layout, key: _Key, apart: bool, mesh: DeviceMesh, x: Tensor, indices: Sequence[Any]
) -> Tensor:
    local, here = _local(layout, key, apart, mesh, indices)
    if here is None:
        return torch.ops.aten.index(x, local)
    empty = [1 if d in key.dims and not n else n for d, n in enumerate(x.shape)]
    found = torch.ops.aten.index(x if tuple(empty) == x.shape else x.new_zeros(empty), local)
    return found.masked_fill_(~_aligned(here, key, x.ndim), 0)


def _aligned(here: Tensor, key: _Key, ndim: int) -> Tensor:
    """Return a mask of the places, with new dimensions for the unindexed ones that follow."""
    first, last = key.dims[0], key.dims[-1]
    front = first if last - first + 1 == len(key.dims) else 0
    return here.reshape(*here.shape, *[1] * (ndim - len(key.dims) - front))


# -- writing --------------------------------------------------------------------------------------


@rule(*_WRITES, plain=True)
def _index_put(call: Call) -> Decision | None:
    layout = call.first.layout
    key, values = _key(call, layout), call.operands[-1].layout
    if key is None:
        return _masked(call)
    added = _added(call, layout, key, values)
    if added is not None:
        return added
    if not call.written and not busy(layout.cuts):
        layout = _as_values(layout, key, values)
    places = Layout.replicated(key.places.shape, call.mesh_shape)
    key = key._replace(places=places)
    target = Layout.from_cuts(key.cuts(layout), layout.mesh_shape)
    target = whole_along(target, key.cutting(layout))
    wanted = [restrict(places, x.shape) for x in call.operands[1:-1]]
    run = delivered(call, partial(_put, layout, key, False))
    wanted.append(restrict(target, values.shape))
    return Decision([layout, *wanted], [layout], run=run, on_mesh=True)


def _masked(call: Call) -> Decision | None:
    """Write one number where a mask of the first dimensions is True."""
    entries, layout = list(call["indices"]), call.first.layout
    if len(entries) != 1 or entries[0] is None or entries[0].dtype is not torch.bool:
        return None
    mask, values = call.operands[1].layout, call.operands[2].layout
    if values.size != 1 or mask.shape != layout.shape[: mask.ndim]:
        return None
    there = Layout.from_cuts(layout.cuts[: mask.ndim], layout.mesh_shape)
    number = Layout.replicated(values.shape, values.mesh_shape)
    return Decision([layout, there, number], [layout])


def _as_values(layout: Layout, key: _Key, values: Layout) -> Layout:
    """Return the layout of a whole tensor, cut as the values along unindexed dimensions."""
    cuts, row = list(layout.cuts), key.cuts(layout)
    lead = len(row) - values.ndim
    first, last = key.dims[0], key.dims[-1]
    front = first if last - first + 1 == len(key.dims) else 0
    rest = [d for d in range(layout.ndim) if d not in key.dims]
    for number, d in enumerate(rest):
        place = number if number < front else number + key.places.ndim
        if place >= lead and values.shape[place - lead] == cuts[d].extent:
            cuts[d] = values.cuts[place - lead]
    return layout.with_cuts(cuts)


def _added(call: Call, layout: Layout, key: _Key, values: Layout) -> Decision | None:
    """Return the decision to accumulate at places that are cut, as in a gradient: a pending sum."""
    spread = busy(key.places.cuts)
    plain = not call.written and bool(call["accumulate"]) and not busy(layout.cuts)
    if not plain or not spread or call.first.dtype is torch.bool:
        return None
    others = {m: Partial() for m in spread}
    layout = _as_values(layout, key, whole_along(values, spread))
    result = Layout.from_cuts(layout.cuts, layout.mesh_shape, others)
    target = Layout.from_cuts(key.cuts(layout), layout.mesh_shape)
    wanted = [restrict(key.places, x.shape) for x in call.operands[1:-1]]
    if values.shape != target.shape:
        return None
    run = delivered(call, partial(_put, layout, key, True))
    return Decision([result, *wanted, target], [result], run=run, on_mesh=True)


def _put(
    layout: Layout,
    key: _Key,
    apart: bool,
    mesh: DeviceMesh,
    x: Tensor,
    indices: Sequence[Any],
    values: Tensor,
    accumulate: bool = False,
    *_: Any,
    **__: Any,
) -> Tensor:
    """Return a part after a write; values for other ranks go to a padding row, which is dropped."""
    local, here = _local(layout, key, apart, mesh, indices)
    if here is None:
        return torch.ops.aten.index_put(x, local, values, accumulate)
    wide = list(x.shape)
    for d in key.dims:
        if layout.cuts[d].parts > 1:
            local[d] = torch.where(here, local[d], x.shape[d])
            wide[d] += 1
    part = tuple([slice(n) for n in x.shape])
    there = x.new_zeros(wide)
    there[part] = x
    return torch.ops.aten.index_put_(there, local, values, accumulate)[part]
