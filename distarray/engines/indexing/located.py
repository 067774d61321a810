"""Index arrays in one layout, checked against the bounds, with negative indices made positive."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from distarray.array import DistArray, movement
from distarray.comm import DeviceMesh
from distarray.engines.indexing.advanced_keys import IndexArray, index_shape
from distarray.engines.indexing.bounds import in_bounds
from distarray.engines.indexing.owners import Rows
from distarray.layout import Cut, Layout
from distarray.plan import propagate, restrict
from distarray.typing import Array

__all__ = ["Located", "block_in", "flattened", "locate"]


class Located(NamedTuple):
    """This rank's parts of index arrays, and their common layout.

    Attributes
    ----------
    blocks : list of array
        This rank's part of each index array: integers within bounds; the parts broadcast.
    layout : Layout
        Layout of the shape to which the index arrays broadcast.
    """

    blocks: list[Array]
    layout: Layout

    @property
    def known(self) -> bool:
        """True if every rank has the whole index arrays."""
        return self.layout.is_replicated

    def flat(self, shape: Sequence[int]) -> list[Array]:
        """Broadcast the blocks to the shape of this rank's part of the index, and flatten them."""
        return [flattened(block, shape) for block in self.blocks]


def flattened(block: Array, shape: Sequence[int]) -> Array:
    """Broadcast an index block to a shape and flatten it."""
    if block.shape != tuple(shape):
        block = np.broadcast_to(block, shape)
    return block.reshape(-1)


def locate(
    rows: Rows,
    indices: Sequence[IndexArray],
    axes: Sequence[int],
    *,
    mode: str = "raise",
    extents: Sequence[int] | None = None,
    for_writing: bool = False,
) -> Located:
    """Bring index arrays to one layout and check them.

    Parameters
    ----------
    rows : Rows
        The indexed array.
    indices : sequence of array
        Integer arrays: DistArrays, or arrays that every rank has whole.
    axes : sequence of int
        Numbers of the indexed dimensions in error messages.
    mode : {"raise", "wrap", "clip"}
        The treatment of indices out of bounds.
    extents : sequence of int, optional
        Bounds; by default those of the indexed dimensions.
    for_writing : bool
        Cut the index along its first dimension only, by exactly the mesh dimensions that cut the
        indexed dimensions, so that every replica of a row receives all values written to it.

    Raises
    ------
    IndexError
        On every rank, if an index is out of bounds.

    Cost
    ----
    No communication for replicated indices. Otherwise one allreduce of the bounds check, and one
    exchange for each index array that is not in the common layout.
    """
    mesh = rows.y.mesh
    shape = index_shape(indices)
    layout = _layout_of(indices, shape, mesh)
    if for_writing:
        layout = _for_writing(layout, rows)
    else:
        taken = {m for d in rows.rest for m in rows.y.layout.cuts[d].mesh_dims}
        layout = _without_mesh_dims(layout, taken | set(rows.y.layout.ats))
    layouts = [restrict(layout, array.shape) for array in indices]
    blocks = [block_in(x, part, mesh) for x, part in zip(indices, layouts, strict=True)]
    bounds = rows.extents if extents is None else extents
    if 0 not in shape:
        blocks = in_bounds(blocks, layouts, bounds, axes, mesh, mode)
    return Located([block.astype(np.intp, copy=False) for block in blocks], layout)


def _layout_of(indices: Sequence[IndexArray], shape: tuple[int, ...], mesh: DeviceMesh) -> Layout:
    found = [array for array in indices if isinstance(array, DistArray)]
    if all(array.layout.is_replicated for array in found):
        return _replicated(shape, mesh.shape)
    layouts = [array.layout for array in found]
    layouts.append(Layout.replicated(shape, mesh.shape))
    sizes = [array.itemsize for array in found]
    return propagate(tuple(layouts), (*sizes, 0)).result


_replicated = lru_cache(maxsize=1024)(Layout.replicated)


def _without_mesh_dims(layout: Layout, taken: set[int]) -> Layout:
    """Return the layout with no dimension cut by the mesh dimensions `taken`."""
    if taken.isdisjoint([m for cut in layout.cuts for m in cut.mesh_dims]):
        return layout
    cuts = []
    for cut in layout.cuts:
        if not taken.isdisjoint(cut.mesh_dims):
            kept = tuple([m for m in cut.mesh_dims if m not in taken])
            cut = Cut.chunked(cut.extent, kept, tuple([layout.mesh_shape[m] for m in kept]))
        cuts.append(cut)
    return layout.with_cuts(cuts)


def _for_writing(layout: Layout, rows: Rows) -> Layout:
    if layout.is_replicated:
        return layout
    first, *others = layout.cuts
    wanted = first.mesh_dims == rows.mesh_dims and not any(cut.mesh_dims for cut in others)
    if not wanted:
        first = Cut.chunked(first.extent, rows.mesh_dims, rows.radix)
    cuts = [first, *[Cut.whole(cut.extent) for cut in others]]
    return Layout.from_cuts(cuts, layout.mesh_shape)


def block_in(array: IndexArray, layout: Layout, mesh: DeviceMesh) -> Array:
    """Return this rank's block of an array in a layout; redistribute the array if necessary."""
    if isinstance(array, DistArray):
        return movement.moved(mesh.asarray(array.block), array.layout, layout, mesh)
    whole: Array = mesh.asarray(array)
    if layout.is_replicated:
        return whole
    return whole[tuple([slice(a, b) for a, b in layout.section(mesh.coords)])]
