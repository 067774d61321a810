"""Who reads or writes which part of a stored array, so that each byte is touched once.

Pure: layouts in, a layout out. The layout that an array has in memory says where elements are
wanted; the one that :func:`shares` gives says which rank fetches them from storage, or brings
them there. Where the two differ, the ranks exchange what they have over the network, which is
faster than a file system and does not decompress anything twice.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil, prod

from distarray.layout import Cut, Layout

__all__ = ["shares"]

#: Bytes below which a part of a replicated array is not divided any further.
_GRAIN = 1 << 16
#: A rank's share may be this many times what an even division gives before another is looked for.
_UNEVEN = 2.0


@lru_cache(maxsize=256)
def shares(
    layout: Layout, chunks: tuple[int, ...] | None, itemsize: int, *, strict: bool = False
) -> Layout:
    """The layout by which ranks touch storage: every element one rank's, cut along chunks.

    Parameters
    ----------
    layout : Layout
        Where the elements are wanted, or are. Without pending folds.
    chunks : tuple of int or None
        Shape of the pieces that storage holds, which are read and written whole. None: any box
        is as good as another.
    itemsize : int
        Bytes an element.
    strict : bool
        Never let two ranks touch one chunk (they write it). Otherwise a division along chunks
        that would give one rank far too much gives way to one that is even.

    Returns
    -------
    Layout
        `layout` itself where it already divides so; for small replicated arrays one of which the
        first rank alone holds all.

    Examples
    --------
    >>> from distarray.layout import Replicate, Shard
    >>> whole = Layout.replicated((4000, 1024), (4,))
    >>> [shares(whole, None, 8).section((rank,))[0] for rank in range(4)]
    [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000)]
    >>> rows = Layout.chunked((4000, 1000), (3,), [Shard(0)])
    >>> [shares(rows, (500, 1000), 8).section((rank,))[0] for rank in range(3)]
    [(0, 1500), (1500, 2500), (2500, 4000)]
    """
    if not layout.size:
        return layout
    if layout.is_replicated and (not layout.ndim or layout.size * itemsize <= _GRAIN):
        return Layout.lone(layout.shape, layout.mesh_shape, (0,) * len(layout.mesh_shape))
    spare = tuple([m for m in range(len(layout.mesh_shape)) if _is_spare(layout, m)])
    units = tuple(chunks) if chunks is not None else (1,) * layout.ndim
    if not spare and _is_aligned(layout, units):
        return layout
    kept = _divided(layout, units, spare, _roomiest(layout, units, spare, itemsize), itemsize)
    if _largest(kept) <= _UNEVEN * max(_even(kept), prod(units)):
        return kept
    movable = tuple([m for m, size in enumerate(layout.mesh_shape) if size > 1])
    bare = Layout.replicated(layout.shape, layout.mesh_shape)
    dim = max(range(layout.ndim), key=lambda d: layout.shape[d] / units[d])
    other = _divided(bare, units, movable, dim, itemsize)
    best = min(kept, other, key=_largest)
    if strict or _largest(best) <= _UNEVEN * max(_even(best), prod(units)):
        return best
    return shares(layout, None, itemsize) if chunks is not None else best


def _is_spare(layout: Layout, mesh_dim: int) -> bool:
    """Whether ranks along a mesh dimension hold the same elements."""
    cutting = any(mesh_dim in cut.mesh_dims for cut in layout.cuts)
    return not cutting and layout.mesh_shape[mesh_dim] > 1


def _is_aligned(layout: Layout, units: Sequence[int]) -> bool:
    """Whether all blocks begin where chunks begin."""
    for cut, unit in zip(layout.cuts, units, strict=True):
        if unit > 1 and any(
            cut.interval(part)[0] % unit and cut.interval(part)[0] != cut.extent
            for part in range(cut.parts)
        ):
            return False
    return True


def _even(layout: Layout) -> float:
    """Elements a rank if all had as many."""
    return layout.size / max(1, prod([cut.parts for cut in layout.cuts]))


def _largest(layout: Layout) -> int:
    """Most elements that any rank has."""
    lengths = []
    for cut in layout.cuts:
        spans = [cut.interval(part) for part in range(cut.parts)]
        lengths.append(max(stop - start for start, stop in spans))
    return prod(lengths)


def _roomiest(layout: Layout, units: Sequence[int], spare: Sequence[int], itemsize: int) -> int:
    """The dimension to divide further: the first with enough pieces, else the one with most."""
    ways = prod([layout.mesh_shape[m] for m in spare])
    pieces = [
        cut.extent / cut.parts / max(unit, _rows(layout, dim, unit, itemsize))
        for dim, (cut, unit) in enumerate(zip(layout.cuts, units, strict=True))
    ]
    for dim, count in enumerate(pieces):
        if count >= ways:
            return dim
    return max(range(layout.ndim), key=lambda dim: pieces[dim])


def _rows(layout: Layout, dim: int, unit: int, itemsize: int) -> int:
    """Length along a dimension, in whole chunks, below which dividing does not pay."""
    row = max(1, itemsize * layout.size // max(1, layout.shape[dim]))
    return unit * max(1, ceil(_GRAIN / row / unit))


def _divided(
    layout: Layout, units: Sequence[int], spare: tuple[int, ...], dim: int, itemsize: int
) -> Layout:
    """The layout with boundaries moved to those of chunks, and `dim` divided by `spare` too."""
    cuts = []
    for number, (cut, unit) in enumerate(zip(layout.cuts, units, strict=True)):
        further = spare if number == dim else ()
        if not cut.mesh_dims and not further:
            cuts.append(cut)
            continue
        radix = tuple([layout.mesh_shape[m] for m in further])
        ways = prod(radix)
        step = _rows(layout, number, unit, itemsize) if further else unit
        counts: list[int] = []
        for start, stop in _rounded(cut, unit):
            share = step * max(1, ceil((stop - start) / step / ways))
            marks = [min(start + share * way, stop) for way in range(ways + 1)]
            counts += [b - a for a, b in pairwise(marks)]
        cuts.append(Cut.ragged(counts, (*cut.mesh_dims, *further), (*cut.radix, *radix)))
    return Layout.from_cuts(cuts, layout.mesh_shape)


def _rounded(cut: Cut, unit: int) -> list[tuple[int, int]]:
    """The blocks of the canonical cut with boundaries at whole multiples of `unit`."""
    canonical = Cut.chunked(cut.extent, cut.mesh_dims, cut.radix)
    marks = []
    for part in range(canonical.parts):
        start = canonical.interval(part)[0]
        marks.append(min((start + unit // 2) // unit * unit, cut.extent))
    marks.append(cut.extent)
    return list(pairwise(marks))
