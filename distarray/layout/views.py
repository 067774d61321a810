"""Basic indexing as a change of layout: slices, integers and new axes; no element moves.

A view is described by a tuple of entries in the order of the key: an ``int`` takes one index of the
next dimension, ``(start, step, extent)`` takes a slice of it, ``None`` adds a dimension.
"""

from functools import lru_cache
from types import EllipsisType, NoneType

from distarray.layout.cut import Cut
from distarray.layout.layout import Coords, Layout
from distarray.layout.placement import At, Placement

__all__ = ["Entries", "Entry", "local_key", "view_layout", "whole_view"]

Entry = int | tuple[int, int, int] | None
Entries = tuple[Entry, ...]


@lru_cache(maxsize=4096)
def view_layout(layout: Layout, entries: Entries) -> Layout:
    """Return the layout of a basic-index view; every element stays on its rank.

    An integer on a sharded dimension selects the mesh coordinate that owns the index. Only that
    coordinate then holds the view (:class:`At`).

    Examples
    --------
    >>> from distarray.layout import Layout, Shard
    >>> rows = Layout.chunked((8, 3), (4,), [Shard(0)])
    >>> view = view_layout(rows, ((1, 1, 4), (0, 1, 3)))  # x[1:5]
    >>> [view.local_shape((rank,)) for rank in range(4)]
    [(1, 3), (2, 3), (1, 3), (0, 3)]
    """
    cuts: list[Cut] = []
    others: dict[int, Placement] = dict(layout.others)
    dim = 0
    for entry in entries:
        if entry is None:
            cuts.append(Cut.whole(1))
            continue
        cut = layout.cuts[dim]
        dim += 1
        if isinstance(entry, int):
            digits = cut.digits(cut.owner(entry)) if cut.mesh_dims else ()
            others.update({m: At(c) for m, c in zip(cut.mesh_dims, digits, strict=True)})
        elif not cut.mesh_dims:
            cuts.append(Cut.whole(entry[2]))
        else:
            cuts.append(cut if entry == (0, 1, cut.extent) else cut.view(*entry))
    return Layout.from_cuts(cuts, layout.mesh_shape, others)


@lru_cache(maxsize=4096)
def whole_view(layout: Layout, kinds: tuple[type, ...], shape: tuple[int, ...]) -> Layout:
    """Return the layout of a view of an array that every rank holds whole, from its key's types.

    The values in the key do not affect this layout. The array's own indexing has already checked
    the key and computed the view's shape.

    Examples
    --------
    >>> from distarray.layout import Layout, Shard
    >>> rows = Layout.chunked((8, 3), (1,), [Shard(0)])
    >>> whole_view(rows, (slice, int), (4,)).placements  # x[1:5, 2]
    (Shard(0),)
    """
    taken = [kind for kind in kinds if kind is not NoneType and kind is not EllipsisType]
    understood = [slice] * (layout.ndim - len(taken))
    extents = iter(shape)
    entries: list[Entry] = []
    for kind in kinds if EllipsisType in kinds else (*kinds, EllipsisType):
        for each in understood if kind is EllipsisType else [kind]:
            if each is slice:
                entries.append((0, 1, next(extents)))
            elif each is NoneType:
                entries.append(None)
                next(extents)
            else:
                entries.append(0)
    return view_layout(layout, tuple(entries))


@lru_cache(maxsize=4096)
def local_key(
    layout: Layout, entries: Entries, coords: Coords | None
) -> tuple[int | slice | None, ...] | None:
    """Return the NumPy key that selects a rank's block of the view from its block of the base.

    Return None on a rank that cannot hold elements of the view (see :meth:`Layout.holds`).

    Examples
    --------
    >>> from distarray.layout import Layout, Shard
    >>> rows = Layout.chunked((8, 3), (4,), [Shard(0)])
    >>> entries = ((1, 1, 4), (0, 1, 3))  # x[1:5]
    >>> [local_key(rows, entries, (rank,))[0] for rank in range(3)]
    [slice(1, 2, 1), slice(0, 2, 1), slice(0, 1, 1)]
    """
    result = view_layout(layout, entries)
    if not result.holds(coords):
        return None
    section, target = layout.section(coords), result.section(coords)
    key: list[int | slice | None] = []
    dim = out = 0
    for entry in entries:
        if entry is None:
            key.append(None)
            out += 1
            continue
        origin = section[dim][0]
        dim += 1
        if isinstance(entry, int):
            key.append(entry - origin)
            continue
        first, last = target[out]
        out += 1
        key.append(_local_slice(entry[0] + first * entry[1] - origin, entry[1], last - first))
    return tuple(key)


def _local_slice(start: int, step: int, count: int) -> slice:
    if not count:
        return slice(0, 0)
    stop = start + count * step
    return slice(start, stop if stop >= 0 else None, step)
