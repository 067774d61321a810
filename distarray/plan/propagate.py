"""Common layout of an elementwise operation, to which its operands are redistributed.

The operands' own layouts are the candidates. The candidate for which the fewest bytes change rank
is chosen. Views of one base that differ by a shift (``u[:-2]``, ``u[2:]``) add a candidate: the
layout midway between them. It moves no more bytes than either view's layout. If the program writes
to an interior (``u[1:-1] = ...``), it is also the layout of the interior, so that data is shifted
only once.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from distarray.layout import Cut, Layout, Placement
from distarray.plan.cost import moved_elements

__all__ = [
    "Propagation",
    "broadcast_shapes",
    "propagate",
    "restrict",
    "shape_text",
    "whole_pair",
    "whole_product",
]


class Propagation(NamedTuple):
    """Layouts of an elementwise operation.

    Attributes
    ----------
    result : Layout
        Layout of the result.
    operands : tuple of Layout
        Layout of each operand during the operation.
    may_be_cut : bool
        True if every rank has all operands, and the result has more elements than each operand. If
        the result is large, every rank then computes only its block, without a message.
    """

    result: Layout
    operands: tuple[Layout, ...]
    may_be_cut: bool


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as in NumPy's error messages, without blanks."""
    return str(tuple(shape)).replace(" ", "")


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the common shape of operands; raise NumPy's error if they do not broadcast."""
    ndim = max([len(shape) for shape in shapes], default=0)
    common = [1] * ndim
    for shape in shapes:
        for dim, extent in enumerate(shape, ndim - len(shape)):
            if extent != 1 and extent != common[dim]:
                if common[dim] != 1:
                    listed = " ".join([shape_text(s) for s in shapes])
                    raise ValueError(
                        f"operands could not be broadcast together with shapes {listed} "
                    )
                common[dim] = extent
    return tuple(common)


@lru_cache(maxsize=4096)
def whole_pair(a: Layout, b: Layout) -> Layout | None:
    """Return the one of two layouts to whose shape both arrays broadcast.

    Return None if the arrays are not both small and replicated, or if neither shape is the common
    shape.
    """
    if a.replicas is None or a.replicas is not b.replicas:
        return None
    wide, narrow = (a, b) if a.ndim > b.ndim or (a.ndim == b.ndim and a.size >= b.size) else (b, a)
    last = wide.shape[wide.ndim - narrow.ndim :]
    fits = all(n in (1, extent) for n, extent in zip(narrow.shape, last, strict=True))
    return wide if fits else None


@lru_cache(maxsize=4096)
def whole_product(a: Layout, b: Layout) -> Layout | None:
    """Return the layout of the product of two small replicated vectors or matrices.

    Return None for other operands, and if their inner dimensions differ.
    """
    if a.replicas is None or a.replicas is not b.replicas or not {a.ndim, b.ndim} <= {1, 2}:
        return None
    if a.shape[-1] != b.shape[0]:
        return None
    return a.replicas[a.shape[:-1] + b.shape[1:]]


@lru_cache(maxsize=4096)
def restrict(layout: Layout, shape: tuple[int, ...]) -> Layout:
    """Return the layout of an operand of `shape` that broadcasts to `layout` on every rank."""
    if layout.shape == shape:
        return layout
    cuts = []
    for extent, cut in zip(shape, layout.cuts[layout.ndim - len(shape) :], strict=True):
        cuts.append(cut if extent == cut.extent else Cut.whole(extent))
    return layout.with_cuts(cuts)


@lru_cache(maxsize=4096)
def propagate(layouts: tuple[Layout, ...], itemsizes: tuple[int, ...]) -> Propagation:
    """Find the cheapest common layout of an elementwise operation.

    Parameters
    ----------
    layouts : tuple of Layout
        The operands' layouts on one mesh, without pending folds.
    itemsizes : tuple of int
        Bytes per element of each operand.

    Returns
    -------
    Propagation

    Raises
    ------
    ValueError
        If the shapes do not broadcast.
    """
    shape = broadcast_shapes(*[layout.shape for layout in layouts])
    best = _middle(layouts) if len(set(itemsizes)) == 1 else None
    if best is None:
        candidates = _candidates(layouts, shape)
        costs = [_cost(layouts, itemsizes, candidate) for candidate in candidates]
        best = candidates[costs.index(min(costs))]
    grows = best.is_replicated and best.size > max([layout.size for layout in layouts])
    return Propagation(best, tuple([restrict(best, layout.shape) for layout in layouts]), grows)


def _cost(
    layouts: Sequence[Layout], itemsizes: Sequence[int], target: Layout
) -> tuple[float, bool]:
    moved = 0.0
    for layout, itemsize in zip(layouts, itemsizes, strict=True):
        moved += itemsize * moved_elements(layout, restrict(target, layout.shape))
    return moved, bool(target.ats)


def _middle(layouts: Sequence[Layout]) -> Layout | None:
    """Return the middle of distinct, slightly shifted views of one base; None for other layouts.

    If the elements of all operands have one size, no other layout moves fewer bytes.
    """
    first = layouts[0]
    if len(set(layouts)) < len(layouts) or not first.is_plain:
        return None
    for layout in layouts[1:]:
        pairs = zip(layout.cuts, first.cuts, strict=False)
        if layout.shape != first.shape or not all(_is_slight(*pair) for pair in pairs):
            return None
    return first.with_cuts(_centred(list(first.cuts), [layout.cuts for layout in layouts]))


def _is_slight(cut: Cut, other: Cut) -> bool:
    """Return True if two views of one base are shifted by at most half a block."""
    shift = abs(cut.offset - other.offset)
    return cut.is_shift_of(other) and (
        not shift or (cut.bounds is None and 2 * shift * cut.parts <= cut.base)
    )


def _candidates(layouts: Sequence[Layout], shape: tuple[int, ...]) -> list[Layout]:
    """Return distinct layouts of the result, in order of preference."""
    mesh_shape = layouts[0].mesh_shape
    placed = [layout for layout in dict.fromkeys(layouts) if not layout.is_replicated]
    if not placed:
        return [Layout.replicated(shape, mesh_shape)]
    lifted = [_lift(layout, shape) for layout in placed]
    found: dict[Layout, None] = {}
    for position, layout in enumerate(placed):
        others = lifted[:position] + lifted[position + 1 :]
        cuts = _merge(lifted[position], others, shape, set(layout.ats))
        if layout.shape == shape and cuts == list(layout.cuts):
            merged = layout
        else:
            merged = Layout.from_cuts(cuts, mesh_shape, _free(layout.others, cuts))
        if len(placed) > 1 and merged.is_plain:
            centred = _centred(cuts, lifted)
            found[merged if centred is cuts else merged.with_cuts(centred)] = None
        found[merged] = None
    return list(found)


def _free(others: dict[int, Placement], cuts: Sequence[Cut]) -> dict[int, Placement]:
    taken = {m for cut in cuts for m in cut.mesh_dims}
    return {m: placement for m, placement in others.items() if m not in taken}


def _lift(layout: Layout, shape: tuple[int, ...]) -> list[Cut | None]:
    """Return an operand's cuts by dimension of the result; None where it is whole or broadcast."""
    lifted: list[Cut | None] = [None] * (len(shape) - layout.ndim)
    for cut, extent in zip(layout.cuts, shape[len(lifted) :], strict=True):
        lifted.append(cut if cut.mesh_dims and cut.extent == extent else None)
    return lifted


def _merge(
    first: Sequence[Cut | None],
    others: Sequence[Sequence[Cut | None]],
    shape: tuple[int, ...],
    taken: set[int],
) -> list[Cut]:
    """Complete the cuts of one operand by cuts of others along mesh dimensions still free."""
    merged = list(first)
    taken = taken | {m for cut in first if cut for m in cut.mesh_dims}
    for other in others:
        for dim, cut in enumerate(other):
            if cut and merged[dim] is None and taken.isdisjoint(cut.mesh_dims):
                merged[dim] = cut
                taken |= set(cut.mesh_dims)
    return [cut or Cut.whole(extent) for cut, extent in zip(merged, shape, strict=True)]


def _centred(cuts: list[Cut], lifted: Sequence[Sequence[Cut | None]]) -> list[Cut]:
    """Shift each cut to the middle of the operands' shifted views of the same base.

    All offsets between the two middle offsets move equally many rows. Of these, the offset that
    leaves equal margins in the base is chosen, because it gives the interior that programs write
    to.
    """
    centred = cuts
    for dim, cut in enumerate(cuts):
        if not cut.mesh_dims:
            continue
        family = [c for other in lifted if (c := other[dim]) and c.is_shift_of(cut)]
        offsets = sorted([c.offset for c in family])
        if offsets and offsets[0] < offsets[-1]:
            low, high = offsets[(len(offsets) - 1) // 2], offsets[len(offsets) // 2]
            middle = (cut.base - 1 - (cut.extent - 1) * cut.step) // 2
            offset = min(max(middle, low), high)
            if offset != cut.offset:
                centred = list(centred)
                centred[dim] = cut._replace(offset=offset)
    return centred
