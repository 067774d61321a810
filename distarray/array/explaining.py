"""Prediction of the messages of a redistribution."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from distarray.comm.ledger import size_text
from distarray.errors import LayoutError
from distarray.layout import Cut, Layout, Placement, Shard
from distarray.plan.explaining import (
    Explanation,
    Step,
    explain_broadcast,
    explain_fold,
    explain_move,
)

if TYPE_CHECKING:
    from distarray.array.base import Base

__all__ = ["explained", "settling"]


def explained(x: "Base", placements: Sequence[Placement] | Placement) -> Explanation:
    """Predict a redistribution, as :meth:`DistArray.explain`."""
    wanted = [placements] if isinstance(placements, Placement) else placements
    target = Layout.chunked(x.shape, x.mesh.shape, wanted)
    title = f"redistribute {list(x.layout.placements)} -> {list(target.placements)} of {x.shape}"
    itemsize = x.dtype.itemsize
    if target.partials:
        if target.placements != x.layout.placements:
            raise LayoutError(
                f"{list(target.placements)}: a pending fold can be kept or carried out, but not "
                "created"
            )
        return Explanation(title, [], x.layout, itemsize, size_text)
    steps, settled = settling(x.layout, itemsize, target)
    move = explain_move(settled, target, itemsize, "blocks to where they are wanted")
    move.memory = 0  # messages are received in the result's memory
    steps.append(move)
    return Explanation(title, steps, target, itemsize, size_text)


def settling(
    layout: Layout, itemsize: int, target: Layout | None = None
) -> tuple[list[Step], Layout]:
    """Return the steps of settling, and the layout afterwards; see `movement.settled`."""
    steps: list[Step] = []
    if layout.ats:
        partials = {m: layout.placements[m] for m in layout.partials}
        plain = Layout.from_cuts(layout.cuts, layout.mesh_shape, partials)
        steps.append(explain_broadcast(layout, plain, itemsize, "to the other coordinates"))
        layout = plain
    for mesh_dim in layout.partials:
        wanted = None if target is None else target.placements[mesh_dim]
        if isinstance(wanted, Shard) and not layout.cuts[wanted.dim].mesh_dims:
            length, size = layout.shape[wanted.dim], layout.mesh_shape[mesh_dim]
            after = layout.replace(wanted.dim, Cut.chunked(length, (mesh_dim,), (size,)))
            steps.append(explain_fold(layout, after, itemsize, "pending contributions"))
            layout = after
    if layout.partials:
        after = layout.settled()
        steps.append(explain_fold(layout, after, itemsize, "pending contributions"))
        layout = after
    return steps, layout
