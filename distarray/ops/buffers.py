"""Arrays over memory that is lent: buffers, shared memory, mapped files.

Whoever lends memory that can be written to reads there what the program writes, and the other way
round: all of it, so that each rank has such an array whole. Memory that nobody can write to is cut
like other arrays, and so is that of an MPI window, which ranks may share.
"""

from __future__ import annotations

from mmap import mmap
from sys import getrefcount
from typing import Any

import numpy as np

from distarray.array import DistArray, wrap
from distarray.array.ancestry import address_space
from distarray.array.placing import Placements, creates, place
from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.ops.strided import over_memory
from distarray.typing import Array, ArrayLike, DType, DTypeLike, Order

__all__ = ["frombuffer", "is_lent", "is_shared", "over", "part"]


@creates(np.frombuffer, at=True)
def frombuffer(
    buffer: Any,
    dtype: DTypeLike = None,
    count: int = -1,
    offset: int = 0,
    *,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """The bytes of a buffer as a 1-d array; see :func:`numpy.frombuffer`.

    Cost
    ----
    No message, and no copy: the block is this rank's part of the buffer.

    Notes
    -----
    What a rank later writes to its buffer shows in the array, which is read-only if the buffer is.
    A buffer that can be written to makes a replicated array, so that what is written to the array
    is in every rank's buffer; with other `placements`, or in an MPI window, a rank writes its block
    alone. Give placements where ranks share a buffer otherwise, or each of them adds to the same
    memory. The array keeps the whole buffer in memory; its ``copy()`` does not.
    """
    if isinstance(buffer, DistArray) and not buffer.layout.is_whole and placements is None:
        return _of_memory(buffer, np.dtype(float if dtype is None else dtype), count, offset)
    values = np.frombuffer(buffer, float if dtype is None else dtype, count, offset)
    return over(values, buffer, like, mesh, placements)


def _of_memory(x: DistArray, dtype: DType, count: int, offset: int) -> DistArray:
    """The elements of a cut array's memory as a 1-d array: a view."""
    model = np.frombuffer(address_space((x.nbytes,), np.dtype("u1")), dtype, count, offset)
    return over_memory(x, model.shape, dtype, offset)


def over(
    values: Array,
    buffer: object,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """A distributed array over the same memory as NumPy's array of a buffer."""
    layout, mesh = place(values.shape, values.dtype, mesh, placements, None, like)
    if placements is None and is_lent(values, buffer):
        layout = Layout.replicated(values.shape, mesh.shape)
    return part(values, layout, mesh, "K", copied=False)


def is_lent(values: Array, buffer: object) -> bool:
    """Whether somebody besides NumPy's array of a buffer may write to its memory, or read it."""
    owner = buffer.obj if isinstance(buffer, memoryview) else buffer
    return values.flags.writeable and type(owner).__module__ != "mpi4py.MPI"


def is_shared(values: Array, source: object) -> bool:
    """Whether values that NumPy has made of an object, which may not be a copy, are its memory.

    A NumPy array that is the program's is not meant: what the ranks have of it, they copy.
    """
    owner: Any = values
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if owner is None:
        lends = not isinstance(source, np.ndarray) and _is_held(values)
    else:
        lends = not isinstance(owner, mmap)  # which ranks share: each would write to it
    return lends and is_lent(values, owner)


def _is_held(values: Array) -> bool:
    """Whether an array that NumPy has just made is known to others than who asked for it."""
    return values.base is not None or getrefcount(values) > _REFERENCES


def _references() -> int:
    """How often `_is_held` finds an array referred to that only `array` and its helper have."""

    def helper(values: Array) -> int:
        return asking(values)

    def asking(values: Array) -> int:
        return counting(values)

    def counting(values: Array) -> int:
        return getrefcount(values)

    fresh = np.empty(0)
    return helper(fresh)


_REFERENCES = _references()


def part(values: Array, layout: Layout, mesh: DeviceMesh, order: Order, copied: bool) -> DistArray:
    """An array whose values every rank has, each of which keeps its part."""
    if layout.local_shape(mesh.coords) != values.shape:
        values = values[tuple([slice(*interval) for interval in layout.section(mesh.coords)])]
    block = mesh.asarray(values)
    return wrap(block.copy(order) if copied else block, layout, mesh)
