"""Alignment of operands: layouts in which the dimensions that an operator needs whole are whole.

A cut along such a dimension is moved to another dimension. Every element is sent at most once, and
no rank receives the global tensor.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from distarray.comm import DeviceMesh
from distarray.layout import Coords, Cut, Layout, Partial
from distarray.torch.tensor.calls import Call, Operand, tensors_in
from distarray.torch.tensor.table import Decision

__all__ = ["batched", "elsewhere", "guarded", "is_spread", "pending", "with_lead"]


def is_spread(cut: Cut) -> bool:
    """Return True if ranks have different indices of the dimension."""
    return cut.parts > 1


def elsewhere(layout: Layout, dims: Sequence[int]) -> Layout:
    """Return the layout with `dims` whole; their cuts move to another dimension if there is one.

    Examples
    --------
    >>> from distarray.layout import Layout, Shard
    >>> layout = Layout.chunked((6, 4), (3,), [Shard(1)])
    >>> elsewhere(layout, [1]).placements, elsewhere(layout, [0, 1]).placements
    ((Shard(0),), (Replicate(),))
    """
    cutting = [dim for dim in dims if layout.cuts[dim].mesh_dims]
    if not cutting:
        return layout
    whole = layout.without_cut(cutting)
    free = [dim for dim in range(layout.ndim) if dim not in dims and layout.shape[dim] > 1]
    if not free:
        return whole
    target = max(free, key=lambda dim: (not whole.cuts[dim].mesh_dims, layout.shape[dim], -dim))
    mesh_dims = whole.cuts[target].mesh_dims
    for dim in cutting:
        mesh_dims += layout.cuts[dim].mesh_dims
    radix = tuple([layout.mesh_shape[m] for m in mesh_dims])
    return whole.replace(target, Cut.chunked(layout.shape[target], mesh_dims, radix))


def pending(layout: Layout, mesh_dims: Sequence[int]) -> Layout:
    """Return the layout with a pending sum along the mesh dimensions that have several ranks."""
    others = {m: Partial() for m in mesh_dims if layout.mesh_shape[m] > 1}
    return Layout.from_cuts(layout.cuts, layout.mesh_shape, others)


def with_lead(lead: Sequence[Cut], shape: Sequence[int], mesh_shape: tuple[int, ...]) -> Layout:
    """Return the layout of a shape with these cuts of its first dimensions, the others whole."""
    cuts = [*lead, *[Cut.whole(extent) for extent in shape[len(lead) :]]]
    return Layout.from_cuts(cuts, mesh_shape)


def batched(
    call: Call,
    trailing: Sequence[int],
    changed: Callable[[Layout, Coords | None], dict[str, Any]] | None = None,
) -> Decision | None:
    """Return the decision for an operator that treats each element of a batch alike.

    Parameters
    ----------
    call : Call
        A call whose results have the batch's dimensions first.
    trailing : sequence of int
        For each operand, the number of its last dimensions that are not the batch's.
    changed : callable, optional
        Function from the layout of the first result and a rank's coordinates to changed arguments.

    Returns
    -------
    Decision or None
        None if the operands' batches differ, or nothing can be cut.
    """
    leads = {x.shape[: len(x.shape) - k] for x, k in zip(call.operands, trailing, strict=True)}
    if call.results is None or len(leads) != 1:
        return None
    (shape,) = leads
    count = len(shape)
    if any(x.shape[:count] != shape for x in call.results):
        return None
    lead = _lead(call.operands, count)
    if lead is None:
        return None
    wanted = [with_lead(lead, x.shape, call.mesh_shape) for x in call.operands]
    results = [with_lead(lead, x.shape, call.mesh_shape) for x in call.results]
    found = guarded(call, wanted, results)
    if changed is None:
        return found
    return found._replace(changed=partial(changed, results[0]))


def _lead(operands: Sequence[Operand], count: int) -> tuple[Cut, ...] | None:
    """Return the cuts of the batch: those of an operand that need not move, else of the largest."""
    best: tuple[int, tuple[Cut, ...]] | None = None
    for x in operands:
        layout = x.layout.settled()
        there = elsewhere(layout, range(count, layout.ndim))
        lead = there.cuts[:count]
        if any(is_spread(cut) for cut in lead):
            if there is layout:
                return lead
            weight = layout.size * x.itemsize
            if best is None or weight > best[0]:
                best = weight, lead
    return None if best is None else best[1]


def guarded(
    call: Call,
    wanted: Sequence[Layout],
    results: Sequence[Layout],
    mask: Sequence[bool] | None = None,
) -> Decision:
    """Return the decision to call the operator only with nonempty parts; it may refuse empty ones.

    `mask` selects the results that the call asks for; `results` lists the layouts of all results.
    """
    assert call.results is not None
    mask = [True] * len(results) if mask is None else mask
    asked = [layout for layout, is_asked in zip(results, mask, strict=True) if is_asked]
    kinds = iter([x.dtype for x in call.results])
    empty = [
        (layout, next(kinds)) if is_asked else None
        for layout, is_asked in zip(results, mask, strict=True)
    ]
    run = partial(_or_nothing, call.op, tuple(wanted), empty)
    return Decision(wanted, asked, run=run, on_mesh=True)


def _parts(layouts: Sequence[Layout], mesh: DeviceMesh) -> Iterator[tuple[Layout, tuple[int, ...]]]:
    """Yield layouts with the shapes of this rank's parts."""
    return ((layout, layout.local_shape(mesh.coords)) for layout in layouts)


def _or_nothing(
    op: Any,
    wanted: Sequence[Layout],
    results: Sequence[tuple[Layout, Any] | None],
    mesh: DeviceMesh,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Call the operator; return zeros if a part is empty where the global tensor is not."""
    if not any(0 in here and here != x.shape for x, here in _parts(wanted, mesh)):
        return op(*args, **kwargs)
    like: Tensor = tensors_in(args, kwargs)[0]
    found = [
        None if entry is None else like.new_zeros(entry[0].local_shape(mesh.coords), dtype=entry[1])
        for entry in results
    ]
    return found[0] if len(op._schema.returns) == 1 else tuple(found)
