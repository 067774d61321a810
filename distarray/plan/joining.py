"""Layout of an array joined from others: the layout that moves the fewest elements."""

from functools import lru_cache

from distarray.layout import At, Cut, Layout, Shard, view_layout
from distarray.plan.cost import moved_elements

__all__ = ["Placed", "joined_layout"]

#: Layout of an operand, and the index of its first element in the result.
Placed = tuple[Layout, tuple[int, ...]]
#: Largest number of distinct operand layouts that are tried as models of the result's layout.
_MOST_MODELS = 4


@lru_cache(maxsize=1024)
def joined_layout(shape: tuple[int, ...], parts: tuple[Placed, ...]) -> Layout | None:
    """Return the layout of an array of `shape` joined from operands, boxes of its index space.

    The layouts of up to four operands are tried as models (see :func:`_after`).

    Returns
    -------
    Layout or None
        None if every operand is replicated: then no layout moves an element.
    """
    models = list(dict.fromkeys([layout for layout, _ in parts if not layout.is_replicated]))
    if not models:
        return None
    found: Layout | None = None
    least = 0.0
    for candidate in dict.fromkeys([_after(m, shape) for m in models[:_MOST_MODELS]]):
        cost = sum([moved_elements(layout, _box(candidate, layout, at)) for layout, at in parts])
        if found is None or cost < least:
            found, least = candidate, cost
    return found


def _after(model: Layout, shape: tuple[int, ...]) -> Layout:
    """Return a layout of the result modelled on an operand's layout.

    A dimension in which the operand is as long as the result keeps the operand's cut. Other
    dimensions that the operand cuts get the canonical cut. If the operand is at a lone coordinate
    of some mesh dimensions, these cut the longest whole dimension in which the result is longer
    than the operand.
    """
    cuts: list[Cut] = []
    for cut, extent in zip(model.cuts, shape, strict=True):
        if cut.extent == extent:
            cuts.append(cut)
        else:
            cuts.append(Cut.chunked(extent, cut.mesh_dims, cut.radix))
    layout = Layout.from_cuts(cuts, model.mesh_shape)
    joined = [d for d, cut in enumerate(model.cuts) if cut.extent != shape[d] and not cut.mesh_dims]
    if not model.ats or not joined:
        return layout
    dim = max(joined, key=lambda d: shape[d])
    placements = [
        Shard(dim) if isinstance(p, At) else kept
        for p, kept in zip(model.placements, layout.placements, strict=True)
    ]
    return layout.replace(dim, Layout.chunked(shape, model.mesh_shape, placements).cuts[dim])


def _box(result: Layout, layout: Layout, origin: tuple[int, ...]) -> Layout:
    """Return the layout of the box of the result that an operand fills."""
    entries = tuple([(start, 1, n) for start, n in zip(origin, layout.shape, strict=True)])
    return view_layout(result, entries)
