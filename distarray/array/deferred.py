"""Operations put off, and run together when somebody asks for a block.

An elementwise operation on large blocks gives an array that knows its operation instead of its
block. Its operands wait as well: they know their block, but who asks for it may write to it, so
that the operations that have yet to read it run first. Whoever asks, by ``x.block``, gets the
block (:mod:`~distarray.array.waiting`); nothing else in the library has to know.

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

from distarray.array import stale_copies, temporaries, waiting
from distarray.array.base import Base
from distarray.array.ends import written
from distarray.array.floaterrors import error_state
from distarray.array.ladder import passed, usual
from distarray.array.leaves import (
    Leaf,
    beside,
    block_of,
    copied,
    held,
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
    result_type,
)
from distarray.array.pieces import Pieces
from distarray.comm import DeviceMesh, observed
from distarray.comm.observed import is_observed
from distarray.comm.user_lines import program_frame
from distarray.config import in_force
from distarray.layout import Layout
from distarray.typing import ArrayLike, Shape

__all__ = ["early", "is_late", "put_off", "put_off_in", "put_off_or_done", "read", "replaced"]

#: Bytes of a block from which on operations are put off. Below, what it costs to put one off is
#: more than chains of a few operations gain.
LEAST = 1 << 22
#: The same in functions that the program has decorated with `fuse`.
_EARLY = 1 << 20
#: Bytes of the widest elements of which operations are put off.
_WIDEST = 16
#: Operations that one array may wait for.
MOST = 48


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


def put_off_or_done(
    model: Any, ufunc: np.ufunc, operands: tuple[Any, Any], counts: tuple[int, int]
) -> Any:
    """``ufunc(x, y)`` for large operands of one layout: put off, or done now.

    Now means into a block that nobody else will ever see, if there is one. To be called by an
    operator's method itself: the frame beyond it is the program's.

    Parameters
    ----------
    model : DistArray
        One of the operands.
    ufunc : ufunc
    operands : tuple of DistArray or scalar
    counts : tuple of int
        ``sys.getrefcount`` of either, as the operator's method sees it; 0 for a scalar.
    """
    later = put_off(ufunc, operands)
    return model.computed(temporaries.done(ufunc, *operands, counts)) if later is None else later


def _put_off(
    act: Any, operands: tuple[Any, ...], layout: Layout, mesh: DeviceMesh, shape: Shape
) -> Any:
    frame = program_frame(sys._getframe(1))
    line = Line(frame.f_code.co_filename, frame.f_lineno, frame.f_globals, observed.display())
    result: Any = object.__new__(Base.plain_type)
    result.layout, result.mesh = layout, mesh
    dtype: Any = result_type(act, operands)
    waiting.wait_for(result, Operation(act, operands, dtype, shape, line))
    for x in waiting.late():
        x.block  # noqa: B018 (its operations run)
    return result


def replaced(ufunc: np.ufunc, x: Base, other: ArrayLike) -> bool:
    """Put off an operator in place, of an array that waits; False if it has to be done at once."""
    if passed.watched:
        stale_copies.tell(x)
    kept = held(x)
    if type(kept) is Operation and kept.block is not None:
        return False
    later = put_off(ufunc, (x, other))
    if later is None or later.dtype != kept.dtype:
        return False
    if type(held(x)) is Leaf:
        return written(x, later)
    passed.number += 1
    with waiting.lock:
        waiting.wait_for(x, held(later))
    return True


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
    if any(type(y) is not Base.plain_type for y in arrays):
        return False
    for y in arrays:
        if not y.waits:
            waiting.wait_for(y, Leaf(held(y), memory))
    return x.waits


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


def read(x: Base) -> Any:
    """The block of an array, to be read: what waits for reading it goes on waiting."""
    return x.block if is_shared(x) or type(held(x)) is Operation else block_of(x)
