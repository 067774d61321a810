"""The arrays that an array is a view of: the chain of their storages, and how to go down it.

No rank has the whole memory of a cut array. But an address space of its size costs nothing, and the
functions that made views make them of that as well, so that NumPy itself says where they lie.
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
#: Pages of the address space that nobody writes to need no memory, however many there are.
_UNRESERVED = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0x4000)


def above(storage: Storage) -> Storage | None:
    """The storage of the array that an array was made of."""
    link = storage.source.link
    return link.storage if storage.parent is None and link is not None else storage.parent


def address_space(shape: tuple[int, ...], dtype: DType) -> Array:
    """An array in C order, of no memory; it cannot be written to."""
    count = prod(shape)
    if not count * dtype.itemsize or dtype.hasobject:
        return np.empty(shape, dtype)
    pages = mmap.mmap(-1, count * dtype.itemsize, flags=_UNRESERVED, prot=mmap.PROT_READ)
    return np.frombuffer(pages, "u1").view(dtype).reshape(shape)


@lru_cache(maxsize=64)
def _alone(mesh_shape: tuple[int, ...]) -> Any:
    """What makers of views ask of a mesh; its ranks have everything."""
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
    """An array that every rank has, over an address space."""
    found = _new(Base.plain_type)
    found.block, found.mesh = space, _alone(mesh.shape)
    found.layout = Layout.replicated(space.shape, mesh.shape)
    return found


def made_of(storage: Storage, made: dict[int, Any]) -> Any:
    """A view made once more, of another array in place of one that it was made of.

    Parameters
    ----------
    storage : Storage
        Of the view.
    made : dict
        The arrays that take the place of others, by the identity of the others' storages. What is
        made between is entered.

    Returns
    -------
    array or None
        None if it cannot be made.
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
    """Leave out of the chain what leads back to where it was, as ``x = x.T`` does in a loop.

    A view that lies where an array that it was made of lies has the same parent as that.
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
