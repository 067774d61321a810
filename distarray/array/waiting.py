"""Arrays that wait for deferred operations, and execution of these operations.

The block of a waiting array is not in its slot: the array's storage has a :class:`Late`
placeholder.
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

#: Maximum bytes of memory that only deferred operations keep alive. Above it these operations run.
MOST_KEPT = 1 << 28
lock = RLock()
_new = object.__new__
#: Arrays that wait for operations, as weak references, by their `id`.
_waiting: dict[int, "ref[Any]"] = {}


def _in_forked_child() -> None:
    global lock
    lock = RLock()


os.register_at_fork(after_in_child=_in_forked_child)


class Late:
    """Placeholder for a block that is not computed yet, or that operations have yet to read.

    Attributes
    ----------
    kept : Leaf or Operation
        A leaf with the block that operations have yet to read; or the operation that computes the
        block.
    """

    __slots__ = ("kept",)

    def __init__(self, kept: Leaf | Operation) -> None:
        self.kept = kept

    def block_of(self, x: Base) -> Any:
        """Run the operations that compute or read the block of the array; return the block."""
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
        """Return an array over the current block, for making views; None if there is no block."""
        leaf = self.kept
        if type(leaf) is not Leaf:
            return None
        found = _new(type(x))
        found.block, found.layout, found.mesh = leaf.block, x.layout, x.mesh
        if natural_of(x) is leaf.block:
            found._natural = leaf.block
        return found

    def share(self, x: Base, view: Base) -> None:
        """Let a view of the array wait as well, if operations can read the view's block."""
        leaf, block = self.kept, view.block
        with lock:
            if held(x) is not leaf or block.base is None or not block.size:
                return
            if _can_wait(block, leaf.block):
                wait_for(view, Leaf(block, leaf.memory))
                return
        x.block  # noqa: B018 (runs the operations that read it)


def _can_wait(block: Any, whole: Array) -> bool:
    """Return True if operations can read the block of a view, with results in C order."""
    if block.dtype != whole.dtype:
        return False
    pairs = zip(block.strides, block.shape, strict=True)
    steps = [abs(step) for step, extent in pairs if extent > 1]
    return all(steps) and all(a >= b for a, b in pairwise(steps))


def wait_for(x: Base, kept: Leaf | Operation) -> None:
    """Let an array wait for an operation, or for the operations that have yet to read its block."""
    late = Late(kept)
    entered(x, late).late = late
    if type(kept) is Operation:
        _waiting[id(x)] = ref(x, _forgetting(id(x)))
    elif own_block(x) is not None:
        del x.block


def _forgetting(key: int) -> Callable[[Any], None]:
    """Return the callback that runs when a waiting array is garbage-collected."""

    def forget(known: object) -> None:
        if _waiting.get(key) is known:
            del _waiting[key]

    return forget


def restore(x: Base, block: Array | Pieces) -> None:
    """Put the block of an array back into its slot."""
    _waiting.pop(id(x), None)
    x.block = block
    x._storage.late = None


def _operations() -> list[tuple[Any, Operation]]:
    """Return the arrays that wait for operations, with these operations."""
    arrays = [known() for known in list(_waiting.values())]
    pairs = [(x, held(x)) for x in arrays if x is not None]
    return [(x, kept) for x, kept in pairs if type(kept) is Operation]


def readers(memory: Materialization) -> list[Any]:
    """Return the arrays that wait for operations that read a memory."""
    return [x for x, operation in _operations() if memory in operation.reads]


def _release(memory: Materialization) -> None:
    """Give the arrays over a memory their blocks back: no operation has to read it any more."""
    for x in live_arrays(memory):
        kept = held(x)
        if type(kept) is Leaf and kept.memory is memory:
            restore(x, kept.block)


def late() -> list[Any]:
    """Return the arrays whose operations keep much memory alive to which nothing else refers.

    The check runs only at some calls: when the number of waiting arrays is a multiple of 8.
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
    """Run the operations of some arrays, and other operations that read the same memory."""
    while _compute_some(arrays):
        pass


def _compute_some(arrays: Sequence[Any]) -> bool:
    """Run the operations whose blocks have one shape; return False if none are left."""
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
            if x.block is None:  # otherwise another thread was faster
                x.done(outs[program.step_of(x)])
        for array, end in waiting:
            if held(array) is end:
                restore(array, end.block)
    program.warn()  # may raise
    return True


def _together(arrays: Sequence[Any]) -> list[tuple[Any, Operation]]:
    """Return arrays with their operations, and other arrays whose operations read the same memory.

    Only operations whose blocks have the shape of the first one are included.
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
