"""Parts that ranks exchange on their way from or to storage, some mebibytes at a time.

Where the ranks touch storage by another layout than the array has, each needs memory for what it
fetches for others besides its own block. It stays small when the array passes in slabs, cut along
a dimension that neither layout cuts, so that every rank takes part in every round.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.array.movement import assign
from distarray.layout import Box, Entries, Layout, view_layout

__all__ = ["fill", "pour", "slabs"]

#: Bytes of a rank's part of a slab.
_ROUND = 1 << 24

Touch = Callable[[Box, np.ndarray[Any, Any]], None]


def slabs(
    touching: Layout, layout: Layout, chunks: Sequence[int] | None, itemsize: int
) -> Iterator[Entries]:
    """The whole array in slabs of whole chunks, as basic keys; one if both cut all dimensions.

    Examples
    --------
    >>> from distarray.layout import Shard
    >>> rows, columns = (Layout.chunked((4, 4, 1 << 23), (2,), [Shard(d)]) for d in (0, 1))
    >>> [slab[2] for slab in slabs(rows, columns, None, 1)]
    [(0, 1, 2097152), (2097152, 1, 2097152), (4194304, 1, 2097152), (6291456, 1, 2097152)]
    """
    whole = tuple([(0, 1, extent) for extent in layout.shape])
    units = (1,) * layout.ndim if chunks is None else tuple(chunks)
    free = [
        dim
        for dim, (one, other) in enumerate(zip(touching.cuts, layout.cuts, strict=True))
        if not one.mesh_dims and not other.mesh_dims
    ]
    if not free:
        yield whole
        return
    dim = max(free, key=lambda dim: layout.shape[dim] / units[dim])
    extent = layout.shape[dim]
    ranks = max(1, prod([cut.parts for cut in touching.cuts]))
    slice_bytes = max(1, itemsize * layout.size // ranks // extent * units[dim])
    thick = units[dim] * max(1, _ROUND // slice_bytes)
    for start in range(0, extent, thick):
        yield (*whole[:dim], (start, 1, min(thick, extent - start)), *whole[dim + 1 :])


def fill(
    target: DistArray, reading: Layout, chunks: Sequence[int] | None, read: Touch
) -> Exception | None:
    """Read an array by the layout `reading`; brings back what went wrong on this rank.

    Collective: after a failure this rank reads no more, but takes part until the end.
    """
    mesh, error = target.mesh, None
    for entries in slabs(reading, target.layout, chunks, target.itemsize):
        view, layout = target._view(entries), view_layout(reading, entries)
        part: Any = np.empty(layout.local_shape(mesh.coords), target.dtype)
        error = error or _touched(read, _placed(layout.section(mesh.coords), entries), part)
        assign(view._block, view._layout, mesh.asarray(part), layout, mesh)
        del part  # before there is another one
    return error


def pour(
    x: DistArray, writing: Layout, chunks: Sequence[int] | None, write: Touch
) -> Exception | None:
    """Write an array by the layout `writing`; as :func:`fill`."""
    mesh, error = x.mesh, None
    for entries in slabs(writing, x.layout, chunks, x.itemsize):
        view, layout = x._view(entries), view_layout(writing, entries)
        part = mesh.xp.empty(layout.local_shape(mesh.coords), x.dtype)
        assign(part, layout, view._block, view._layout, mesh)
        box = _placed(layout.section(mesh.coords), entries)
        error = error or _touched(write, box, mesh.to_host(part))
        del part
    return error


def _placed(section: Box, entries: Entries) -> Box:
    """A section of a slab as a box of the whole array."""
    first = [entry[0] for entry in entries if isinstance(entry, tuple)]
    return tuple([(a + at, b + at) for (a, b), at in zip(section, first, strict=True)])


def _touched(touch: Touch, box: Box, part: np.ndarray[Any, Any]) -> Exception | None:
    try:
        if part.size:
            touch(box, part)
    except Exception as caught:
        return caught
    return None
