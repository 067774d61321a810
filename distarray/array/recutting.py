"""Change of the cut of an array, together with the cuts of all arrays over the same memory."""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import movement
from distarray.array.ancestry import made_of
from distarray.array.base import Base, natural_of, raw_block
from distarray.array.blocks_out import live_arrays
from distarray.array.leaves import is_perhaps_out
from distarray.array.memory import is_shared, is_writeable
from distarray.layout import Fold, Layout

__all__ = ["recut"]

_new = object.__new__


def recut(top: Any, layout: Layout, wanted: Callable[[Any], bool], x: Base) -> bool:
    """Change the cut of an array and of all arrays over the same memory; collective.

    Parameters
    ----------
    top : DistArray
        The array in C order whose cut changes.
    layout : Layout
        The new layout, of the same shape.
    wanted : callable
        Takes `x` as it would be after the change; returns True if the new cut suits the caller.
    x : DistArray
        A view of `top`, or `top` itself.

    Returns
    -------
    bool
        False if on some rank an array over the memory cannot take the new cut; then nothing has
        changed.

    Cost
    ----
    One allreduce of an integer, and an exchange of the elements that change rank.
    """
    mesh, source = top.mesh, top._storage.source
    arrays = live_arrays(source)
    block = mesh.xp.empty(layout.local_shape(mesh.coords), top.dtype)
    fresh = _new(Base.plain_type)
    fresh.block, fresh.layout, fresh.mesh, fresh._natural = block, layout, mesh, block
    made: dict[int, Any] = {id(top._storage): fresh}
    follow = not is_shared(top) and not is_perhaps_out(source)
    follow = follow and all(made_of(y._storage, made) is not None for y in arrays)
    follow = follow and wanted(made[id(x._storage)])
    if not mesh.group.allreduce(np.array(follow, np.int64), Fold.MIN, "moving a cut"):
        return False
    movement.assign(block, layout, top.block, top.layout, mesh)
    flags = [is_writeable(raw_block(y)) for y in arrays]
    for y in arrays:
        view = made[id(y._storage)]
        y.block, y.layout, y._natural = view.block, view.layout, natural_of(view)
    for y in [y for y, writeable in zip(arrays, flags, strict=True) if writeable]:
        if not is_writeable(y.block):  # `broadcast_to` forbids it, and the program has allowed it
            y.block.flags.writeable = True
    for y in [y for y, writeable in zip(arrays, flags, strict=True) if not writeable]:
        y.block.flags.writeable = False
    return True
