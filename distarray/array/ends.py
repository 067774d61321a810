"""Sinks of deferred expressions: assignments to elements, and reductions.

Neither of them allocates a block for the result of the expression.
"""

from math import prod
from typing import Any

import numpy as np

from distarray.array import movement, stale_copies, temporaries, waiting
from distarray.array.base import Base
from distarray.array.floaterrors import error_state
from distarray.array.keys import basic_entries, names_element, plain_key
from distarray.array.ladder import usual
from distarray.array.leaves import Leaf, block_of, held, is_in_order
from distarray.array.memory import is_shared
from distarray.array.operations import Operation
from distarray.array.programs import Program
from distarray.layout import Box, Entries, view_layout
from distarray.plan import Exchange, plan_exchange
from distarray.typing import Array, DTypeLike, Key

__all__ = ["assigned", "fold", "is_element", "written"]

#: An expression of at most cost `_COST` is recomputed for each of up to `_FOLDS` reductions. After
#: that, or at a higher cost, its result is stored.
_COST, _FOLDS = 6, 3

# -- assignments ---------------------------------------------------------------------------------


def assigned(x: Base, key: Key, count: int, value: Base) -> bool:
    """Compute the deferred operations of `value` directly into elements of `x`, if possible.

    The array `value` must be a temporary, since its block is never allocated. `count` is its
    reference count, as the method sees it. The result is False if the caller has yet to assign.
    """
    entries = None if is_shared(x) else basic_entries(plain_key(key), x.layout.shape)
    if entries is None or error_state() is not usual[0] or is_element(x, key, entries):
        return False
    view = x.sliced(entries)
    if value.layout is view.layout and _is_same(block_of(view), block_of(value)):
        return True  # the last step of `x[key] += y`
    return 0 < count <= temporaries.ASSIGNED and written(view, value)


def _is_same(a: Array, b: Array) -> bool:
    """Return True if two blocks have the same elements in the same memory."""
    if type(a) is not np.ndarray or type(b) is not np.ndarray or a.base is not b.base:
        return False
    return bool(
        a.ctypes.data == b.ctypes.data
        and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
    )


def written(view: Base, value: Base) -> bool:
    """Compute the deferred operations of an array into the block of a view, if possible.

    Elements that other ranks own are sent, as they would be from a computed block. The result is
    False if the caller has yet to assign.
    """
    block: Any = block_of(view)
    end: Any = held(value)
    if not _is_pending(end) or not _takes(view, block, value):
        return False
    if type(held(view)) is Leaf:
        waiting.compute([x for x in waiting.readers(held(view).memory) if x is not value])
    plan = plan_exchange(value.layout, view.layout, value.mesh.coords)
    with waiting.lock:
        if not _is_pending(end):
            return False
        program = Program([end])
        kept, into = _kept(plan, end, block)
        found = program.following(end, kept, into)
        if found is None:
            return False
        here, late = found
        distances = [tiles.distance(into) for tiles in here]
        if -1 in distances:
            return False
    stale_copies.count_write(view)
    whole = np.empty(end.shape if plan.sends else (0,), end.dtype)  # few of its pages are touched
    if plan.sends:
        away = [tuple([(k.start, k.stop) for k in part.slices]) for part in plan.sends]
        program.run({program.step_of(end): whole}, away)
    program.follow(here, late, max([0, *distances]))
    movement.assign_rest(block, view.layout, whole, value.layout, value.mesh)
    program.warn()
    return True


def _is_pending(operation: object) -> bool:
    return type(operation) is Operation and operation.block is None


def _takes(view: Base, block: Array, value: Base) -> bool:
    """Return True if an array's elements can be assigned to a view unchanged or by a safe cast."""
    if type(block) is not np.ndarray or not (block.flags.writeable and is_in_order(block)):
        return False
    if value.mesh is not view.mesh or value.layout.shape != view.layout.shape or not block.size:
        return False
    if value.layout is not view.layout:  # where sending is forbidden, write nothing
        return bool(value.dtype == block.dtype) and not value.mesh.group.guarded
    return np.can_cast(value.dtype, block.dtype)


def _kept(plan: Exchange, end: Operation, block: Array) -> tuple[Box, Array]:
    """Return the box of a result that stays on this rank, and the section of a block for it."""
    if not plan.kept:
        return tuple([(0, 0)] * len(end.shape)), block[(slice(0, 0),) * block.ndim]
    of, into = plan.kept
    return tuple([(k.start, k.stop) for k in of]), block[into]


def is_element(x: Base, key: Key, entries: Entries) -> bool:
    """Return True if a key with these entries selects one element."""
    return names_element(key, view_layout(x.layout, entries).shape)


# -- reductions ----------------------------------------------------------------------------------

#: Reductions that may process tiles in any order.
_UNORDERED = frozenset({np.maximum, np.minimum, np.logical_and, np.logical_or})


def fold(x: Base, ufunc: np.ufunc, dtype: DTypeLike) -> Any:
    """Reduce all elements of a block whose operations are deferred.

    The block is stored in the same pass, unless recomputing its elements is cheap. The result is
    None if the block must be computed first, since a reduction of tiles would not be bitwise equal.
    """
    operation = held(x)
    if type(operation) is not Operation or not _folds_alike(operation, ufunc, dtype):
        return None
    with waiting.lock:
        program = Program([operation])
        if not prod(operation.shape):
            return None
        operation.folds += 1
        outs = {}
        if operation.cost > _COST or operation.folds > _FOLDS:
            outs[program.step_of(operation)] = np.empty(operation.shape, operation.dtype)
        tiles = program.tiles(outs)
    if tiles is None or (ufunc is np.add and not tiles.in_line):
        return None
    value = tiles.summed() if ufunc is np.add else tiles.folded(ufunc)
    for block in outs.values():
        with waiting.lock:
            waiting.restore(x, block)
    program.note(tiles)
    program.warn()
    return value


def _folds_alike(operation: Operation, ufunc: np.ufunc, dtype: DTypeLike) -> bool:
    """Return True if a reduction of tiles is bitwise equal to NumPy's."""
    kind = operation.dtype
    if operation.block is not None or (dtype is not None and np.dtype(dtype) != kind):
        return False
    return ufunc in _UNORDERED or (ufunc is np.add and kind.char in "fdg")
