"""Leaves of deferred expressions, and detection of other references to their memory.

The library knows which arrays and views share a memory. Python's reference count of a buffer shows
whether there are other references: a view made by other means, a NumPy array, an exposed buffer or
an exposed address.
"""

import sys
from collections import Counter
from sys import getrefcount
from typing import Any
from weakref import WeakSet

import numpy as np

from distarray.array.base import Base, natural_of, own_block
from distarray.array.blocks_out import live_arrays
from distarray.array.memory import Materialization, Memory, entered
from distarray.array.pieces import Pieces
from distarray.typing import Array

__all__ = [
    "Leaf",
    "beside",
    "block_of",
    "copied",
    "held",
    "is_in_order",
    "is_perhaps_out",
    "leaf_of",
    "memory_of",
]


class Leaf:
    """Block that deferred operations have yet to read.

    Attributes
    ----------
    block : array or Pieces
        The block, or this rank's block of the array in another layout.
    dtype : dtype
        The data type of the block.
    memory : Materialization
        The memory of the block.
    """

    __slots__ = ("__weakref__", "block", "dtype", "memory")

    def __init__(self, block: Array | Pieces, memory: Materialization) -> None:
        self.block = block
        self.dtype = block[0][1].dtype if isinstance(block, Pieces) else block.dtype
        self.memory = memory
        own = [x for _, x in block] if isinstance(block, Pieces) else [block]
        memory.nbytes = max([memory.nbytes, *[_owner_of(x).nbytes for x in own]])


def held(x: Base) -> Any:
    """Return the block of an array, or its placeholder: a :class:`Leaf` or an operation."""
    while (block := own_block(x)) is None:
        late, stored = x._storage.late, x._storage.block
        if late is not None or stored is not None:
            return stored if late is None else late.kept
    return block  # another thread may have computed it in between


def block_of(x: Base) -> Any:
    """Return the block of an array that operations may wait for, without running them."""
    kept = held(x)
    return kept.block if type(kept) is Leaf else kept


def is_in_order(block: Array) -> bool:
    """Return True if the dimensions of a block are in C order, gaps allowed.

    Results for such a block are in C order.
    """
    steps = block.strides
    return all(steps) and all(a >= b for a, b in zip(steps, (*steps[1:], 1), strict=True))


def _owner_of(block: Array) -> Array:
    """Return the array that owns the memory of a block."""
    base = getattr(block, "base", None)
    return block if base is None else base


def leaf_of(x: Base, part: Array | Pieces) -> Leaf:
    """Return the leaf that an operation reads of an array: a view of its block, or pieces."""
    source = entered(x).source
    leaf = Leaf(part, source)
    if not source.leaves:
        source.leaves = WeakSet()
    source.leaves.add(leaf)
    return leaf


def copied(part: Array) -> Leaf:
    """Return a leaf over a private copy, which nothing else can write to."""
    return Leaf(part.copy(), Materialization(Memory()))


def memory_of(x: Base) -> Materialization | None:
    """Return the memory of an array's block if only known arrays refer to the memory, else None."""
    return entered(x).source if _can_be_known(x) and _is_known(x) else None


def _is_known(x: Base) -> bool:
    """Return True if only known arrays and leaves refer to the blocks and their memory's owner."""
    owner = id(_owner_of(block_of(x)))
    parts = sum([_parts_of(leaf, owner) for leaf in list(entered(x).source.leaves)])
    return _references_to_owner(x) == _expected(beside(x), parts)


def is_perhaps_out(source: Materialization) -> bool:
    """Return True if the program may have this rank's block over a materialization or a view of it.

    Either the block was exposed, or a reference besides the arrays exists (``b = x.block``).
    """
    arrays = live_arrays(source)
    if source.is_out or any(x._storage.block is not None for x in arrays):
        return source.is_out  # blocks of shared arrays are returned read-only
    for x in arrays:
        x.block  # noqa: B018 (runs the operations that read it or compute it)
    seen: set[int] = set()
    for x in arrays:
        owner = id(_owner_of(block_of(x)))
        if owner not in seen:
            seen.add(owner)
            if not (_is_known(x) if _can_be_known(x) else _are_held_once(beside(x))):
                return True
    return False


def beside(x: Base) -> list[Any]:
    """Return all arrays, `x` included, whose blocks' memory has the same owner as that of `x`."""
    owner = _owner_of(block_of(x))
    return [y for y in live_arrays(entered(x).source) if _owner_of(block_of(y)) is owner]


def _can_be_known(x: Base) -> bool:
    owner: Any = _owner_of(block_of(x))
    return type(owner) is np.ndarray and owner.base is None and owner.flags.owndata


def _parts_of(leaf: Leaf, owner: int) -> int:
    """Count the arrays of a leaf that are views of a given owner of memory."""
    block = leaf.block
    arrays = [x for _, x in block] if isinstance(block, Pieces) else [block]
    return sum([id(x.base) == owner for x in arrays])


def _expected(arrays: list[Any], count: int) -> int:
    """Return the expected references of known arrays to the owner of their memory.

    `count` is the number of references from leaves. The result is -1 if a block has other
    references than from known arrays.
    """
    uses = _uses(arrays)
    for x in {id(block_of(x)): x for x in arrays}.values():
        if _is_owner(x):
            count += uses[id(block_of(x))]
        elif _references(x) != uses[id(block_of(x))]:
            return -1
        else:
            count += 1
    return count


def _are_held_once(arrays: list[Any]) -> bool:
    """Return True if only known arrays refer to their blocks; the owner is not checked."""
    uses = _uses(arrays)
    return all(_references(x) == uses[id(block_of(x))] for x in arrays)


def _uses(arrays: list[Any]) -> Counter[int]:
    """Count the references of known arrays to each block; several arrays may share a block."""
    found: Counter[int] = Counter()
    for x in arrays:
        found[id(block_of(x))] += 1 + (natural_of(x) is block_of(x))
    return found


def _is_owner(x: Base) -> bool:
    return block_of(x).base is None


# The functions below subtract the references that they and their callees add.


def _references_to_owner(x: Base) -> int:
    return _references(x) if _is_owner(x) else getrefcount(block_of(x).base) - _OF_BASE


def _references(x: Base) -> int:
    return getrefcount(block_of(x)) - _OF_BLOCK


def _own_counts() -> tuple[int, int]:
    """Return the overhead of a reference count: for a block, and for the owner of its memory.

    In free-threaded Python reference counts mean nothing. The overhead is then a number that no
    block reaches.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return 1 << 20, 1 << 20
    x: Any = object.__new__(Base)
    x.block = np.empty((2, 2))[:1]
    return getrefcount(block_of(x)) - 1, getrefcount(block_of(x).base) - 1


_OF_BLOCK, _OF_BASE = _own_counts()
