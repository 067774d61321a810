"""Who may write to a piece of memory: the arrays of this library that are views of it, or others.

Arrays and their large views are entered here when they are made. How often Python refers to the
memory then tells whether somebody else does: a view that was made otherwise, a NumPy array, a
buffer or an address that was handed out.
"""

import sys
from collections.abc import Callable
from sys import getrefcount
from typing import Any
from weakref import WeakSet, ref

import numpy as np

from distarray.array import temporaries
from distarray.array.base import Base
from distarray.array.pieces import Pieces
from distarray.typing import Array

__all__ = [
    "Leaf",
    "Memory",
    "block_of",
    "copied",
    "held",
    "hold",
    "is_in_order",
    "leaf_of",
    "memory_of",
    "share",
]

_slot: Any = Base.__dict__["block"]
#: An array's block as it is kept, which may be a `Leaf` or an operation, and keeping one.
held: Callable[[Any], Any] = _slot.__get__
hold: Callable[[Any, Any], None] = _slot.__set__

#: The memory that some arrays share, by the address of what owns it.
_memories: dict[int, "Memory"] = {}


class Memory:
    """Memory that operations that are put off have yet to read.

    Attributes
    ----------
    nbytes : int
        Its size.
    members : dict
        Weak references to the arrays whose blocks are, or were, views of it, by address.
    leaves : WeakSet of Leaf
        Parts of their blocks that operations read, besides the blocks.
    """

    __slots__ = ("__weakref__", "_owner", "leaves", "members", "nbytes")

    def __init__(self, owner: Array) -> None:
        self.nbytes = owner.nbytes
        self.members: dict[int, ref[Any]] = {}
        self.leaves: WeakSet[Leaf] = WeakSet()
        self._owner = id(owner)

    def add(self, x: Base) -> None:
        """Enter an array."""
        if id(x) not in self.members:
            self.members[id(x)] = ref(x, _forgetting(self, id(x)))

    def arrays(self) -> list[Any]:
        """The members that are views of it now."""
        found = [known() for known in list(self.members.values())]
        return [x for x in found if x is not None and id(_owner_of(block_of(x))) == self._owner]

    def forget(self, key: int) -> None:
        """Strike a member off, and the memory with the last one."""
        self.members.pop(key, None)
        if not self.members and _memories.get(self._owner) is self:
            del _memories[self._owner]


def _forgetting(memory: Memory, key: int) -> Callable[[Any], None]:
    def forget(known: object) -> None:
        if memory.members.get(key) is known:
            memory.forget(key)

    return forget


class Leaf:
    """A block that operations have yet to read.

    Attributes
    ----------
    block : array or Pieces
        The block, or what a rank has of an array in another layout.
    dtype : dtype
        Its own.
    memory : Memory
        Where it lies.
    """

    __slots__ = ("__weakref__", "block", "dtype", "memory")

    def __init__(self, block: Array | Pieces, memory: Memory) -> None:
        self.block = block
        self.dtype = block[0][1].dtype if isinstance(block, Pieces) else block.dtype
        self.memory = memory


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


def share(x: Base, view: Base) -> None:
    """Enter a view that was made of an array, if it is large."""
    if view.layout.size < temporaries.LARGE:
        return
    owner = _owner_of(block_of(x))
    if type(owner) is np.ndarray and _owner_of(block_of(view)) is owner:
        memory = _entered(owner)
        memory.add(x)
        memory.add(view)


def _entered(owner: Array) -> Memory:
    memory = _memories.get(id(owner))
    if memory is None:
        memory = _memories[id(owner)] = Memory(owner)
    return memory


def leaf_of(x: Base, part: Array | Pieces) -> Leaf:
    """What an operation reads of an array: a part of its block, or what other ranks have sent."""
    memory = _entered(_owner_of(block_of(x)))
    memory.add(x)
    leaf = Leaf(part, memory)
    memory.leaves.add(leaf)
    return leaf


def copied(part: Array) -> Leaf:
    """A leaf that nobody else can write to."""
    own = part.copy()
    return Leaf(own, Memory(own))


def memory_of(x: Base) -> Memory | None:
    """The memory of an array's block, if nobody refers to it but arrays that are known."""
    if not _can_be_known(x):
        return None
    memory = _entered(_owner_of(block_of(x)))
    memory.add(x)
    arrays = memory.arrays()
    parts = sum([_parts_of(leaf, id(_owner_of(block_of(x)))) for leaf in list(memory.leaves)])
    return memory if _references_to_owner(x) == _expected(arrays, parts) else None


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
    for x in arrays:
        twice = getattr(x, "_natural", None) is block_of(x)  # the array itself has it two times
        count += 1
        if _is_owner(x):
            count += twice
        elif _references(x) != 1 + twice:
            return -1
    return count


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
    hold(x, np.empty((2, 2))[:1])
    return getrefcount(block_of(x)) - 1, getrefcount(block_of(x).base) - 1


_OF_BLOCK, _OF_BASE = _own_counts()

temporaries.share = share
