"""The arrays that wait for operations, and running what they wait for.

The block of an array that waits is not in its slot: its storage has a :class:`Late` in its place.
"""

import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from threading import RLock
from typing import Any
from weakref import ref

import numpy as np

from distarray.array.base import Base, natural_of, own_block
from distarray.array.blocks_out import live_arrays
from distarray.array.leaves import Leaf, held
from distarray.array.memory import Materialization, entered
from distarray.array.operations import Operation
from distarray.array.pieces import Pieces
from distarray.array.programs import Program
from distarray.typing import Array

__all__ = ["Late", "compute", "late", "lock", "readers", "restore", "wait_for"]

#: Bytes of operands that nobody but operations that are put off refers to any more.
MOST_KEPT = 1 << 28
lock = RLock()
_new = object.__new__
#: The arrays that wait for operations, by their addresses.
_waiting: dict[int, "ref[Any]"] = {}


def _in_forked_child() -> None:
    global lock
    lock = RLock()


os.register_at_fork(after_in_child=_in_forked_child)


class Late:
    """The state of an array whose block is not computed yet, or has yet to be read by operations.

    Attributes
    ----------
    kept : Leaf or Operation
        The block, which operations have yet to read; or the operation that gives it.
    """

    __slots__ = ("kept",)

    def __init__(self, kept: Leaf | Operation) -> None:
        self.kept = kept

    def block_of(self, x: Base) -> Any:
        """The block of the array, after the operations that it waits for, or that wait for it."""
        while True:
            with lock:
                own = own_block(x)
                if own is not None:
                    return own
                kept = held(x)
                arrays = [x] if kept.block is None else []
                if type(kept) is Leaf:
                    arrays = readers(kept.memory)
                if not arrays:
                    if type(kept) is Leaf:
                        _release(kept.memory)
                    restore(x, kept.block)
                    return kept.block
            compute(arrays)

    def bare(self, x: Base) -> Any:
        """An array of the block as it is, of which views can be made; None if there is none yet."""
        leaf = self.kept
        if type(leaf) is not Leaf:
            return None
        found = _new(type(x))
        found.block, found.layout, found.mesh = leaf.block, x.layout, x.mesh
        if natural_of(x) is leaf.block:
            found._natural = leaf.block
        return found

    def share(self, x: Base, view: Base) -> None:
        """Let a view of the array wait as well, if operations can read its block."""
        leaf, block = self.kept, view.block
        with lock:
            if held(x) is not leaf or block.base is None or not block.size:
                return
            if _can_wait(block, leaf.block):
                wait_for(view, Leaf(block, leaf.memory))
                return
        x.block  # noqa: B018 (what reads it has run then)


def _can_wait(block: Any, whole: Array) -> bool:
    """Whether operations can have a block of a view to read, and give results in C order for it."""
    if block.dtype != whole.dtype:
        return False
    pairs = zip(block.strides, block.shape, strict=True)
    steps = [abs(step) for step, extent in pairs if extent > 1]
    return all(steps) and all(a >= b for a, b in pairwise(steps))


def wait_for(x: Base, kept: Leaf | Operation) -> None:
    """Let an array wait for an operation, or for those that have yet to read its block."""
    late = Late(kept)
    entered(x, late).late = late
    if type(kept) is Operation:
        _waiting[id(x)] = ref(x, _forgetting(id(x)))
    elif own_block(x) is not None:
        del x.block


def _forgetting(key: int) -> Callable[[Any], None]:
    """What is called when an array that waits is dropped."""

    def forget(known: object) -> None:
        if _waiting.get(key) is known:
            del _waiting[key]

    return forget


def restore(x: Base, block: Array | Pieces) -> None:
    """Give an array its block."""
    _waiting.pop(id(x), None)
    x.block = block
    x._storage.late = None


def _operations() -> list[tuple[Any, Operation]]:
    """The arrays that wait for operations, and what they wait for."""
    arrays = [known() for known in list(_waiting.values())]
    pairs = [(x, held(x)) for x in arrays if x is not None]
    return [(x, kept) for x, kept in pairs if type(kept) is Operation]


def readers(memory: Materialization) -> list[Any]:
    """The arrays that wait for operations that read some memory."""
    return [x for x, operation in _operations() if memory in operation.reads]


def _release(memory: Materialization) -> None:
    """Let the arrays of some memory have their blocks: no operation has to read it any more."""
    for x in live_arrays(memory):
        kept = held(x)
        if type(kept) is Leaf and kept.memory is memory:
            restore(x, kept.block)


def late() -> list[Any]:
    """The arrays whose operations keep much memory that nobody else refers to any more.

    It is looked at now and then.
    """
    if len(_waiting) % 8:
        return []
    every = _operations()
    kept = {
        memory for _, operation in every for memory in operation.reads if not live_arrays(memory)
    }
    if sum([memory.nbytes for memory in kept]) <= MOST_KEPT:
        return []
    return [x for x, operation in every if not kept.isdisjoint(operation.reads)]


def compute(arrays: Sequence[Any]) -> None:
    """Run the operations that arrays wait for, and others that read the same memory."""
    while _compute_some(arrays):
        pass


def _compute_some(arrays: Sequence[Any]) -> bool:
    """Run those whose blocks have one shape; False if there are none left."""
    with lock:
        waiting = _together(arrays)
        if not waiting:
            return False
        ends = [end for _, end in waiting if end.block is None]
        program = Program(ends)
        outs = {program.step_of(x): np.empty(x.shape, x.dtype) for x in ends}
    if ends:
        program.run(outs)
    with lock:
        for x in ends:
            if x.block is None:  # else another thread was faster
                x.done(outs[program.step_of(x)])
        for array, end in waiting:
            if held(array) is end:
                restore(array, end.block)
    program.warn()  # which may raise
    return True


def _together(arrays: Sequence[Any]) -> list[tuple[Any, Operation]]:
    """Arrays with what they wait for, and the others that wait for reading the same memory.

    Only those whose blocks have the shape of the first.
    """
    wanted = {id(x) for x in arrays}
    every = _operations()
    shape = next((end.shape for x, end in every if id(x) in wanted), None)
    every = [(x, end) for x, end in every if end.shape == shape]
    reads: set[Materialization] = set()
    for x, end in every:
        if id(x) in wanted:
            reads |= end.reads
    return [(x, end) for x, end in every if id(x) in wanted or not reads.isdisjoint(end.reads)]
