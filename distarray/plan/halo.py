"""Plan of a halo exchange: every block grows by some elements of the blocks around it.

As in :mod:`distarray.plan.exchange`, each rank computes its own messages from the layout alone. If
the boundary requires it, elements beyond the ends of the array are mapped back into it: the index
space is continued by images of the array, shifted or reversed. A grown block is cut along the edges
of the images into stretches. A stretch may span any number of ranks, however thin their blocks are.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from distarray.layout import Box, Coords, Cut, Interval, Layout
from distarray.plan.exchange import Slices, intersect, rank_of

__all__ = ["IMAGED", "Halo", "Patch", "Reach", "plan_halo"]

#: Boundaries that continue the array by images of itself.
IMAGED = ("periodic", "reflect", "mirror")


class Reach(NamedTuple):
    """Growth of the blocks along one dimension, and the boundary beyond the ends of the array.

    Attributes
    ----------
    before, after : int
        Numbers of elements by which a block grows at its two ends.
    boundary : str
        One of `IMAGED`; "fill": the grown block has room beyond the array that its rank fills; or
        "none": the grown block ends with the array.
    """

    before: int
    after: int
    boundary: str


class Stretch(NamedTuple):
    """Consecutive indices of a grown block, and the indices of the array that they map to."""

    position: int
    start: int
    stop: int
    reverse: bool


class Patch(NamedTuple):
    """Box that is copied into a grown block.

    Attributes
    ----------
    source : tuple of slice
        The box within the block that it is copied from.
    target : tuple of slice
        The box within the grown block.
    reverse : tuple of slice
        An index that reverses the target along reversed dimensions.
    shape : tuple of int
        Shape of the box.
    """

    source: Slices
    target: Slices
    reverse: Slices
    shape: tuple[int, ...]


class Halo(NamedTuple):
    """One rank's messages and copies that grow its block.

    Attributes
    ----------
    sends, receives : tuple of (int, tuple of Patch)
        For each peer, the boxes of the one message to or from it, in order.
    kept : tuple of Patch
        The boxes that are copied from this rank's own block.
    shape : tuple of int
        Shape of the grown block.
    own : tuple of slice
        The slices of the original block in the grown block.
    fills : tuple of (int, int)
        For each dimension, the numbers of elements at both ends that are beyond the array.
    """

    sends: tuple[tuple[int, tuple[Patch, ...]], ...]
    receives: tuple[tuple[int, tuple[Patch, ...]], ...]
    kept: tuple[Patch, ...]
    shape: tuple[int, ...]
    own: Slices
    fills: tuple[Interval, ...]


@lru_cache(maxsize=512)
def plan_halo(layout: Layout, reaches: tuple[Reach, ...], coords: Coords | None) -> Halo:
    """Plan one rank's messages that grow the blocks of an array.

    Parameters
    ----------
    layout : Layout
        A plain layout.
    reaches : tuple of Reach
        One reach per dimension.
    coords : tuple of int or None
        This rank's mesh coordinate; None outside the mesh, where the plan is empty.

    Returns
    -------
    Halo
        An empty block does not grow.
    """
    have = layout.section(coords)
    if coords is None or any(start == stop for start, stop in have):
        shape = layout.local_shape(coords)
        return Halo((), (), (), shape, (slice(None),) * len(shape), ((0, 0),) * len(shape))
    me = rank_of(coords, layout.mesh_shape)
    kept: list[Patch] = []
    receives: dict[int, list[Patch]] = {}
    for owner, patch in _wanted(layout, reaches, coords):
        peer = rank_of(owner, layout.mesh_shape)
        (kept if peer == me else receives.setdefault(peer, [])).append(patch)
    sends: dict[int, list[Patch]] = {}
    for reader in _readers(layout, reaches, coords):
        peer = rank_of(reader, layout.mesh_shape)
        if peer != me:
            found = [p for owner, p in _wanted(layout, reaches, reader, have) if owner == coords]
            if found:
                sends[peer] = found
    ends = [_ends(r, cut.extent, *part) for r, cut, part in _dims(layout, reaches, have)]
    return Halo(
        tuple([(peer, tuple(patches)) for peer, patches in sends.items()]),
        tuple([(peer, tuple(patches)) for peer, patches in receives.items()]),
        tuple(kept),
        tuple([high - low for low, high, *_ in ends]),
        tuple([slice(a - low, b - low) for (low, *_), (a, b) in zip(ends, have, strict=True)]),
        tuple([(before, after) for *_, before, after in ends]),
    )


def _dims(
    layout: Layout, reaches: Sequence[Reach], section: Box
) -> Iterator[tuple[Reach, Cut, Interval]]:
    return zip(reaches, layout.cuts, section, strict=True)


def _ends(reach: Reach, extent: int, start: int, stop: int) -> tuple[int, int, int, int]:
    """Return the ends of a grown interval, and the numbers of elements to fill at both ends."""
    low, high = start - reach.before, stop + reach.after
    if reach.boundary == "none":
        return max(low, 0), min(high, extent), 0, 0
    if reach.boundary == "fill":
        return low, high, max(-low, 0), max(high - extent, 0)
    return low, high, 0, 0


def _stretches(reach: Reach, extent: int, start: int, stop: int) -> list[Stretch]:
    """Return the stretches of a grown interval that map to the array, in the interval's order."""
    low, high, *_ = _ends(reach, extent, start, stop)
    found = []
    for begin, first, last, reverse in _images(reach.boundary, extent, low, high):
        a, b = max(low, begin), min(high, begin + last - first)
        if a < b:
            shift = (first - begin) if not reverse else (last + begin)
            real = (a + shift, b + shift) if not reverse else (shift - b, shift - a)
            found.append(Stretch(a - low, *real, reverse))
    return found


def _images(
    boundary: str, extent: int, low: int, high: int
) -> Iterator[tuple[int, int, int, bool]]:
    """Yield the array and its images between two indices: (first index, start, stop, reversed)."""
    if boundary not in IMAGED:
        yield 0, 0, extent, False
        return
    if boundary == "mirror" and extent > 1:
        yield from _mirrored(extent, low, high)
        return
    for number in range(low // extent, -(-high // extent)):
        yield number * extent, 0, extent, boundary != "periodic" and number % 2 == 1


def _mirrored(extent: int, low: int, high: int) -> Iterator[tuple[int, int, int, bool]]:
    """Yield images that share the element at which they are reflected."""
    length = extent - 1
    for number in range(-(low // length) if low < 0 else 0, 0, -1):
        turned = number % 2 == 1
        yield -number * length, int(turned), length + int(turned), turned
    yield 0, 0, extent, False
    for number in range(-(-(high - extent) // length) if high > extent else 0):
        turned = number % 2 == 0
        yield extent + number * length, int(not turned), length + int(not turned), turned


def _wanted(
    layout: Layout, reaches: Sequence[Reach], reader: Coords, only: Box | None = None
) -> Iterator[tuple[Coords, Patch]]:
    """Yield the patches of a rank's grown block, each with its owner; only those within `only`."""
    parts = [
        _stretches(reach, cut.extent, *part)
        for reach, cut, part in _dims(layout, reaches, layout.section(reader))
    ]
    for choice in product(*parts):
        wanted: Box | None = tuple([(s.start, s.stop) for s in choice])
        if only is not None and wanted is not None:
            wanted = intersect(wanted, only)
        if wanted is None:
            continue
        for owner in _owners(layout, wanted, reader):
            section = layout.section(owner)
            box = intersect(section, wanted)
            if box is not None:
                yield owner, _patch(box, section, choice)


def _patch(box: Box, section: Box, stretches: Sequence[Stretch]) -> Patch:
    source, target, reverse = [], [], []
    for (a, b), (origin, _), stretch in zip(box, section, stretches, strict=True):
        source.append(slice(a - origin, b - origin))
        first = stretch.stop - b if stretch.reverse else a - stretch.start
        first += stretch.position
        target.append(slice(first, first + b - a))
        reverse.append(slice(None, None, -1 if stretch.reverse else 1))
    shape = tuple([b - a for a, b in box])
    return Patch(tuple(source), tuple(target), tuple(reverse), shape)


def _owners(layout: Layout, box: Box, reader: Coords) -> Iterator[Coords]:
    """Yield the owners of a box; of a replicated array, those in the reader's own replica."""
    ranges = [cut.owners(*part) for cut, part in zip(layout.cuts, box, strict=True)]
    yield from _at_parts(
        layout, [r if c.radix else (0,) for r, c in zip(ranges, layout.cuts)], reader
    )


def _at_parts(layout: Layout, ranges: Sequence[Sequence[int]], like: Coords) -> Iterator[Coords]:
    for choice in product(*ranges):
        coords = list(like)
        for cut, part in zip(layout.cuts, choice, strict=True):
            for mesh_dim, digit in zip(cut.mesh_dims, cut.digits(part), strict=True):
                coords[mesh_dim] = digit
        yield tuple(coords)


def _readers(layout: Layout, reaches: Sequence[Reach], coords: Coords) -> Iterator[Coords]:
    """Yield the ranks whose grown blocks may hold elements of this rank's block."""
    ranges = [
        _reading(reach, cut, *part) if cut.radix else [0]
        for reach, cut, part in _dims(layout, reaches, layout.section(coords))
    ]
    for reader in _at_parts(layout, ranges, coords):
        if all(start < stop for start, stop in layout.section(reader)):
            yield reader


def _reading(reach: Reach, cut: Cut, start: int, stop: int) -> list[int]:
    """Return the blocks along one dimension whose grown intervals contain an interval's image."""
    found: set[int] = set()
    low, high = -reach.before, cut.extent + reach.after
    for begin, first, last, reverse in _images(reach.boundary, cut.extent, low, high):
        a, b = max(start, first), min(stop, last)
        if a >= b:
            continue
        place = begin + (last - b if reverse else a - first)
        around = place - reach.after, place + (b - a) + reach.before
        found.update(cut.owners(max(around[0], 0), min(around[1], cut.extent)))
    return sorted(found)
