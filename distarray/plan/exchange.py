"""Plan of an exchange, which moves an array from one layout to another of the same shape.

Every rank computes its own messages from the two layouts alone. It intersects the box that it needs
with the blocks of the source, dimension by dimension, and the box that it has with the blocks of
the target. Elements that a rank already owns are never sent. If the source has replicas, each
receiver reads from one replica, preferably from its own. The receivers are spread over the
replicas, so that no replica becomes a bottleneck.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from distarray.errors import LayoutError
from distarray.layout import At, Box, Coords, Cut, Interval, Layout, Shard

__all__ = [
    "Exchange",
    "Route",
    "Slices",
    "Transfer",
    "coords_of",
    "intersect",
    "plan_across",
    "plan_exchange",
    "rank_of",
]

Slices = tuple[slice, ...]


class Transfer(NamedTuple):
    """Box that moves between this rank and a peer.

    Attributes
    ----------
    peer : int
        The other rank, numbered in row-major order of the mesh.
    slices : tuple of slice
        The box within this rank's block: the source block when sending, else the target block.
    shape : tuple of int
        Shape of the box.
    """

    peer: int
    slices: Slices
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)


class Route(NamedTuple):
    """Source and target layouts of an exchange; printed in the communication ledger."""

    src: Layout
    dst: Layout

    def __str__(self) -> str:
        return _words(self.src, self.dst)


@lru_cache(maxsize=1024)
def _words(src: Layout, dst: Layout) -> str:
    views = "" if src.is_canonical and dst.is_canonical else " (views)"
    return f"{list(src.placements)} -> {list(dst.placements)} of {src.shape}{views}"


class Exchange(NamedTuple):
    """One rank's messages that bring an array from one layout to another.

    Attributes
    ----------
    sends, receives : tuple of Transfer
        At most one message per peer and direction.
    kept : tuple of (Slices, Slices) or None
        Elements that stay on this rank, as slices of the source block and of the target block.
    """

    sends: tuple[Transfer, ...]
    receives: tuple[Transfer, ...]
    kept: tuple[Slices, Slices] | None

    @property
    def elements_sent(self) -> int:
        """Number of elements that leave this rank."""
        return sum([transfer.size for transfer in self.sends])

    @property
    def elements_received(self) -> int:
        """Number of elements that reach this rank."""
        return sum([transfer.size for transfer in self.receives])

    def __str__(self) -> str:
        return (
            f"Exchange: {len(self.sends)} message(s) out with {self.elements_sent} elements, "
            f"{len(self.receives)} in with {self.elements_received}"
        )


def rank_of(coords: Coords, mesh_shape: tuple[int, ...]) -> int:
    """Return the row-major number of a mesh coordinate."""
    rank = 0
    for coordinate, size in zip(coords, mesh_shape, strict=True):
        rank = rank * size + coordinate
    return rank


def coords_of(rank: int, mesh_shape: tuple[int, ...]) -> Coords:
    """Return the mesh coordinate of a row-major number."""
    coords = []
    for size in reversed(mesh_shape):
        rank, coordinate = divmod(rank, size)
        coords.append(coordinate)
    return tuple(reversed(coords))


def intersect(a: Box, b: Box) -> Box | None:
    """Return the box common to two boxes, or None if there is none."""
    common = []
    for (start, stop), (other_start, other_stop) in zip(a, b, strict=True):
        low, high = max(start, other_start), min(stop, other_stop)
        if low >= high:
            return None
        common.append((low, high))
    return tuple(common)


def _within(box: Box, section: Box) -> Slices:
    """Convert a box of the global index space to slices of a block."""
    return tuple(
        [slice(a - start, b - start) for (a, b), (start, _) in zip(box, section, strict=True)]
    )


def _shape(box: Box) -> tuple[int, ...]:
    return tuple([stop - start for start, stop in box])


def _source_of(src: Layout, fixed: dict[int, int], reader: Coords) -> Coords:
    """Return the coordinate of the replica that a reader reads.

    `fixed` has the coordinates of a block's owners. Replicated mesh dimensions are free. Along
    them, the replica has the reader's own coordinate, shifted by the distance from the reader to
    the block in the other dimensions. So a reader that owns the block reads its own block, and the
    other readers are spread over the replicas.
    """
    sizes = src.mesh_shape
    if len(fixed) == len(sizes):
        return tuple([fixed[m] for m in range(len(sizes))])
    shift = sum([reader[mesh_dim] - coordinate for mesh_dim, coordinate in fixed.items()])
    return tuple(
        [fixed[m] if m in fixed else (reader[m] + shift) % size for m, size in enumerate(sizes)]
    )


def _choices(cut: Cut, interval: Interval) -> list[dict[int, int]]:
    """Return coordinates, along a cut's mesh dimensions, of the blocks that overlap an interval."""
    parts = cut.owners(*interval)
    if len(cut.mesh_dims) == 1:
        (mesh_dim,) = cut.mesh_dims
        return [{mesh_dim: part} for part in parts]
    return [dict(zip(cut.mesh_dims, cut.digits(part), strict=True)) for part in parts]


def _owners_of(layout: Layout, box: Box) -> Iterable[dict[int, int]]:
    """Return coordinates of the blocks that overlap a box, along mesh dimensions that cut."""
    lone = {m: layout.placements[m].coordinate for m in layout.ats}  # type: ignore[attr-defined]
    ranges: list[list[dict[int, int]]] = []
    for cut, interval in zip(layout.cuts, box, strict=True):
        if cut.mesh_dims:
            ranges.append(_choices(cut, interval))
    return _combined([[lone], *ranges] if lone else ranges)


def _combined(ranges: list[list[dict[int, int]]]) -> Iterable[dict[int, int]]:
    """Return every choice of one entry from each list, merged into one dictionary."""
    if len(ranges) == 1:
        return ranges[0]
    found = []
    for choice in product(*ranges):
        merged: dict[int, int] = {}
        for digits in choice:
            merged.update(digits)
        found.append(merged)
    return found


def _receives(
    src: Layout, needed: Box, target: Box, reader: Coords, rank: Callable[[Coords], int]
) -> Iterator[tuple[int, Coords, Box]]:
    """Yield the receives of a rank: (peer, coordinates of the peer in the source, box)."""
    for fixed in _owners_of(src, needed):
        owner = _source_of(src, fixed, reader)
        common = intersect(src.section(owner), target)
        if common is not None:
            yield rank(owner), owner, common


def _readers(src: Layout, dst: Layout, box: Box, me: Coords) -> Iterator[Coords]:
    """Yield every rank of the same mesh that may read its share of `box` from `me`.

    A reader's coordinate along a mesh dimension that replicates the source follows from its other
    coordinates (see :func:`_source_of`), so only the other coordinates are enumerated.
    """
    deciding = _deciding(src)
    free = [m for m in range(len(me)) if m not in deciding]
    for choice in _candidates(dst, box, deciding):
        if not free:
            yield tuple([choice[m] for m in deciding])
            continue
        reader = dict(choice)
        shift = sum([reader[m] - me[m] for m in deciding])
        for mesh_dim in free:
            coordinate = (me[mesh_dim] - shift) % src.mesh_shape[mesh_dim]
            if reader.setdefault(mesh_dim, coordinate) != coordinate:
                break
        else:
            yield tuple([reader[m] for m in range(len(me))])


def _deciding(layout: Layout) -> list[int]:
    """Return the mesh dimensions that decide which rank owns an element.

    Along the other mesh dimensions all ranks own it.
    """
    return [
        m for m, placement in enumerate(layout.placements) if isinstance(placement, (Shard, At))
    ]


def _candidates(dst: Layout, box: Box, needed: list[int]) -> Iterable[dict[int, int]]:
    """Return coordinates along `needed` of the ranks whose target block may overlap a box."""
    ranges: list[list[dict[int, int]]] = []
    covered: set[int] = set()
    for cut, interval in zip(dst.cuts, box, strict=True):
        if any(m in needed for m in cut.mesh_dims):
            ranges.append(_choices(cut, interval))
            covered.update(cut.mesh_dims)
    for mesh_dim in dst.ats:
        ranges.append([{mesh_dim: dst.placements[mesh_dim].coordinate}])  # type: ignore[attr-defined]
        covered.add(mesh_dim)
    free = [m for m in needed if m not in covered]
    ranges += [[{mesh_dim: c} for c in range(dst.mesh_shape[mesh_dim])] for mesh_dim in free]
    return _combined(ranges)


@lru_cache(maxsize=1024)
def plan_exchange(src: Layout, dst: Layout, coords: Coords | None) -> Exchange:
    """Plan one rank's messages that move an array between two layouts on the same mesh.

    Parameters
    ----------
    src, dst : Layout
        Layouts of the same global shape on the same mesh, without pending folds.
    coords : tuple of int or None
        This rank's mesh coordinate; None outside the mesh, where the plan is empty.

    Returns
    -------
    Exchange

    Raises
    ------
    LayoutError
        If the layouts differ in shape or mesh shape, or a fold is pending.
    """
    _check(src, dst)
    if src.mesh_shape != dst.mesh_shape:
        raise LayoutError(f"{src} and {dst} are on meshes of different shapes")
    if coords is None:
        return Exchange((), (), None)
    have, want = src.section(coords), dst.section(coords)
    if src is dst:
        slices = _within(have, have)
        return Exchange((), (), (slices, slices) if _wanted(dst, want, coords) else None)
    me = rank_of(coords, src.mesh_shape)
    kept, receives = None, []
    if _wanted(dst, want, coords):
        found = _receives(src, want, want, coords, lambda c: rank_of(c, src.mesh_shape))
        for peer, _, box in found:
            if peer == me:
                kept = (_within(box, have), _within(box, want))
            else:
                receives.append(Transfer(peer, _within(box, want), _shape(box)))
    sends = _sends(src, dst, have, coords, me) if _wanted(src, have, coords) else ()
    return Exchange(tuple(sends), tuple(receives), kept)


def _sends(src: Layout, dst: Layout, have: Box, coords: Coords, me: int) -> Iterator[Transfer]:
    """Yield the sends of a rank to the readers that read from it."""
    for reader in _readers(src, dst, have, coords):
        peer = rank_of(reader, src.mesh_shape)
        box = intersect(have, dst.section(reader)) if dst.holds(reader) else None
        if box is not None and peer != me:
            yield Transfer(peer, _within(box, have), _shape(box))


def _wanted(layout: Layout, section: Box, coords: Coords) -> bool:
    """Return True if a rank has elements of a layout in its section."""
    return layout.holds(coords) and all(start < stop for start, stop in section)


def _check(src: Layout, dst: Layout) -> None:
    if src.shape != dst.shape:
        raise LayoutError(f"cannot move an array of shape {src.shape} into shape {dst.shape}")
    for layout in (src, dst):
        if layout.partials:
            raise LayoutError(f"{layout} has a pending fold; settle it before moving data")


def plan_across(
    src: Layout,
    dst: Layout,
    src_ranks: tuple[int, ...],
    dst_ranks: tuple[int, ...],
    me: int,
) -> Exchange:
    """Plan one rank's messages that move an array between layouts on two meshes.

    Parameters
    ----------
    src, dst : Layout
        Layouts of the same global shape, without pending folds.
    src_ranks, dst_ranks : tuple of int
        The ranks of each mesh in a common numbering, in row-major order of their coordinates.
    me : int
        This rank in that numbering. It may be in one mesh, in both or in neither.

    Returns
    -------
    Exchange
        Peers are in the common numbering.

    Notes
    -----
    A reader outside the source mesh reads as if it were at a coordinate chosen by its number.
    Thereby such readers are spread over the replicas, too.
    """
    _check(src, dst)
    place = {rank: number for number, rank in enumerate(src_ranks)}

    def reads_as(rank: int) -> Coords:
        return coords_of(place.get(rank, rank % len(src_ranks)), src.mesh_shape)

    mine = coords_of(place[me], src.mesh_shape) if me in place else None
    kept, receives = None, []
    if me in dst_ranks:
        seat = coords_of(dst_ranks.index(me), dst.mesh_shape)
        want = dst.section(seat)
        if _wanted(dst, want, seat):
            found = _receives(
                src, want, want, reads_as(me), lambda c: src_ranks[rank_of(c, src.mesh_shape)]
            )
            for peer, _, box in found:
                if peer == me:
                    kept = (_within(box, src.section(mine)), _within(box, want))
                else:
                    receives.append(Transfer(peer, _within(box, want), _shape(box)))
    sends = () if mine is None else _sends_across(src, dst, dst_ranks, mine, me, reads_as)
    return Exchange(tuple(sends), tuple(receives), kept)


def _sends_across(
    src: Layout,
    dst: Layout,
    dst_ranks: tuple[int, ...],
    mine: Coords,
    me: int,
    reads_as: Callable[[int], Coords],
) -> Iterator[Transfer]:
    """Yield the sends of a member of the source mesh to the readers that read from it."""
    have = src.section(mine)
    if not _wanted(src, have, mine):
        return
    fixed = {m: mine[m] for m in _deciding(src)}
    for reader in _all_readers(dst, have):
        rank = dst_ranks[rank_of(reader, dst.mesh_shape)]
        box = intersect(have, dst.section(reader))
        if rank != me and box is not None and _source_of(src, fixed, reads_as(rank)) == mine:
            yield Transfer(rank, _within(box, have), _shape(box))


def _all_readers(dst: Layout, box: Box) -> Iterator[Coords]:
    """Yield every coordinate of another mesh whose block overlaps a box, replicas included."""
    for fixed in _candidates(dst, box, list(range(len(dst.mesh_shape)))):
        yield tuple([fixed[m] for m in range(len(dst.mesh_shape))])
