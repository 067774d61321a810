"""Two-phase input and output: ranks exchange elements between their blocks and storage.

If the ranks divide storage differently from the array's layout, each rank needs memory for the
elements that it reads or writes for other ranks, in addition to its block. This memory stays small
if the array is transferred in slabs across a dimension that the layout does not cut. All ranks
share each slab.
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

#: Size of a rank's section of a slab, in bytes.
_ROUND = 1 << 24

#: Function that reads or writes a box.
Transfer = Callable[[Box, Array], None]


def slabs(layout: Layout, chunks: Shape | None, itemsize: int) -> Iterator[Entries]:
    """Divide the array into slabs of whole chunks, as basic keys; one slab if all dims are cut.

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
    # The first dimension with slabs that are thin enough: storage is (nearly) in C order.
    dim = next((dim for dim in free if thick[dim]), max(thick, key=thick.__getitem__, default=None))
    if dim is None:
        yield whole
        return
    extent, step = layout.shape[dim], units[dim] * max(1, thick[dim])
    for start in range(0, extent, step):
        yield (*whole[:dim], (start, 1, min(step, extent - start)), *whole[dim + 1 :])


def read_in_slabs(x: DistArray, chunks: Shape | None, read: Transfer) -> Exception | None:
    """Fill an array from storage, slab by slab; return this rank's exception or None.

    Collective: after an error this rank stops reading, but takes part in all exchanges.
    """
    mesh, error = x.mesh, None
    for entries in slabs(x.layout, chunks, x.itemsize):
        view = x.sliced(entries)
        layout = storage_layout(view.layout, chunks, x.itemsize)
        part: Array = np.empty(layout.local_shape(mesh.coords), x.dtype)
        if part.size and error is None:
            error = tried(read, _placed(layout.section(mesh.coords), entries), part)
        assign(view.block, view.layout, mesh.asarray(part), layout, mesh)
        del part  # before the next section is allocated
    return error


def write_in_slabs(x: DistArray, chunks: Shape | None, write: Transfer) -> Exception | None:
    """Write an array to storage, slab by slab, with the conventions of :func:`read_in_slabs`."""
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
    """Convert a section of a slab to a box of the whole array."""
    first = [entry[0] for entry in entries if isinstance(entry, tuple)]
    return tuple([(a + at, b + at) for (a, b), at in zip(section, first, strict=True)])
