"""Division of a stored array among ranks that reads or writes each byte once.

The functions are pure: they take a layout and return a layout. The layout in memory defines which
rank holds which elements. The result of :func:`storage_layout` defines which rank reads or writes
which elements in storage. If the two differ, the ranks exchange elements over the network, which is
faster than a file system and avoids repeated decompression.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil, prod

from distarray.layout import Cut, Layout
from distarray.typing import Shape

__all__ = ["storage_layout"]

#: Minimum size in bytes of a section into which a replicated array is divided.
_GRAIN = 1 << 16
#: Ratio of a rank's elements to those of an even division above which another division is tried.
_UNEVEN = 2.0


@lru_cache(maxsize=256)
def storage_layout(
    layout: Layout, chunks: Shape | None, itemsize: int, *, strict: bool = False
) -> Layout:
    """Compute the layout in which ranks read or write storage, cut at chunks, without replicas.

    Parameters
    ----------
    layout : Layout
        The layout in memory, without pending folds.
    chunks : tuple of int or None
        Shape of the chunks that are read and written whole. None if all boxes cost the same.
    itemsize : int
        Bytes per element.
    strict : bool
        If True, two ranks never write the same chunk. If False, an even division is used where a
        division at chunk boundaries would give one rank too many elements.

    Returns
    -------
    Layout
        `layout` itself if it already is such a division; for small replicated arrays the layout in
        which only the first rank has elements.

    Examples
    --------
    >>> from distarray.layout import Replicate, Shard
    >>> whole = Layout.replicated((4000, 1024), (4,))
    >>> [storage_layout(whole, None, 8).section((rank,))[0] for rank in range(4)]
    [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000)]
    >>> rows = Layout.chunked((4000, 1000), (3,), [Shard(0)])
    >>> [storage_layout(rows, (500, 1000), 8).section((rank,))[0] for rank in range(3)]
    [(0, 1500), (1500, 2500), (2500, 4000)]
    """
    if not layout.size:
        return layout
    if layout.is_replicated and (not layout.ndim or layout.size * itemsize <= _GRAIN):
        return Layout.lone(layout.shape, layout.mesh_shape, (0,) * len(layout.mesh_shape))
    spare, units = _spare(layout), chunks or (1,) * layout.ndim
    if not spare and _is_aligned(layout, units):
        return layout
    dim = _dimension_to_divide(layout, units, spare, itemsize)
    aligned = _divided(layout, units, spare, dim, itemsize)
    if _is_even(aligned, units):
        return aligned
    best = min(aligned, _divided_anew(layout, units, itemsize), key=_largest)
    if chunks is None or strict or _is_even(best, units):
        return best
    return storage_layout(layout, None, itemsize)


def _divided_anew(layout: Layout, units: Sequence[int], itemsize: int) -> Layout:
    """Divide the dimension with the most chunks among all ranks, ignoring the layout in memory."""
    everyone = tuple([m for m, size in enumerate(layout.mesh_shape) if size > 1])
    bare = Layout.replicated(layout.shape, layout.mesh_shape)
    dim = max(range(layout.ndim), key=lambda d: layout.shape[d] / units[d])
    return _divided(bare, units, everyone, dim, itemsize)


def _spare(layout: Layout) -> tuple[int, ...]:
    """Return the mesh dimensions along which ranks hold the same elements."""
    cutting = {mesh_dim for cut in layout.cuts for mesh_dim in cut.mesh_dims}
    return tuple([m for m, n in enumerate(layout.mesh_shape) if n > 1 and m not in cutting])


def _is_aligned(layout: Layout, units: Sequence[int]) -> bool:
    """Return True if all blocks begin at chunk boundaries."""
    for cut, unit in zip(layout.cuts, units, strict=True):
        if unit > 1 and any(
            cut.interval(part)[0] % unit and cut.interval(part)[0] != cut.extent
            for part in range(cut.parts)
        ):
            return False
    return True


def _is_even(layout: Layout, units: Sequence[int]) -> bool:
    """Return True if no rank has far more elements than in an even division."""
    even = layout.size / max(1, prod([cut.parts for cut in layout.cuts]))
    return _largest(layout) <= _UNEVEN * max(even, prod(units))


def _largest(layout: Layout) -> int:
    """Return the maximum number of elements of a rank."""
    lengths = []
    for cut in layout.cuts:
        spans = [cut.interval(part) for part in range(cut.parts)]
        lengths.append(max(stop - start for start, stop in spans))
    return prod(lengths)


def _dimension_to_divide(
    layout: Layout, units: Sequence[int], spare: Sequence[int], itemsize: int
) -> int:
    """Choose the first dimension with enough pieces for the spare ranks, else with the most."""
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
    """Return the minimum length of a section along a dimension, a multiple of the chunk length."""
    row = max(1, itemsize * layout.size // max(1, layout.shape[dim]))
    return unit * max(1, ceil(_GRAIN / row / unit))


def _divided(
    layout: Layout, units: Sequence[int], spare: tuple[int, ...], dim: int, itemsize: int
) -> Layout:
    """Move the boundaries of a layout to those of chunks, and also divide `dim` by `spare`."""
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
    """Return the intervals of the canonical cut, with boundaries rounded to multiples of `unit`."""
    canonical = Cut.chunked(cut.extent, cut.mesh_dims, cut.radix)
    marks = []
    for part in range(canonical.parts):
        start = canonical.interval(part)[0]
        marks.append(min((start + unit // 2) // unit * unit, cut.extent))
    marks.append(cut.extent)
    return list(pairwise(marks))
