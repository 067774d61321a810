"""Operations put off, and run together when somebody asks for a block.

An elementwise operation on large blocks gives an array of the class :class:`Deferred`, which knows
its operation instead of its block. Its operands become `Deferred` as well: they know their block,
but who asks for it may write to it, so that the operations that have yet to read it run first. Then
an array is of its own class again. Whoever asks, by ``x.block``, gets the block; nothing else in
the library has to know.

An operand's memory may be reached by other ways than the arrays that are known here: by views, by
NumPy's arrays, buffers and addresses that were handed out. Its reference count tells. Where
somebody else refers to the memory, nothing is put off.

What runs is one :class:`~distarray.array.programs.Program`, on tiles that stay in cache
(:mod:`distarray.array.tiled`).
"""

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from sys import getrefcount
from threading import RLock
from typing import Any
from weakref import ref

import numpy as np

from distarray.array import temporaries
from distarray.array.base import Base
from distarray.array.core import DistArray
from distarray.array.floaterrors import error_state
from distarray.array.ladder import passed, usual
from distarray.array.operations import (
    KINDS,
    SCALARS,
    Leaf,
    Line,
    Operation,
    acting,
    cast_to,
    result_type,
)
from distarray.array.programs import Program
from distarray.comm.user_lines import program_frame
from distarray.config import in_force
from distarray.typing import Array

__all__ = ["Deferred"]

#: Bytes of a block from which on operations are put off: as much as does not stay in cache.
LEAST = 1 << 20
#: Bytes of the widest elements of which operations are put off.
_WIDEST = 16
#: Operations that one array may wait for.
MOST = 48
#: Bytes of operands that nobody but operations that are put off refers to any more.
MOST_KEPT = 1 << 28
#: A result of at most this cost is computed anew for each fold, so many times, and not kept.
_COST, _FOLDS = 6, 3

_slot: Any = Base.__dict__["block"]
_held = _slot.__get__
_hold = _slot.__set__
_lock = RLock()
#: The arrays that wait for operations, by their addresses.
_waiting: dict[int, "ref[Deferred]"] = {}


def _in_forked_child() -> None:
    global _lock
    _lock = RLock()


os.register_at_fork(after_in_child=_in_forked_child)


class Deferred(DistArray):
    """An array that waits for operations, or whose block operations wait for."""

    __slots__ = ()

    waits = True

    @property
    def block(self) -> Any:
        """This rank's block, after the operations that it waits for, or that wait for it."""
        with _lock:
            held = _held(self)
            waiting = _readers(held) if type(held) is Leaf else [self]
        if waiting:
            _compute(waiting)
        with _lock:
            held = _held(self)
            if type(held) is Leaf or type(held) is Operation:
                held = held.block
                _restore(self, held)
        return held

    @block.setter
    def block(self, block: Any) -> None:
        with _lock:
            _restore(self, block)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        return _held(self).dtype  # type: ignore[no-any-return]

    @dtype.setter
    def dtype(self, dtype: Any) -> None:
        self.block  # noqa: B018 (of the class DistArray from here on)
        self.dtype = dtype

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the global array."""
        return self.layout.size * self.itemsize


def _replacing(ufunc: np.ufunc, plain: Callable[..., Any]) -> Callable[..., Any]:
    """An operator in place, of an array that waits: it waits for one operation more then."""

    def operate(self: Any, other: Any) -> Any:
        held = _held(self)
        if type(held) is Operation and held.block is None:
            later = put_off(ufunc, (self, other))
            if later is not None and later.dtype == held.dtype:
                passed.number += 1
                with _lock:
                    _hold(self, _held(later))
                return self
        return plain(self, other)

    return operate


for _name, _ufunc in (
    ("__iadd__", np.add),
    ("__isub__", np.subtract),
    ("__imul__", np.multiply),
    ("__itruediv__", np.true_divide),
    ("__ifloordiv__", np.floor_divide),
    ("__imod__", np.remainder),
    ("__ilshift__", np.left_shift),
    ("__irshift__", np.right_shift),
    ("__iand__", np.bitwise_and),
    ("__ior__", np.bitwise_or),
    ("__ixor__", np.bitwise_xor),
):
    setattr(Deferred, _name, _replacing(_ufunc, getattr(DistArray, _name)))


def _restore(array: Any, block: Any) -> None:
    """Give an array its block, and its own class."""
    _waiting.pop(id(array), None)
    _hold(array, block)
    array.__class__ = DistArray


# -- putting off ---------------------------------------------------------------------------------


def put_off(function: Any, inputs: Sequence[Any]) -> Any:
    """The array of an operation that is put off; None if it has to be done at once."""
    act = acting(function)
    if act is None or len(inputs) != act.nin or error_state() is not usual[0]:
        return None
    model = _model(inputs)
    if model is None or _warnings_are_watched() or in_force().fuse == "off":
        return None
    with _lock:
        operands = _operands(inputs)
        dtype = None if operands is None else result_type(act, operands)
        if operands is None or dtype is None:
            return None
        frame = program_frame(sys._getframe(1))
        line = Line(frame.f_code.co_filename, frame.f_lineno, frame.f_globals)
        result: Any = object.__new__(Deferred)
        result.layout, result.mesh = model.layout, model.mesh
        _hold(result, Operation(act, operands, dtype, line))
        _waiting[id(result)] = ref(result, _forget(id(result)))
        late = _kept_for_nothing() if len(_waiting) % 8 == 0 else []
    for x in late:
        x.block  # noqa: B018 (its operations run)
    return result


def _forget(key: int) -> Callable[[Any], None]:
    """What is called when an array that waits is dropped."""

    def forget(known: Any) -> None:
        if _waiting.get(key) is known:
            del _waiting[key]

    return forget


def _model(inputs: Sequence[Any]) -> Any:
    """One of the operands, which all lie alike on hosts; None if they do not."""
    model: Any = None
    for x in inputs:
        if isinstance(x, Base):
            if model is None:
                model = x
            elif x.layout is not model.layout or x.mesh is not model.mesh:
                return None
        elif type(x) not in SCALARS:
            return None
    return model if model is not None and _lies_well(model) else None


def _lies_well(model: Any) -> bool:
    """Whether an array may be large, has dimensions, and every element in one place of a host."""
    layout = model.layout
    if layout.size * _WIDEST < LEAST or model.mesh.device_type != "cpu":
        return False
    return bool(layout.shape) and not layout.partials and not layout.ats


def _operands(inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """What an operation reads; None if something may be written to unseen, or is not large."""
    new = {id(x): x for x in inputs if isinstance(x, Base) and not x.waits}
    if not all(map(_may_wait, new.values())):
        return None
    for x in new.values():
        _hold(x, Leaf(_held(x), x))
        x.__class__ = Deferred
    found = []
    for x in inputs:
        held = _held(x) if isinstance(x, Base) else x
        if type(held) is Operation and held.size >= MOST:
            held = Leaf(x.block, x)
            _hold(x, held)
            x.__class__ = Deferred
        found.append(held)
    return tuple(found)


def _may_wait(x: Base) -> bool:
    """Whether the block of an array can be read later: it is large, and nobody else has it."""
    if type(_held(x)) is not np.ndarray:
        return False
    known = getattr(x, "_natural", None) is _held(x)  # which the array itself refers to twice
    if _references(x) != _OWN + known:
        return False
    block: Array = _held(x)
    flags, base = block.flags, block.base
    if block.nbytes < LEAST or block.dtype.kind not in KINDS or not block.dtype.isnative:
        return False
    if base is None:
        sole = flags.owndata
    else:
        sole = type(base) is np.ndarray and base.base is None
        del base
        sole = sole and _references_of_base(x) == _OWN_BASE
    return sole and flags.aligned and (flags.c_contiguous or _is_in_order(block))


def _references(x: Any) -> int:
    return getrefcount(_held(x))


def _references_of_base(x: Any) -> int:
    return getrefcount(_held(x).base)


def _counts_of_own() -> tuple[int, int]:
    """The counts of a block that an array alone refers to, and of what it is a view of.

    Without the interpreter's lock counts say nothing: no block has these.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return -1, -1
    x: Any = object.__new__(DistArray)
    _hold(x, np.empty((2, 2))[:1])
    return _references(x), _references_of_base(x)


_OWN, _OWN_BASE = _counts_of_own()


def _is_in_order(block: Array) -> bool:
    """Whether results for a block are in C order: its dimensions are, with gaps perhaps."""
    steps = block.strides
    return all(steps) and all(a >= b for a, b in zip(steps, (*steps[1:], 1), strict=True))


def _warnings_are_watched() -> bool:
    """Whether warnings are raised or recorded where they arise."""
    global _watched
    filters: Any = warnings.filters
    mark = id(filters), len(filters), warnings._showwarnmsg_impl  # type: ignore[attr-defined]
    if mark != _watched[0]:
        raised = any(f[0] == "error" and issubclass(RuntimeWarning, f[2]) for f in filters)
        _watched = mark, raised or mark[2] is not _SHOW
    return _watched[1]


_SHOW: Any = warnings._showwarnmsg_impl  # type: ignore[attr-defined]
_watched: tuple[Any, bool] = ((), False)


# -- running -------------------------------------------------------------------------------------


def _operations() -> list[tuple[Any, Operation]]:
    """The arrays that wait for operations, and what they wait for."""
    arrays = [known() for known in list(_waiting.values())]
    pairs = [(x, _held(x)) for x in arrays if x is not None]
    return [(x, held) for x, held in pairs if type(held) is Operation]


def _readers(leaf: Leaf) -> list[Deferred]:
    """The arrays that wait for operations that read a leaf."""
    return [x for x, operation in _operations() if leaf in operation.leaves]


def _kept_for_nothing() -> list[Deferred]:
    """The arrays whose operations keep much memory that nobody else refers to any more."""
    every = _operations()
    kept = {leaf for _, operation in every for leaf in operation.leaves if leaf.owner() is None}
    if sum([leaf.block.nbytes for leaf in kept]) <= MOST_KEPT:
        return []
    return [x for x, operation in every if not kept.isdisjoint(operation.leaves)]


def _compute(arrays: Sequence[Deferred]) -> None:
    """Run the operations that arrays of one shape wait for, and others that read their memory."""
    with _lock:
        waiting = _together(arrays)
        ends = [end for _, end in waiting if end.block is None]
        program = Program(ends)
        outs = {program.step_of(x): np.empty(program.blocks[0].shape, x.dtype) for x in ends}
    tiles = program.tiles(outs) if ends else None
    if tiles is not None:
        tiles.run()
    with _lock:
        for x in ends:
            if x.block is None:  # else another thread was faster
                x.done(outs[program.step_of(x)])
        for array, end in waiting:
            if _held(array) is end:
                _restore(array, end.block)
    if tiles is not None:
        program.warn(tiles)  # which may raise


def _together(arrays: Sequence[Deferred]) -> list[tuple[Any, Operation]]:
    """Arrays with what they wait for, and the others that wait for reading the same memory."""
    leaves: set[Leaf] = set()
    wanted = {id(x) for x in arrays}
    every = _operations()
    for x, operation in every:
        if id(x) in wanted:
            leaves |= operation.leaves
    return [
        (x, operation)
        for x, operation in every
        if id(x) in wanted or not leaves.isdisjoint(operation.leaves)
    ]


# -- folding -------------------------------------------------------------------------------------

#: Folds that may be made of tiles in any order.
_UNORDERED = frozenset({np.maximum, np.minimum, np.logical_and, np.logical_or})


def fold(x: Base, ufunc: np.ufunc, dtype: Any) -> Any:
    """The fold of all elements of a block that operations are put off for.

    The block is made in the same pass, unless it costs little to compute its elements once more.
    None where the block has to be there first: where it would be folded to other bits.
    """
    operation = _held(x)
    if type(operation) is not Operation or not _folds_alike(operation, ufunc, dtype):
        return None
    with _lock:
        program = Program([operation])
        if not program.blocks[0].size:
            return None
        operation.folds += 1
        outs = {}
        if operation.cost > _COST or operation.folds > _FOLDS:
            outs[program.step_of(operation)] = np.empty(program.blocks[0].shape, operation.dtype)
        tiles = program.tiles(outs)
    if ufunc is np.add and not tiles.in_line:
        return None
    value = tiles.summed() if ufunc is np.add else tiles.folded(ufunc)
    for block in outs.values():
        x.block = block
    program.warn(tiles)
    return value


def _folds_alike(operation: Operation, ufunc: np.ufunc, dtype: Any) -> bool:
    """Whether a fold made of tiles has the bits of NumPy's."""
    kind = operation.dtype
    if operation.block is not None or (dtype is not None and np.dtype(dtype) != kind):
        return False
    return ufunc in _UNORDERED or (ufunc is np.add and kind.char in "fdg")


temporaries.put_off = put_off
temporaries.cast_to = cast_to
temporaries.fold = fold
