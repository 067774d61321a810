"""Chain of storages from a view up to its base, and replay of view makers along that chain.

No rank stores the whole memory of a cut array. But reserving address space of that size costs
nothing. The functions that made the views are applied again to an array over this address space.
NumPy then computes the address, the shape and the strides of each view.
"""

import mmap
from functools import lru_cache
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from distarray.array.base import Base
from distarray.array.memory import Storage
from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.typing import Array, DType

__all__ = ["above", "address_space", "made_of", "shorten", "whole"]

_new = object.__new__
#: Flags for pages that are never written to, so that the kernel reserves no memory for them.
_UNRESERVED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)


def above(storage: Storage) -> Storage | None:
    """Return the storage of the array that the given array was made from, or None."""
    link = storage.source.link
    return link.storage if storage.parent is None and link is not None else storage.parent


def address_space(shape: tuple[int, ...], dtype: DType) -> Array:
    """Return a read-only array in C order over reserved address space that uses no memory."""
    count = prod(shape)
    if not count * dtype.itemsize or dtype.hasobject:
        return np.empty(shape, dtype)
    pages = mmap.mmap(-1, count * dtype.itemsize, flags=_UNRESERVED, prot=mmap.PROT_READ)
    return np.frombuffer(pages, "u1").view(dtype).reshape(shape)


@lru_cache(maxsize=64)
def _alone(mesh_shape: tuple[int, ...]) -> Any:
    """Return the substitute mesh that makers of views need; its one rank holds all elements."""
    return SimpleNamespace(
        shape=mesh_shape,
        ndim=len(mesh_shape),
        coords=(0,) * len(mesh_shape),
        xp=np,
        device_type="cpu",
        asarray=np.asarray,
        to_host=np.asarray,
    )


def whole(space: Array, mesh: DeviceMesh) -> Any:
    """Return a replicated array over an address space."""
    found = _new(Base.plain_type)
    found.block, found.mesh = space, _alone(mesh.shape)
    found.layout = Layout.replicated(space.shape, mesh.shape)
    return found


def made_of(storage: Storage, made: dict[int, Any]) -> Any:
    """Make a view again, with another array in place of one of its ancestors.

    Parameters
    ----------
    storage : Storage
        The storage of the view.
    made : dict
        The substitute arrays, by the identity of the storages that they replace. The intermediate
        arrays are added.

    Returns
    -------
    array or None
        None if the view cannot be made.
    """
    chain = [storage]
    while id(chain[-1]) not in made:
        parent = above(chain[-1])
        if parent is None:
            return None
        chain.append(parent)
    found = made[id(chain[-1])]
    for below in reversed(chain[:-1]):
        found = made[id(below)] = _next(below, found)
    return found


def _next(below: Storage, found: Any) -> Any:
    link = below.source.link
    make = link.make if below.parent is None and link is not None else below.make
    return None if found is None or make is None else make(found)


def shorten(x: Base) -> None:
    """Remove cycles from the chain of parents, as ``x = x.T`` in a loop creates.

    If an ancestor has the same address, shape, strides and data type as this view, the view takes
    over the ancestor's parent and maker.
    """
    own = x._storage
    chain = [own]
    while chain[-1].parent is not None:
        chain.append(chain[-1].parent)
    top = chain.pop()
    found: Any = whole(address_space(*top.kind), x.mesh)
    known = {_place(found): top}
    for storage in reversed(chain):
        found = _next(storage, found)
        if found is None:
            return
        same = known.setdefault(_place(found), storage)
    if same is top:
        own.parent, own.make, own.depth = top, _itself, 1
    elif same is not own:
        own.parent, own.make, own.depth = same.parent, same.make, same.depth


def _place(x: Any) -> tuple[Any, ...]:
    block = x.block
    return block.__array_interface__["data"][0], block.shape, block.strides, block.dtype.str


def _itself(x: Any) -> Any:
    return x.like(x.block)
