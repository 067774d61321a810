"""Plan of a reshape that moves data to a layout of another shape, in C order.

Both shapes have the same elements in the same order. So a rank needs from a peer the intersection
of a stretch of the flattened index space with a box. A stretch, a range of consecutive indices,
consists of at most 2 k - 1 boxes of a k-dimensional shape (:func:`~distarray.layout.flat_boxes`),
and each box is received in a strided view of the new target block. Therefore nothing is packed, and
the elements go directly from the source block into the target block.

Dimensions are taken in groups (:func:`~distarray.layout.reshape_groups`). Groups whose cut survives
stay on their ranks, and ranks communicate only along the mesh dimensions of the other groups.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from distarray.layout import (
    Box,
    Coords,
    Cut,
    Interval,
    Layout,
    ReshapeGroup,
    flat_boxes,
    regrouped_cut,
)
from distarray.plan.exchange import Slices, intersect, rank_of

__all__ = ["FlatExchange", "FlatPiece", "Landing", "plan_reshape"]


class Landing(NamedTuple):
    """Strided view of a target block, found without copying.

    Attributes
    ----------
    flat_shape : tuple of int
        The shape of the block with the dimensions of each group merged into one.
    stretches : tuple of slice
        The section of the block in that shape.
    boxed : tuple of int
        The shape of that section, with each stretch split into the dimensions of the source.
    slices : tuple of slice
        The section of that array.
    """

    flat_shape: tuple[int, ...]
    stretches: Slices
    boxed: tuple[int, ...]
    slices: Slices


class FlatPiece(NamedTuple):
    """Box that is sent from a source block to a target block.

    Attributes
    ----------
    slices : tuple of slice
        The box within the source block.
    landing : Landing
        The view of the target block that receives the box.
    """

    slices: Slices
    landing: Landing

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod([part.stop - part.start for part in self.slices])


class FlatExchange(NamedTuple):
    """One rank's messages of a reshape: pieces to and from each peer, in matching order."""

    sends: tuple[tuple[int, tuple[FlatPiece, ...]], ...]
    receives: tuple[tuple[int, tuple[FlatPiece, ...]], ...]
    kept: tuple[FlatPiece, ...]

    @property
    def elements_sent(self) -> int:
        """Number of elements that leave this rank."""
        return sum([piece.size for _, pieces in self.sends for piece in pieces])

    @property
    def rounds(self) -> int:
        """Largest number of pieces for one peer; the number of successive exchanges."""
        return max([len(pieces) for _, pieces in (*self.sends, *self.receives)], default=0)


@lru_cache(maxsize=256)
def plan_reshape(
    src: Layout, dst: Layout, groups: tuple[ReshapeGroup, ...], coords: Coords | None
) -> FlatExchange:
    """Plan one rank's messages of a reshape between two layouts on the same mesh.

    Parameters
    ----------
    src, dst : Layout
        Layouts without pending folds. For each group, either no element moves, or its cuts use the
        same mesh dimensions before and after, and in `dst` cut only one dimension.
    groups : tuple of ReshapeGroup
        The dimensions of `src`, and the dimensions of `dst` that they become.
    coords : tuple of int or None
        This rank's mesh coordinate.
    """
    if coords is None or not (src.holds(coords) and dst.holds(coords)):
        return FlatExchange((), (), ())
    moving = [_moves(src, dst, group) for group in groups]
    me = rank_of(coords, src.mesh_shape)
    sends: list[tuple[int, tuple[FlatPiece, ...]]] = []
    receives: list[tuple[int, tuple[FlatPiece, ...]]] = []
    kept: tuple[FlatPiece, ...] = ()
    for owner in _owners(src, dst, groups, moving, coords):
        pieces = _pieces(src, dst, groups, moving, owner, coords)
        peer = rank_of(owner, src.mesh_shape)
        if peer == me:
            kept = pieces
        elif pieces:
            receives.append((peer, pieces))
    for reader in _readers(src, dst, groups, moving, coords):
        pieces = _pieces(src, dst, groups, moving, coords, reader)
        peer = rank_of(reader, src.mesh_shape)
        if pieces and peer != me:
            sends.append((peer, pieces))
    return FlatExchange(tuple(sends), tuple(receives), kept)


def _moves(src: Layout, dst: Layout, group: ReshapeGroup) -> bool:
    """Return True if elements of a group change rank."""
    old, new = slice(*group[0]), slice(*group[1])
    return regrouped_cut(src.cuts[old], dst.shape[new]) != list(dst.cuts[new])


def _pieces(
    src: Layout,
    dst: Layout,
    groups: Sequence[ReshapeGroup],
    moving: Sequence[bool],
    owner: Coords,
    reader: Coords,
) -> tuple[FlatPiece, ...]:
    """Return the pieces that `owner` sends to `reader`, in the same order on both ranks."""
    have, want = src.local_shape(owner), dst.local_shape(reader)
    choices: list[list[tuple[Slices, tuple[int, ...], slice, tuple[int, ...], Slices]]] = []
    for (old, new), moves in zip(groups, moving, strict=True):
        local = prod(want[slice(*new)])
        if moves:
            section = src.section(owner)[slice(*old)]
            cells = _cells(src.shape[slice(*old)], dst.cuts[slice(*new)], reader)
            choices.append([c for cell in cells for c in _meet(cell, section, local)])
        else:
            whole = tuple([slice(0, extent) for extent in have[slice(*old)]])
            choices.append([(whole, (local,), slice(0, local), (local,), (slice(0, local),))])
    pieces = []
    for choice in product(*choices):
        slices, flat, stretches, boxed, within = zip(*choice, strict=True) if choice else ((),) * 5
        landing = Landing(
            tuple([extent for shape in flat for extent in shape]),
            tuple(stretches),
            tuple([extent for shape in boxed for extent in shape]),
            tuple([entry for key in within for entry in key]),
        )
        if all(s.start < s.stop for s in (*landing.stretches, *landing.slices)):
            pieces.append(FlatPiece(tuple([entry for key in slices for entry in key]), landing))
    return tuple(pieces)


def _meet(
    cell: tuple[Box, int], section: Box, local: int
) -> Iterator[tuple[Slices, tuple[int, ...], slice, tuple[int, ...], Slices]]:
    """Yield the intersection of a cell with a section of the source, if it is not empty."""
    box, position = cell
    common = intersect(box, section)
    if common is not None:
        shape = tuple([stop - start for start, stop in box])
        taken = tuple([slice(a - s, b - s) for (a, b), (s, _) in zip(common, section, strict=True)])
        within = tuple([slice(a - s, b - s) for (a, b), (s, _) in zip(common, box, strict=True)])
        yield taken, (local,), slice(position, position + prod(shape)), shape, within


def _cells(old: tuple[int, ...], cuts: Sequence[Cut], coords: Coords) -> list[tuple[Box, int]]:
    """Return a rank's section of a group as boxes of the old dimensions, with their positions."""
    cells: list[tuple[Box, int]] = []
    position = 0
    for start, stop in _stretches(cuts, coords):
        for box in flat_boxes(start, stop, old):
            cells.append((box, position))
            position += prod([b - a for a, b in box])
    return cells


def _stretches(cuts: Sequence[Cut], coords: Coords) -> Iterator[Interval]:
    """Yield the stretches of the flattened group that a rank owns; at most one dimension is cut."""
    dim = _cut_dim(cuts)
    start, stop = cuts[dim].interval(cuts[dim].part(coords))
    row = prod([cut.extent for cut in cuts[dim + 1 :]])
    for before in range(prod([cut.extent for cut in cuts[:dim]])):
        origin = before * cuts[dim].extent
        yield (origin + start) * row, (origin + stop) * row


def _cut_dim(cuts: Sequence[Cut]) -> int:
    """Return the dimension that is cut; the first dimension if none is cut."""
    return next((dim for dim, cut in enumerate(cuts) if cut.mesh_dims), 0)


def _owners(
    src: Layout,
    dst: Layout,
    groups: Sequence[ReshapeGroup],
    moving: Sequence[bool],
    me: Coords,
) -> Iterator[Coords]:
    """Yield the ranks that may own elements of this rank's target block, each once."""
    choices: list[list[dict[int, int]]] = []
    for (old, new), moves in zip(groups, moving, strict=True):
        if moves:
            found: dict[tuple[tuple[int, int], ...], None] = {}
            for box, _ in _cells(src.shape[slice(*old)], dst.cuts[slice(*new)], me):
                ranges = [_parts(c, c.owners(*i)) for c, i in zip(src.cuts[slice(*old)], box)]
                for combination in product(*ranges):
                    found[tuple([pair for digits in combination for pair in digits])] = None
            choices.append([dict(pairs) for pairs in found])
    yield from _coordinates(me, choices)


def _readers(
    src: Layout,
    dst: Layout,
    groups: Sequence[ReshapeGroup],
    moving: Sequence[bool],
    me: Coords,
) -> Iterator[Coords]:
    """Yield the ranks that may need elements of this rank's source block, each once."""
    choices: list[list[dict[int, int]]] = []
    for (old, new), moves in zip(groups, moving, strict=True):
        if moves:
            cuts = dst.cuts[slice(*new)]
            span = _span(src.section(me)[slice(*old)], src.shape[slice(*old)])
            parts = _parts_within(cuts, *span)
            choices.append([dict(pairs) for pairs in _parts(cuts[_cut_dim(cuts)], parts)])
    yield from _coordinates(me, choices)


def _parts_within(cuts: Sequence[Cut], first: int, last: int) -> Iterable[int]:
    """Return the blocks of a group, cut in one dimension, that own a range of flat indices."""
    cut = cuts[_cut_dim(cuts)]
    row = prod([c.extent for c in cuts[_cut_dim(cuts) + 1 :]])
    parts: dict[int, None] = {}
    for before in range(first // (row * cut.extent), last // (row * cut.extent) + 1):
        origin = before * cut.extent * row
        start = max(first - origin, 0) // row
        stop = min((last - origin) // row + 1, cut.extent)
        parts.update(dict.fromkeys(cut.owners(start, stop)))
        if len(parts) == cut.parts:
            break
    return parts


def _span(box: Box, shape: Sequence[int]) -> Interval:
    """Return the first and last flat index of a box; the first is larger if the box is empty."""
    first = last = 0
    for (start, stop), extent in zip(box, shape, strict=True):
        if start >= stop:
            return 1, 0
        first, last = first * extent + start, last * extent + stop - 1
    return first, last


def _parts(cut: Cut, parts: Iterable[int]) -> list[tuple[tuple[int, int], ...]]:
    """Return the mesh coordinates of blocks of a cut, as (mesh dimension, coordinate) pairs."""
    if not cut.mesh_dims:
        return [()]
    return [tuple(zip(cut.mesh_dims, cut.digits(part), strict=True)) for part in parts]


def _coordinates(me: Coords, choices: Sequence[Sequence[dict[int, int]]]) -> Iterator[Coords]:
    """Yield this rank's coordinates with some of them replaced, for each combination of choices."""
    for choice in product(*choices):
        coords = list(me)
        for fixed in choice:
            for mesh_dim, coordinate in fixed.items():
                coords[mesh_dim] = coordinate
        yield tuple(coords)
