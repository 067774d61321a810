"""Arrays over memory that another object owns: buffers, shared memory, mapped files.

The owner of writable memory reads there the values that the program writes, and vice versa. This
holds for the whole memory, so every rank has such an array whole. Read-only memory is cut like
other arrays. So is the memory of an MPI window, which ranks may share.
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
    """Interpret the bytes of a buffer as a 1-d array; see :func:`numpy.frombuffer`.

    Cost
    ----
    No message and no copy: the block is this rank's section of the buffer.

    Notes
    -----
    Values that a rank later writes to its buffer appear in the array, which is read-only if the
    buffer is. A writable buffer makes a replicated array, so that values assigned to the array
    are in every rank's buffer. With other `placements`, or in an MPI window, a rank writes its
    block alone. Give placements where ranks share a buffer by other means: otherwise every rank
    adds to the same memory. The array keeps the whole buffer in memory; its ``copy()`` does not.
    """
    if isinstance(buffer, DistArray) and not buffer.layout.is_whole and placements is None:
        return _of_memory(buffer, np.dtype(float if dtype is None else dtype), count, offset)
    values = np.frombuffer(buffer, float if dtype is None else dtype, count, offset)
    return over(values, buffer, like, mesh, placements)


def _of_memory(x: DistArray, dtype: DType, count: int, offset: int) -> DistArray:
    """Return the elements of a cut array's memory as a 1-d array: a view."""
    model = np.frombuffer(address_space((x.nbytes,), np.dtype("u1")), dtype, count, offset)
    return over_memory(x, model.shape, dtype, offset)


def over(
    values: Array,
    buffer: object,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Return a distributed array over the same memory as NumPy's array of a buffer."""
    layout, mesh = place(values.shape, values.dtype, mesh, placements, None, like)
    if placements is None and is_lent(values, buffer):
        layout = Layout.replicated(values.shape, mesh.shape)
    return part(values, layout, mesh, "K", copied=False)


def is_lent(values: Array, buffer: object) -> bool:
    """Return True if another object besides NumPy's array may read or write the buffer's memory."""
    owner = buffer.obj if isinstance(buffer, memoryview) else buffer
    return values.flags.writeable and type(owner).__module__ != "mpi4py.MPI"


def is_shared(values: Array, source: object) -> bool:
    """Return True if NumPy's array of an object shares memory with it instead of copying it.

    False for a NumPy array of the program: the ranks copy their sections of such an array.
    """
    owner: Any = values
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if owner is None:
        lends = not isinstance(source, np.ndarray) and _is_held(values)
    else:
        lends = not isinstance(owner, mmap)  # ranks share mapped files: each would write to them
    return lends and is_lent(values, owner)


def _is_held(values: Array) -> bool:
    """Return True if an array that NumPy has just made is referred to outside of the caller."""
    return values.base is not None or getrefcount(values) > _REFERENCES


def _references() -> int:
    """Count the references that `_is_held` sees if only `array` and its helper have the array."""

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
    """Return an array of values that every rank has; each rank keeps its section."""
    if layout.local_shape(mesh.coords) != values.shape:
        values = values[tuple([slice(*interval) for interval in layout.section(mesh.coords)])]
    block = mesh.asarray(values)
    return wrap(block.copy(order) if copied else block, layout, mesh)
