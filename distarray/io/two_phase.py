"""Two-phase input and output: ranks exchange elements on their way from or to storage.

Where the ranks divide storage in another way than the array's layout, each needs memory for what it
reads or writes for others, besides its own block. It stays small when the array passes in slabs
across a dimension that the layout does not cut; all ranks share each slab.
"""

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from distarray.array import DistArray
from distarray.array.movement import assign
from distarray.io.file_errors import tried
from distarray.io.storage_layout import storage_layout
from distarray.layout import Box, Entries, Layout
from distarray.typing import Array, Shape

__all__ = ["read_in_slabs", "slabs", "write_in_slabs"]

#: Bytes of a rank's part of a slab.
_ROUND = 1 << 24

#: Reads or writes a box.
Transfer = Callable[[Box, Array], None]


def slabs(layout: Layout, chunks: Shape | None, itemsize: int) -> Iterator[Entries]:
    """The whole array in slabs of whole chunks, as basic keys; one slab if all dimensions are cut.

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
    # The first dimension with slabs that are thin enough: storage is in C order, or nearly so.
    dim = next((dim for dim in free if thick[dim]), max(thick, key=thick.__getitem__, default=None))
    if dim is None:
        yield whole
        return
    extent, step = layout.shape[dim], units[dim] * max(1, thick[dim])
    for start in range(0, extent, step):
        yield (*whole[:dim], (start, 1, min(step, extent - start)), *whole[dim + 1 :])


def read_in_slabs(x: DistArray, chunks: Shape | None, read: Transfer) -> Exception | None:
    """Fill an array from storage, slab by slab; returns this rank's error, if it has one.

    Collective: after an error this rank reads no more, but takes part until the end.
    """
    mesh, error = x.mesh, None
    for entries in slabs(x.layout, chunks, x.itemsize):
        view = x.sliced(entries)
        layout = storage_layout(view.layout, chunks, x.itemsize)
        part: Array = np.empty(layout.local_shape(mesh.coords), x.dtype)
        if part.size and error is None:
            error = tried(read, _placed(layout.section(mesh.coords), entries), part)
        assign(view.block, view.layout, mesh.asarray(part), layout, mesh)
        del part  # before the next one is allocated
    return error


def write_in_slabs(x: DistArray, chunks: Shape | None, write: Transfer) -> Exception | None:
    """Write an array to storage, slab by slab; as :func:`read_in_slabs`."""
    mesh, error = x.mesh, None
    for entries in slabs(x.layout, chunks, x.itemsize):
        view = x.sliced(entries)
        layout = storage_layout(view.layout, chunks, x.itemsize, strict=True)
        part = mesh.xp.empty(layout.local_shape(mesh.coords), x.dtype)
        assign(part, layout, view.block, view.layout, mesh)
        if part.size and error is None:
            box = _placed(layout.section(mesh.coords), entries)
            error = tried(write, box, mesh.to_host(part))
        del part
    return error


def _placed(section: Box, entries: Entries) -> Box:
    """A section of a slab as a box of the whole array."""
    first = [entry[0] for entry in entries if isinstance(entry, tuple)]
    return tuple([(a + at, b + at) for (a, b), at in zip(section, first, strict=True)])
