"""Operations put off, and run together when somebody asks for a block.

An elementwise operation on large blocks gives an array of the class :class:`Deferred`, which knows
its operation instead of its block. Its operands become `Deferred` as well: they know their block,
but who asks for it may write to it, so that the operations that have yet to read it run first. Then
an array is of its own class again. Whoever asks, by ``x.block``, gets the block; nothing else in
the library has to know.

An operand's memory may be reached by other ways than the arrays that are known here. Where it may,
nothing is put off (:mod:`~distarray.array.leaves`). Views of an array wait with it.

What other ranks have of an operand is asked for when the operation is called, and waited for when
the elements that need it are all that is left to compute.

``x[key] = value`` takes what `value` waits for straight to the elements of `x`.

What runs is one :class:`~distarray.array.programs.Program`, on tiles that stay in cache
(:mod:`distarray.array.tiled`).
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from distarray.array import mirrors, stale_copies, temporaries, waiting
from distarray.array.base import Base
from distarray.array.core import DistArray
from distarray.array.ends import is_element, written
from distarray.array.floaterrors import error_state
from distarray.array.keys import basic_entries, plain_key
from distarray.array.ladder import passed, usual
from distarray.array.leaves import (
    Leaf,
    beside,
    block_of,
    copied,
    held,
    hold,
    is_in_order,
    leaf_of,
    memory_of,
)
from distarray.array.memory import is_shared
from distarray.array.operations import (
    KINDS,
    SCALARS,
    Line,
    Operation,
    acting,
    cast_to,
    result_type,
)
from distarray.array.pieces import Pieces
from distarray.array.sharing import noted
from distarray.comm import DeviceMesh, observed
from distarray.comm.observed import is_observed
from distarray.comm.user_lines import program_frame
from distarray.config import in_force
from distarray.layout import Entries, Layout
from distarray.typing import Array, ArrayLike, DTypeLike, Shape

__all__ = ["Deferred", "Unseen", "early"]

#: Bytes of a block from which on operations are put off. Below, what it costs to put one off is
#: more than chains of a few operations gain.
LEAST = 1 << 22
#: The same in functions that the program has decorated with `fuse`.
_EARLY = 1 << 20
#: Bytes of the widest elements of which operations are put off.
_WIDEST = 16
#: Operations that one array may wait for.
MOST = 48


class Unseen(type):
    """The type of a class that programs take for `DistArray` itself."""

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is DistArray or NotImplemented

    def __hash__(cls) -> int:
        return hash(DistArray)

    def __repr__(cls) -> str:
        return repr(DistArray)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, DistArray)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, DistArray)


class Deferred(DistArray, metaclass=Unseen):
    """An array that waits for operations, or whose block operations wait for."""

    __slots__ = ()

    waits = True

    @property
    def block(self) -> Any:
        """This rank's block, after the operations that it waits for, or that wait for it."""
        while True:
            with waiting.lock:
                kept = held(self)
                if not (type(kept) is Leaf or type(kept) is Operation):
                    return kept
                arrays = [self] if kept.block is None else []
                if type(kept) is Leaf:
                    arrays = waiting.readers(kept.memory)
                if not arrays:
                    if type(kept) is Leaf:
                        waiting.release(kept.memory)
                    waiting.restore(self, kept.block)
                    return kept.block
            waiting.compute(arrays)

    @block.setter
    def block(self, block: Array) -> None:
        with waiting.lock:
            waiting.restore(self, block)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        return held(self).dtype  # type: ignore[no-any-return]

    @dtype.setter
    def dtype(self, dtype: DTypeLike) -> None:
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

    # -- views ---------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        if type(held(self)) is Leaf and error_state() is usual[0]:
            found = mirrors.read(self, key)
            if found is not NotImplemented:
                return found
            entries = basic_entries(plain_key(key), self.layout.shape)
            if entries is not None and not is_element(self, key, entries):
                view = self.sliced(entries)
                mirrors.noted(self, view.layout)
                return view
        return DistArray.__getitem__(self, key)

    def sliced(self, entries: Entries) -> Any:
        """As :meth:`DistArray.sliced`; a view of what operations wait for waits, too."""
        kept = held(self)
        if type(kept) is not Leaf:
            return DistArray.sliced(self, entries)
        with waiting.lock:
            view = self.viewed(kept.block, entries)
            noted(self, view, lambda x: x.viewed(x.block, entries))
            if held(self) is kept and view.block.base is not None and view.block.size:
                hold(view, Leaf(view.block, kept.memory))
                view.__class__ = Deferred
        return view


Deferred.__name__, Deferred.__qualname__ = DistArray.__name__, DistArray.__qualname__


def _replacing(ufunc: np.ufunc, plain: Callable[..., Any]) -> Callable[..., Any]:
    """An operator in place, of an array that waits: it waits for one operation more then."""

    def operate(self: Base, other: ArrayLike) -> Any:
        if passed.watched:
            stale_copies.tell(self)
        kept = held(self)
        later = (
            None
            if type(kept) is Operation and kept.block is not None
            else put_off(ufunc, (self, other))
        )
        if later is not None and later.dtype == kept.dtype:
            if type(held(self)) is Leaf:
                if written(self, later):
                    return self
            else:
                passed.number += 1
                with waiting.lock:
                    hold(self, held(later))
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


# -- putting off ---------------------------------------------------------------------------------


_is_early: ContextVar[bool] = ContextVar("distarray_early", default=False)


@contextmanager
def early() -> Iterator[None]:
    """Put off operations on smaller blocks."""
    token = _is_early.set(True)
    try:
        yield
    finally:
        _is_early.reset(token)


def _least() -> int:
    return min(LEAST, _EARLY) if _is_early.get() else LEAST


def put_off(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """The array of an operation that is put off; None if it has to be done at once."""
    act = acting(function)
    if act is None or len(inputs) != act.nin or error_state() is not usual[0]:
        return None
    model = _model(inputs)
    if model is None or is_observed() or in_force().fuse == "off":
        return None
    with waiting.lock:
        operands = _operands(inputs)
        if operands is None or result_type(act, operands) is None:
            return None
        return _put_off(act, operands, model.layout, model.mesh, _shape(operands))


def _put_off(
    act: Any, operands: tuple[Any, ...], layout: Layout, mesh: DeviceMesh, shape: Shape
) -> Any:
    frame = program_frame(sys._getframe(1))
    line = Line(frame.f_code.co_filename, frame.f_lineno, frame.f_globals, observed.display())
    result: Any = object.__new__(Deferred)
    result.layout, result.mesh = layout, mesh
    dtype: Any = result_type(act, operands)
    hold(result, Operation(act, operands, dtype, shape, line))
    waiting.enter(result)
    for x in waiting.late():
        x.block  # noqa: B018 (its operations run)
    return result


def is_late(function: Callable[..., Any], operands: Sequence[Any], layout: Layout) -> bool:
    """Whether a call can be put off whose operands are to be brought to a layout.

    If not all ranks find so, they still send one another the same.
    """
    act = acting(function)
    if act is None or len(operands) != act.nin or error_state() is not usual[0]:
        return False
    arrays = [x for x in operands if isinstance(x, Base)]
    if any(x.dtype.kind not in KINDS or x.mesh.coords is None or is_shared(x) for x in arrays):
        return False
    if not _lies_well(arrays[0].mesh, layout) or is_observed():
        return False
    return in_force().fuse == "on" and result_type(act, operands) is not None


def put_off_in(
    function: Callable[..., Any], operands: Sequence[Any], parts: Sequence[Any], layout: Layout
) -> Any:
    """As :func:`put_off`, given the operands' parts in a layout: themselves where they lie so."""
    leaves = [_leaf(x, part) for x, part in zip(operands, parts, strict=True)]
    model = next(x for x in operands if isinstance(x, Base))
    shape = layout.local_shape(model.mesh.coords)
    with waiting.lock:
        if 0 in shape or not all(map(_stays, operands, leaves)):
            return None
        kept = [held(x) if isinstance(x, Base) else x for x in leaves]
        return _put_off(acting(function), tuple(kept), layout, model.mesh, shape)


def _leaf(x: Any, part: Any) -> Any:
    """What an operation reads of an operand: a leaf, the array itself, or a number."""
    if part is x:
        return x
    if type(part) is Pieces or part.nbytes >= _least():
        return leaf_of(x, part)
    return copied(part)


def _stays(x: Base | complex, leaf: object) -> bool:
    """Whether what an operation reads of an operand cannot be written to unseen."""
    if not isinstance(x, Base):
        return True
    if type(leaf) is Leaf and not leaf.memory.arrays:
        return True  # a copy
    return _waits(x)


def _model(inputs: Sequence[Any]) -> Any:
    """One of the operands, which all lie alike on hosts; None if they do not."""
    model: Any = None
    for x in inputs:
        if isinstance(x, Base):
            if is_shared(x):
                return None
            if model is None:
                model = x
            elif x.layout is not model.layout or x.mesh is not model.mesh:
                return None
        elif type(x) not in SCALARS:
            return None
    return model if model is not None and _lies_well(model.mesh, model.layout) else None


def _lies_well(mesh: DeviceMesh, layout: Layout) -> bool:
    """Whether an array may be large, has dimensions, and every element in one place of a host."""
    if layout.size * _WIDEST < _least() or mesh.device_type != "cpu":
        return False
    return bool(layout.shape) and not layout.partials and not layout.ats


def _operands(inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """What an operation reads; None if something may be written to unseen, or is not large."""
    arrays = [x for x in inputs if isinstance(x, Base)]
    for x in arrays:
        if type(held(x)) is Operation and held(x).size >= MOST:
            x.block  # noqa: B018 (its operations run)
    if not all(map(_waits, arrays)):
        return None
    return tuple([held(x) if isinstance(x, Base) else x for x in inputs])


def _waits(x: Base) -> bool:
    """Whether operations can wait for the block of an array, which then waits with its views."""
    if x.waits:
        return True
    memory = memory_of(x) if _is_fit(x) else None
    if memory is None:
        return False
    arrays = beside(x)
    if not {DistArray, Deferred}.issuperset(map(type, arrays)):
        return False
    for y in arrays:
        if type(y) is DistArray:
            hold(y, Leaf(held(y), memory))
            y.__class__ = Deferred
    return bool(x.waits)


def _is_fit(x: Base) -> bool:
    """Whether a block is large, of numbers, and in the order in which results are made."""
    block = held(x)
    if type(block) is not np.ndarray or block.nbytes < _least() or block.dtype.kind not in KINDS:
        return False
    flags = block.flags
    return bool(
        block.dtype.isnative and flags.aligned and (flags.c_contiguous or is_in_order(block))
    )


def _shape(operands: Sequence[Any]) -> Shape:
    """The shape of the blocks among operands."""
    of = {Leaf: lambda x: x.block.shape, Operation: lambda x: x.shape}
    return next(of[type(x)](x) for x in operands if type(x) in of)


def _read(x: Base) -> Any:
    """The block of an array, to be read: what waits for reading it goes on waiting."""
    return x.block if is_shared(x) or type(held(x)) is Operation else block_of(x)


temporaries.put_off = put_off
temporaries.is_late = is_late
temporaries.put_off_in = put_off_in
temporaries.read = _read
temporaries.cast_to = cast_to
