"""Deferred (lazy) elementwise operations, which run together when a block is needed.

An elementwise operation on large blocks returns an array that stores the operation instead of its
block. The operands wait as well. They have their blocks, but code that asks for such a block may
write to it, so the operations that have yet to read it run first. Access to ``x.block`` runs the
pending operations and returns the block (:mod:`~distarray.array.waiting`). The rest of the library
needs no knowledge of deferred operations.

If the memory of an operand may be reached other than through known arrays, nothing is deferred
(:mod:`~distarray.array.leaves`). Views of an operand wait with it.

Elements of an operand that other ranks own are requested when the operation is called. This rank
waits for them only after it has computed everything that does not need them.

``x[key] = value`` computes a deferred `value` directly into the elements of `x`.

A :class:`~distarray.array.programs.Program` runs the operations, on tiles that stay in cache
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

#: Minimum bytes of a block for deferred operations. For smaller blocks, deferring costs more than
#: it saves in chains of a few operations.
LEAST = 1 << 22
#: Minimum bytes of a block in functions that the program has decorated with `fuse`.
_EARLY = 1 << 20
#: Bytes of the widest elements whose operations are deferred.
_WIDEST = 16
#: Maximum number of operations that one array may wait for.
MOST = 48


# -- deferring -----------------------------------------------------------------------------------


_is_early: ContextVar[bool] = ContextVar("distarray_early", default=False)


@contextmanager
def early() -> Iterator[None]:
    """Defer operations on smaller blocks, too, within a context."""
    token = _is_early.set(True)
    try:
        yield
    finally:
        _is_early.reset(token)


def _least() -> int:
    return min(LEAST, _EARLY) if _is_early.get() else LEAST


def put_off(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """Return the array of a deferred operation; None if the operation must run at once."""
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
    """Compute ``ufunc(x, y)`` for large operands of one layout: deferred, or at once.

    If it runs at once, it reuses the block of a temporary operand if there is one. Only an
    operator's method may call this function: the caller of that method must be the program's frame.

    Parameters
    ----------
    model : DistArray
        One of the operands.
    ufunc : ufunc
        The operator's ufunc.
    operands : tuple of DistArray or scalar
        Both operands.
    counts : tuple of int
        ``sys.getrefcount`` of each operand, as the operator's method sees it; 0 for a scalar.
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
    """Defer an in-place operator of an array that waits; return False if it must run at once."""
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
    """Return True if a call can be deferred whose operands are redistributed to a layout first.

    If only some ranks return True, all ranks still send the same messages.
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
    """Defer an operation as :func:`put_off`, given this rank's blocks of the operands in a layout.

    If an operand already has this layout, its entry of `parts` is the operand itself.
    """
    leaves = [_leaf(x, part) for x, part in zip(operands, parts, strict=True)]
    model = next(x for x in operands if isinstance(x, Base))
    shape = layout.local_shape(model.mesh.coords)
    with waiting.lock:
        if 0 in shape or not all(map(_stays, operands, leaves)):
            return None
        kept = [held(x) if isinstance(x, Base) else x for x in leaves]
        return _put_off(acting(function), tuple(kept), layout, model.mesh, shape)


def _leaf(x: Any, part: Any) -> Any:
    """Return the object that an operation reads of an operand: a leaf, the array, or a number."""
    if part is x:
        return x
    if type(part) is Pieces or part.nbytes >= _least():
        return leaf_of(x, part)
    return copied(part)


def _stays(x: Base | complex, leaf: object) -> bool:
    """Return True if the elements that an operation reads of an operand cannot change unnoticed."""
    if not isinstance(x, Base):
        return True
    if type(leaf) is Leaf and not leaf.memory.arrays:
        return True  # a private copy
    return _waits(x)


def _model(inputs: Sequence[Any]) -> Any:
    """Return one operand if all arrays are on hosts with one layout and mesh; else None."""
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
    """Return True if operations on a layout can be deferred.

    The array must have dimensions, be on hosts, and be large enough if its elements had `_WIDEST`
    bytes. It must have no pending folds, and not be at a single coordinate.
    """
    if layout.size * _WIDEST < _least() or mesh.device_type != "cpu":
        return False
    return bool(layout.shape) and not layout.partials and not layout.ats


def _operands(inputs: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the leaves, operations and numbers that an operation reads, or None.

    The result is None if an array is small, or if its elements may change unnoticed.
    """
    arrays = [x for x in inputs if isinstance(x, Base)]
    for x in arrays:
        if type(held(x)) is Operation and held(x).size >= MOST:
            x.block  # noqa: B018 (its operations run)
    if not all(map(_waits, arrays)):
        return None
    return tuple([held(x) if isinstance(x, Base) else x for x in inputs])


def _waits(x: Base) -> bool:
    """Return True if operations can wait for the block of an array; its views then wait as well."""
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
    """Return True if a block is large, numeric, and in the order in which results are made."""
    block = held(x)
    if type(block) is not np.ndarray or block.nbytes < _least() or block.dtype.kind not in KINDS:
        return False
    flags = block.flags
    return bool(
        block.dtype.isnative and flags.aligned and (flags.c_contiguous or is_in_order(block))
    )


def _shape(operands: Sequence[Any]) -> Shape:
    """Return the shape of the blocks among operands."""
    of = {Leaf: lambda x: x.block.shape, Operation: lambda x: x.shape}
    return next(of[type(x)](x) for x in operands if type(x) in of)


def read(x: Base) -> Any:
    """Return the block of an array for reading only; operations that also read it stay deferred."""
    return x.block if is_shared(x) or type(held(x)) is Operation else block_of(x)
