"""The arrays that wait for operations, and running what they wait for."""

import os
from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any
from weakref import ref

import numpy as np

from distarray.array.base import Base
from distarray.array.blocks_out import live_arrays
from distarray.array.core import DistArray
from distarray.array.leaves import Leaf, held, hold
from distarray.array.memory import Materialization
from distarray.array.operations import Operation
from distarray.array.pieces import Pieces
from distarray.array.programs import Program
from distarray.typing import Array

__all__ = ["compute", "enter", "late", "lock", "readers", "release", "restore"]

#: Bytes of operands that nobody but operations that are put off refers to any more.
MOST_KEPT = 1 << 28
lock = RLock()
#: The arrays that wait for operations, by their addresses.
_waiting: dict[int, "ref[Any]"] = {}


def _in_forked_child() -> None:
    global lock
    lock = RLock()


os.register_at_fork(after_in_child=_in_forked_child)


def enter(x: Base) -> None:
    """Enter an array that waits for an operation."""
    _waiting[id(x)] = ref(x, _forgetting(id(x)))


def _forgetting(key: int) -> Callable[[Any], None]:
    """What is called when an array that waits is dropped."""

    def forget(known: object) -> None:
        if _waiting.get(key) is known:
            del _waiting[key]

    return forget


def restore(array: Base, block: Array | Pieces) -> None:
    """Give an array its block, and its own class."""
    _waiting.pop(id(array), None)
    hold(array, block)
    array.__class__ = DistArray


def _operations() -> list[tuple[Any, Operation]]:
    """The arrays that wait for operations, and what they wait for."""
    arrays = [known() for known in list(_waiting.values())]
    pairs = [(x, held(x)) for x in arrays if x is not None]
    return [(x, kept) for x, kept in pairs if type(kept) is Operation]


def readers(memory: Materialization) -> list[Any]:
    """The arrays that wait for operations that read some memory."""
    return [x for x, operation in _operations() if memory in operation.reads]


def release(memory: Materialization) -> None:
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
