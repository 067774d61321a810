"""Parts that ranks exchange on their way from or to storage, some mebibytes at a time.

Where the ranks touch storage by another layout than the array has, each needs memory for what it
fetches for others besides its own block. It stays small when the array passes in slabs, across a
dimension that the array's layout leaves whole, each of which all ranks share among them.
"""

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.array.movement import assign
from distarray.io.storage_layout import shares
from distarray.layout import Box, Entries, Layout

__all__ = ["fill", "pour", "slabs"]

#: Bytes of a rank's part of a slab.
_ROUND = 1 << 24

Touch = Callable[[Box, np.ndarray[Any, Any]], None]


def slabs(layout: Layout, chunks: tuple[int, ...] | None, itemsize: int) -> Iterator[Entries]:
    """The whole array in slabs of whole chunks, as basic keys; one if all dimensions are cut.

    Examples
    --------
    >>> from distarray.layout import Shard
    >>> layout = Layout.chunked((1 << 22, 4, 4), (2,), [Shard(1)])
    >>> [slab[0] for slab in slabs(layout, None, 1)]
    [(0, 1, 2097152), (2097152, 1, 2097152)]
    """
    whole = tuple([(0, 1, extent) for extent in layout.shape])
    units = (1,) * layout.ndim if chunks is None else tuple(chunks)
    free = [dim for dim, cut in enumerate(layout.cuts) if not cut.mesh_dims]
    room = _ROUND * prod(layout.mesh_shape)
    thick = {
        dim: room // max(1, itemsize * layout.size // layout.shape[dim] * units[dim])
        for dim in free
    }
    # Storage is in C order, or nearly so: the first dimension that makes thin enough slabs.
    dim = next((dim for dim in free if thick[dim]), max(thick, key=thick.__getitem__, default=None))
    if dim is None:
        yield whole
        return
    extent, step = layout.shape[dim], units[dim] * max(1, thick[dim])
    for start in range(0, extent, step):
        yield (*whole[:dim], (start, 1, min(step, extent - start)), *whole[dim + 1 :])


def fill(target: DistArray, chunks: tuple[int, ...] | None, read: Touch) -> Exception | None:
    """Read an array in slabs; brings back what went wrong on this rank.

    Collective: after a failure this rank reads no more, but takes part until the end.
    """
    mesh, error = target.mesh, None
    for entries in slabs(target.layout, chunks, target.itemsize):
        view = target.sliced(entries)
        layout = shares(view.layout, chunks, target.itemsize)
        part: Any = np.empty(layout.local_shape(mesh.coords), target.dtype)
        error = error or _touched(read, _placed(layout.section(mesh.coords), entries), part)
        assign(view.block, view.layout, mesh.asarray(part), layout, mesh)
        del part  # before there is another one
    return error


def pour(x: DistArray, chunks: tuple[int, ...] | None, write: Touch) -> Exception | None:
    """Write an array in slabs; as :func:`fill`."""
    mesh, error = x.mesh, None
    for entries in slabs(x.layout, chunks, x.itemsize):
        view = x.sliced(entries)
        layout = shares(view.layout, chunks, x.itemsize, strict=True)
        part = mesh.xp.empty(layout.local_shape(mesh.coords), x.dtype)
        assign(part, layout, view.block, view.layout, mesh)
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
