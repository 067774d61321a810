"""Plan of a contraction: a product of arrays, summed over some of their index labels.

Every dimension of every operand carries a label, as in einsum. For each mesh dimension, one label
is chosen to be cut: operands that carry the label are cut along it, the others are whole there. A
label of the result leaves the result cut. A label that is summed over leaves a pending sum. The
cheapest choice is taken. Arithmetic is counted as the bytes that a link could send in that time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from distarray.layout import Cut, Layout, Partial
from distarray.plan.cost import moved_elements

__all__ = [
    "Contraction",
    "ContractionPlan",
    "Panels",
    "divided_dim",
    "panels_of",
    "parts_of",
    "plan_contraction",
]

Labels = tuple[int, ...]
Grains = tuple[int, ...]

#: Bytes that a link carries in the time of one multiplication and addition.
_BYTES_A_PRODUCT = 0.2
#: Bytes that a link carries in the latency of one exchange or collective.
_BYTES_A_MESSAGE = 1 << 14
#: Bytes that a link carries in the latency of one exchange called from Python, about 30 us.
#: Dividing whole operands has to save more than these.
_BYTES_A_DIVISION = 1 << 17
#: Largest number of assignments of labels to mesh dimensions that are compared.
_MOST_CHOICES = 400


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """Product of operands, summed over the labels that the result does not carry.

    Contractions are compared by identity, so that plans are found fast in caches. Create a
    contraction in a cached function.

    Attributes
    ----------
    terms : tuple of tuple of int
        The label of each dimension of each operand. An operand carries no label twice. -1 marks a
        dimension of extent 1 that broadcasting stretches.
    out : tuple of int
        The labels of the result. A label that no operand carries is made by the kernel, and is not
        cut.
    extents : tuple of int
        The extent of each label.
    conjugated : bool
        True if the complex conjugates of the first operand's elements are multiplied.
    """

    terms: tuple[Labels, ...]
    out: Labels
    extents: tuple[int, ...]
    conjugated: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the result."""
        return tuple([self.extents[label] for label in self.out])


class ContractionPlan(NamedTuple):
    """Layouts of the operands, of each rank's product and of the result.

    Attributes
    ----------
    operands : tuple of Layout
        The layout that each operand is redistributed to.
    pending : tuple of int
        Mesh dimensions along which the products are contributions to a sum.
    local : Layout
        The layout of the products, with `pending` marked in it.
    result : Layout
        The layout of the finished result.
    cuts : tuple of Cut
        The cut of each label.
    moved : float
        Bytes of operands that change rank, over all ranks.
    """

    operands: tuple[Layout, ...]
    pending: tuple[int, ...]
    local: Layout
    result: Layout
    cuts: tuple[Cut, ...]
    moved: float


@lru_cache(maxsize=4096)
def plan_contraction(
    spec: Contraction,
    layouts: tuple[Layout, ...],
    itemsizes: tuple[int, ...],
    out_itemsize: int,
    small: int,
    grains: Grains = (),
) -> ContractionPlan:
    """Plan the cheapest contraction of operands of given layouts.

    Parameters
    ----------
    spec : Contraction
        The contraction.
    layouts : tuple of Layout
        The operands' layouts on one mesh, without pending folds.
    itemsizes : tuple of int
        Bytes per element of each operand.
    out_itemsize : int
        Bytes per element of the result.
    small : int
        Bytes below which a result is whole on every rank, unless operands are already cut.
    grains : tuple of int
        For each label, a number of which the boundaries of its cut are multiples; 0 if it must not
        be cut. By default every label may be cut anywhere.

    Returns
    -------
    ContractionPlan
    """
    best: ContractionPlan | None = None
    lowest = float("inf")
    mesh_shape = layouts[0].mesh_shape
    least = prod(spec.extents) / prod(mesh_shape) * _BYTES_A_PRODUCT
    whole = all(layout.is_replicated for layout in layouts)
    for cuts in _candidates(spec, layouts, out_itemsize, small, grains or (1,) * len(spec.extents)):
        plan = _planned(spec, layouts, itemsizes, out_itemsize, small, cuts)
        cost = _cost(spec, plan, mesh_shape, out_itemsize)
        if plan.pending and whole:
            cost += _BYTES_A_DIVISION - _BYTES_A_MESSAGE
        if cost < lowest:
            best, lowest = plan, cost
            if cost <= 1.01 * least:
                break
    assert best is not None
    return best


# -- candidates --------------------------------------------------------------------------------


def _candidates(
    spec: Contraction, layouts: Sequence[Layout], out_itemsize: int, small: int, grains: Grains
) -> Iterator[tuple[Cut, ...]]:
    """Yield the cuts of all labels, for each assignment of labels to mesh dimensions."""
    known = _known_cuts(spec, layouts, grains)
    mesh_shape = layouts[0].mesh_shape
    is_small = prod(spec.shape) * out_itemsize < small
    choices = [
        [
            label
            for label in _choices(spec, known, m, size, is_small)
            if label is None or grains[label]
        ]
        for m, size in enumerate(mesh_shape)
    ]
    while prod([len(choice) for choice in choices]) > _MOST_CHOICES:
        max(choices, key=len).pop()
    for assignment in product(*choices):
        placed: dict[int, list[int]] = {}
        for mesh_dim, label in enumerate(assignment):
            if label is not None:
                placed.setdefault(label, []).append(mesh_dim)
        labels = list(placed)
        variants = [
            _variants(spec, known, label, placed[label], mesh_shape, grains[label])
            for label in labels
        ]
        for cuts in product(*variants):
            chosen = [Cut.whole(extent) for extent in spec.extents]
            for label, cut in zip(labels, cuts, strict=True):
                chosen[label] = cut
            yield tuple(chosen)


def _known_cuts(
    spec: Contraction, layouts: Sequence[Layout], grains: Grains
) -> list[tuple[int, Cut]]:
    """Return (label, cut) of every dimension that is cut now and may be, in operand order."""
    found: dict[tuple[int, Cut], None] = {}
    for labels, layout in zip(spec.terms, layouts, strict=True):
        for label, cut in zip(labels, layout.cuts, strict=True):
            if cut.mesh_dims and label >= 0 and grains[label]:
                found[label, cut] = None
    return list(found)


def _choices(
    spec: Contraction, known: Sequence[tuple[int, Cut]], mesh_dim: int, size: int, is_small: bool
) -> list[int | None]:
    """Return labels that a mesh dimension may cut, in order of preference; None cuts nothing."""
    cut_now = [label for label, cut in known if mesh_dim in cut.mesh_dims]
    if size == 1:
        return [*cut_now[:1]] or [None]
    summed = [label for label in range(len(spec.extents)) if label not in spec.out]
    summed.sort(key=lambda label: -spec.extents[label])
    # Operands that are whole everywhere stay whole, unless the result is large enough to be
    # divided.
    carried = {label for term in spec.terms for label in term}
    free = [label for label in spec.out if label in carried and (cut_now or not is_small)]
    last = [label for label in summed if label not in cut_now]
    return [*dict.fromkeys((*cut_now, *free)), None, *last]


def _variants(
    spec: Contraction,
    known: Sequence[tuple[int, Cut]],
    label: int,
    mesh_dims: Sequence[int],
    mesh_shape: tuple[int, ...],
    grain: int,
) -> list[Cut]:
    """Return cuts of a label along mesh dimensions: the operands' cuts, and the canonical cut."""
    found = [c for lab, c in known if lab == label and sorted(c.mesh_dims) == list(mesh_dims)]
    radix = tuple([mesh_shape[m] for m in mesh_dims])
    canonical = Cut.chunked(spec.extents[label], tuple(mesh_dims), radix)
    return list(
        dict.fromkeys([cut if grain == 1 else cut.rounded(grain) for cut in (*found, canonical)])
    )


# -- the plan and the cost of a candidate -------------------------------------------------------


def _planned(
    spec: Contraction,
    layouts: Sequence[Layout],
    itemsizes: Sequence[int],
    out_itemsize: int,
    small: int,
    cuts: tuple[Cut, ...],
) -> ContractionPlan:
    mesh_shape = layouts[0].mesh_shape
    wanted, moved = [], 0.0
    for labels, layout, itemsize in zip(spec.terms, layouts, itemsizes, strict=True):
        own = [cuts[label] if label >= 0 else Cut.whole(1) for label in labels]
        target = Layout.from_cuts(own, mesh_shape)
        moved += itemsize * moved_elements(layout, target)
        wanted.append(target)
    out_cuts = [cuts[label] for label in spec.out]
    summed = [m for lab, cut in enumerate(cuts) if lab not in spec.out for m in cut.mesh_dims]
    pending = tuple(sorted([m for m in summed if mesh_shape[m] > 1]))
    local = Layout.from_cuts(out_cuts, mesh_shape, {m: Partial() for m in pending})
    result = _finished(out_cuts, pending, mesh_shape, out_itemsize, small)
    return ContractionPlan(tuple(wanted), pending, local, result, cuts, moved)


def _finished(
    cuts: Sequence[Cut],
    pending: tuple[int, ...],
    mesh_shape: tuple[int, ...],
    out_itemsize: int,
    small: int,
) -> Layout:
    """Return the folded result's layout: whole along `pending` if small, else cut along it."""
    layout = Layout.from_cuts(cuts, mesh_shape)
    size = out_itemsize * prod([_longest(cut) for cut in cuts])
    if pending and cuts and size >= small:
        ranks = prod([mesh_shape[m] for m in pending])
        radix = tuple([mesh_shape[m] for m in pending])
        whole = [dim for dim, cut in enumerate(cuts) if cut.parts == 1]
        if whole:
            dim = next((d for d in whole if cuts[d].extent >= ranks), None)
            if dim is None:
                dim = max(whole, key=lambda d: cuts[d].extent)
            return layout.replace(dim, Cut.chunked(cuts[dim].extent, pending, radix))
    return layout


def _longest(cut: Cut) -> int:
    """Estimate the length of the longest block of a cut from about sixteen blocks."""
    if cut.parts == 1 or not cut.extent:
        return cut.extent
    step = max(1, cut.parts // 16)
    lengths = [stop - start for start, stop in map(cut.interval, range(0, cut.parts, step))]
    return max(*lengths, -(-cut.extent // cut.parts))


def _cost(
    spec: Contraction, plan: ContractionPlan, mesh_shape: tuple[int, ...], out_itemsize: int
) -> float:
    """Return the bytes that a rank sends, plus arithmetic as bytes that a link sends meanwhile."""
    cost = plan.moved / prod(mesh_shape) + (_BYTES_A_MESSAGE if plan.moved else 0)
    cost += prod([float(_longest(cut)) for cut in plan.cuts]) * _BYTES_A_PRODUCT
    if plan.pending:
        ranks = prod([mesh_shape[m] for m in plan.pending])
        size = out_itemsize * prod([_longest(cut) for cut in plan.local.cuts])
        passes = 2 if plan.result.settled() is plan.local.settled() else 1
        cost += passes * size * (ranks - 1) / ranks + _BYTES_A_MESSAGE
    return cost


# -- bounded memory ------------------------------------------------------------------------------


class Panels(NamedTuple):
    """Contraction in steps along one label, so that ranks hold only sections of the operands.

    Attributes
    ----------
    label : int
        The label, which no mesh dimension cuts.
    stretches : tuple of (int, int)
        Consecutive intervals of the label's indices, one for each step.
    """

    label: int
    stretches: tuple[tuple[int, int], ...]


@lru_cache(maxsize=4096)
def panels_of(
    spec: Contraction,
    plan: ContractionPlan,
    layouts: tuple[Layout, ...],
    itemsizes: tuple[int, ...],
    limit: int,
    grains: Grains = (),
) -> Panels | None:
    """Return panels if an operand would need more bytes on a rank than `limit` and than now.

    An eighth more than now is allowed, because cuts may move to the next boundary of tiles. A label
    of the result is preferred, because its panels are independent. The panels of a label that is
    summed over must be added.
    """
    excess: dict[int, int] = {}
    grains = grains or (1,) * len(spec.extents)
    for position, (have, want) in enumerate(zip(layouts, plan.operands, strict=True)):
        size = itemsizes[position] * prod([_longest(cut) for cut in want.cuts])
        room = max(limit, itemsizes[position] * prod([_longest(cut) for cut in have.cuts]))
        if moved_elements(have, want) and size > room + room // 8:
            excess[position] = -(-size // room)
    if not excess:
        return None
    largest = max(excess, key=lambda position: excess[position])
    for large in (list(excess), [largest]):
        label = _panel_label(spec, plan, large, grains)
        if label is not None:
            extent = spec.extents[label]
            count = min(max([excess[position] for position in large]), extent)
            width = -(-extent // (count * grains[label])) * grains[label]
            ends = [(start, min(start + width, extent)) for start in range(0, extent, width)]
            return Panels(label, tuple(ends))
    return None


def divided_dim(plan: ContractionPlan) -> int:
    """Return the dimension of the result that a reduce-scatter cuts; -1 if there is none."""
    pairs = zip(plan.local.cuts, plan.result.cuts, strict=True)
    return next((dim for dim, (before, after) in enumerate(pairs) if before != after), -1)


def parts_of(
    spec: Contraction,
    plan: ContractionPlan,
    layouts: Sequence[Layout],
    itemsizes: Sequence[int],
    out_itemsize: int,
    limit: int,
) -> int:
    """Return the number of parts in which to compute a scattered result, so that none is large.

    A part has at most `limit` bytes, or at most those of the largest operand or of the result on a
    rank, if these are more.
    """
    dim = divided_dim(plan)
    if dim < 0 or not any(spec.out[dim] in term for term in spec.terms):
        return 1
    room = max(limit, out_itemsize * prod([_longest(cut) for cut in plan.result.cuts]))
    for layout, itemsize in zip(layouts, itemsizes, strict=True):
        room = max(room, itemsize * prod([_longest(cut) for cut in layout.cuts]))
    size = out_itemsize * prod([_longest(cut) for cut in plan.local.cuts])
    return max(1, min(-(-size // room), _longest(plan.result.cuts[dim])))


def _panel_label(
    spec: Contraction, plan: ContractionPlan, large: Sequence[int], grains: Grains
) -> int | None:
    """Return the longest uncut label of all large operands, preferably of the result, or None."""
    carried = []
    for label, cut in enumerate(plan.cuts):
        worth = cut.parts == 1 and cut.extent > 1 and grains[label] > 0
        if worth and all(label in spec.terms[position] for position in large):
            carried.append(label)
    if not carried:
        return None
    return max(carried, key=lambda label: (label in spec.out, spec.extents[label]))
