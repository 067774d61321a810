"""What operations that are put off read, and who else may write to it.

Arrays and their views are known by their memory. How often Python refers to a buffer then tells
whether somebody else does: a view that was made otherwise, a NumPy array, a buffer or an address
that was handed out.
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
    """A block that operations have yet to read.

    Attributes
    ----------
    block : array or Pieces
        The block, or what a rank has of an array in another layout.
    dtype : dtype
        Its own.
    memory : Materialization
        Where it lies.
    """

    __slots__ = ("__weakref__", "block", "dtype", "memory")

    def __init__(self, block: Array | Pieces, memory: Materialization) -> None:
        self.block = block
        self.dtype = block[0][1].dtype if isinstance(block, Pieces) else block.dtype
        self.memory = memory
        own = [x for _, x in block] if isinstance(block, Pieces) else [block]
        memory.nbytes = max([memory.nbytes, *[_owner_of(x).nbytes for x in own]])


def held(x: Base) -> Any:
    """The block of an array, or what is in its place: a `Leaf`, or an operation."""
    while (block := own_block(x)) is None:
        late, stored = x._storage.late, x._storage.block
        if late is not None or stored is not None:
            return stored if late is None else late.kept
    return block  # which another thread may have computed in between


def block_of(x: Base) -> Any:
    """The block of an array, which operations may wait for; nothing is run."""
    kept = held(x)
    return kept.block if type(kept) is Leaf else kept


def is_in_order(block: Array) -> bool:
    """Whether results for a block are in C order: its dimensions are, with gaps perhaps."""
    steps = block.strides
    return all(steps) and all(a >= b for a, b in zip(steps, (*steps[1:], 1), strict=True))


def _owner_of(block: Array) -> Array:
    """The array that owns the memory of a block."""
    base = getattr(block, "base", None)
    return block if base is None else base


def leaf_of(x: Base, part: Array | Pieces) -> Leaf:
    """What an operation reads of an array: a part of its block, or what other ranks have sent."""
    source = entered(x).source
    leaf = Leaf(part, source)
    if not source.leaves:
        source.leaves = WeakSet()
    source.leaves.add(leaf)
    return leaf


def copied(part: Array) -> Leaf:
    """A leaf that nobody else can write to."""
    return Leaf(part.copy(), Materialization(Memory()))


def memory_of(x: Base) -> Materialization | None:
    """The memory of an array's block, if nobody refers to it but arrays that are known."""
    return entered(x).source if _can_be_known(x) and _is_known(x) else None


def _is_known(x: Base) -> bool:
    """Whether known arrays alone refer to what owns an array's memory, and to their blocks."""
    owner = id(_owner_of(block_of(x)))
    parts = sum([_parts_of(leaf, owner) for leaf in list(entered(x).source.leaves)])
    return _references_to_owner(x) == _expected(beside(x), parts)


def is_perhaps_out(source: Materialization) -> bool:
    """Whether the program may have this rank's block over a materialization, or a part of it.

    It was handed out, or something besides the arrays refers to it (``b = x.block``).
    """
    arrays = live_arrays(source)
    if source.is_out or any(x._storage.block is not None for x in arrays):
        return source.is_out  # what shared arrays give cannot be written to
    for x in arrays:
        x.block  # noqa: B018 (what waits for it has been done then)
    seen: set[int] = set()
    for x in arrays:
        owner = id(_owner_of(block_of(x)))
        if owner not in seen:
            seen.add(owner)
            if not (_is_known(x) if _can_be_known(x) else _are_held_once(beside(x))):
                return True
    return False


def beside(x: Base) -> list[Any]:
    """The arrays whose blocks are views of what an array's block is a view of, itself included."""
    owner = _owner_of(block_of(x))
    return [y for y in live_arrays(entered(x).source) if _owner_of(block_of(y)) is owner]


def _can_be_known(x: Base) -> bool:
    owner: Any = _owner_of(block_of(x))
    return type(owner) is np.ndarray and owner.base is None and owner.flags.owndata


def _parts_of(leaf: Leaf, owner: int) -> int:
    """How many arrays of a leaf are views of what owns some memory."""
    block = leaf.block
    arrays = [x for _, x in block] if isinstance(block, Pieces) else [block]
    return sum([id(x.base) == owner for x in arrays])


def _expected(arrays: list[Any], count: int) -> int:
    """How often arrays refer to what owns their memory; -1 if one's block is known to others.

    `count` is how often the parts do that operations read.
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
    """Whether arrays alone refer to their blocks; of what owns these that is not known."""
    uses = _uses(arrays)
    return all(_references(x) == uses[id(block_of(x))] for x in arrays)


def _uses(arrays: list[Any]) -> Counter[int]:
    """How often arrays refer to each block, of which several may have one."""
    found: Counter[int] = Counter()
    for x in arrays:
        found[id(block_of(x))] += 1 + (natural_of(x) is block_of(x))
    return found


def _is_owner(x: Base) -> bool:
    return block_of(x).base is None


# Each of these counts is less by what the function itself, and those that it calls, add.


def _references_to_owner(x: Base) -> int:
    return _references(x) if _is_owner(x) else getrefcount(block_of(x).base) - _OF_BASE


def _references(x: Base) -> int:
    return getrefcount(block_of(x)) - _OF_BLOCK


def _own_counts() -> tuple[int, int]:
    """What is counted besides the array for a block, and for what it is a view of.

    Without the interpreter's lock counts say nothing: no block has these.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return 1 << 20, 1 << 20
    x: Any = object.__new__(Base)
    x.block = np.empty((2, 2))[:1]
    return getrefcount(block_of(x)) - 1, getrefcount(block_of(x).base) - 1


_OF_BLOCK, _OF_BASE = _own_counts()
