"""The layout of an array joined from others: the one that moves the fewest bytes."""

from functools import lru_cache

from distarray.layout import At, Cut, Layout, Shard, view_layout
from distarray.plan.cost import moved_elements

__all__ = ["Placed", "joined_layout"]

#: An operand's layout and the index of its first element in the result.
Placed = tuple[Layout, tuple[int, ...]]
#: The most distinct operand layouts that are tried as models of the result's.
_MOST_MODELS = 4


@lru_cache(maxsize=1024)
def joined_layout(shape: tuple[int, ...], parts: tuple[Placed, ...]) -> Layout | None:
    """The layout of an array of `shape` that consists of parts, boxes of its index space.

    Each operand's layout is tried as the model (see :func:`_after`).

    Returns
    -------
    Layout or None
        None if every operand is replicated, so that no layout moves anything.
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
    """A layout of the result modelled on an operand's.

    Dimensions in which the operand is as long as the result keep its cut; others that it cuts get
    the canonical cut. If the operand lives at a lone coordinate of mesh dimensions, these cut the
    longest whole dimension in which the result is longer than the operand.
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
    """The layout of the box of the result that an operand fills."""
    entries = tuple([(start, 1, n) for start, n in zip(origin, layout.shape, strict=True)])
    return view_layout(result, entries)
