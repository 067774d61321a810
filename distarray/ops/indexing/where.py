"""where, select, choose and copyto: elements of one array or another, by conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements, movement
from distarray.array.base import is_number
from distarray.array.one_rank import Alone
from distarray.array.probes import check_cast, condition, refuse_shapes
from distarray.array.small import spreads
from distarray.comm import devices
from distarray.comm.agree import agree
from distarray.engines.blockwise import apply_blockwise
from distarray.engines.indexing.values import check_array, plain, without_surplus
from distarray.ops.indexing.nonzeros import nonzero
from distarray.ops.indexing.take import finished
from distarray.plan import restrict, shape_text
from distarray.typing import Array, ArrayLike, Casting

__all__ = ["choose", "copyto", "select", "where"]

_MISSING: Any = object()


@implements(np.where, computes=False, small=spreads(np.where))
def where(condition: ArrayLike, x: ArrayLike = _MISSING, y: ArrayLike = _MISSING, /) -> Any:
    """Return `x` where a condition holds, else `y`; without both, call :func:`numpy.nonzero`.

    Parameters
    ----------
    condition, x, y : array_like or DistArray
        They broadcast.

    Returns
    -------
    DistArray or tuple of DistArray
        In the layout of the operands.

    Cost
    ----
    None if the operands have the same layout.
    """
    if x is _MISSING and y is _MISSING:
        return nonzero(condition)
    if x is _MISSING or y is _MISSING:
        raise ValueError("either both or neither of x and y should be given")
    return apply_blockwise(np.where, [condition, x, y])


@implements(np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: ArrayLike = 0) -> Any:
    """Return the element of the first choice whose condition holds.

    Parameters
    ----------
    condlist : sequence of array of bool
        Conditions, in the order of their precedence.
    choicelist : sequence of array_like
        As many choices as conditions.
    default : array_like
        Value where no condition holds.

    Returns
    -------
    DistArray
        In the layout of the operands.

    Cost
    ----
    None if the operands have the same layout.
    """
    conditions, choices = list(condlist), list(choicelist)
    if len(conditions) != len(choices):
        raise ValueError("list of cases must be same length as list of conditions")
    if not conditions:
        raise ValueError("select with an empty condition list is not possible")
    count = len(conditions)

    def chosen(*blocks: Array) -> Array:
        if not devices.on_device(blocks[0]):
            return np.select(blocks[:count], blocks[count:-1], blocks[-1])
        return _selected_there(blocks[:count], blocks[count:-1], blocks[-1])

    operands = [*conditions, *choices, default]
    try:
        return apply_blockwise(chosen, operands)
    except ValueError:
        refuse_shapes(chosen, operands, (), {})  # NumPy checks the types of conditions first
        raise


@implements(np.choose)
def choose(
    a: ArrayLike,
    choices: Sequence[ArrayLike],
    out: DistArray | Array | None = None,
    mode: str = "raise",
) -> Any:
    """Return elements of several arrays, each from the array that an index array names.

    Parameters
    ----------
    a : array of int
        The number of the array to take each element from.
    choices : sequence of array_like
        They broadcast with `a`.
    out : DistArray or ndarray, optional
        Receives the result.
    mode : {"raise", "wrap", "clip"}
        Treatment of numbers out of bounds.

    Returns
    -------
    DistArray
        In the layout of the operands.

    Cost
    ----
    None if the operands have the same layout, except for an agreement that all numbers are valid
    if `a` is sharded and `mode` is "raise".
    """
    mesh = common_mesh(a, *choices, out)
    index, arrays = as_distarray(a, mesh), [plain(choice) for choice in choices]
    if not arrays:
        raise ValueError("0-length sequence.")
    np.result_type(*map(_typed, arrays))  # NumPy checks this first
    check_cast(index.dtype, np.dtype(np.intp), "safe")
    np.broadcast_shapes(*map(np.shape, arrays), index.shape)  # raises NumPy's exception
    if mode == "raise":
        _check_choices(index, len(arrays))
        mode = "clip"

    def chosen(numbers: Array, *blocks: Array) -> Array:
        if not devices.on_device(numbers):
            return np.choose(numbers, blocks, mode=mode)  # type: ignore[call-overload, no-any-return]
        last = len(blocks) - 1
        numbers = numbers % len(blocks) if mode == "wrap" else np.clip(numbers, 0, last)
        asked = [numbers == number for number in range(last)]
        return _selected_there(asked, blocks[:last], blocks[last])

    result = apply_blockwise(chosen, [index, *arrays], whole=out is not None)
    if out is None:
        return finished(result, None)
    if out.shape != result.shape:
        raise TypeError("choose: invalid shape for output array.")
    out[...] = result if isinstance(out, DistArray) else result.full()
    return out


def _typed(x: ArrayLike) -> Any:
    """Return a Python number itself; the data type of any other value."""
    if type(x) in (bool, int, float, complex):
        return x
    return x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype


def _selected_there(conditions: Sequence[Array], choices: Sequence[Array], default: Array) -> Array:
    """Compute ``np.select`` on a device; CuPy's ignores the data type of the default."""
    result = default
    for asked, choice in zip(reversed(conditions), reversed(choices)):
        result = np.where(asked, choice, result)
    return result


def _check_choices(index: DistArray, count: int) -> None:
    block = index.block
    wrong = block.size and (int(block.min()) < 0 or int(block.max()) >= count)
    error = ValueError("invalid entry in choice array") if wrong else None
    if not index.layout.is_replicated:
        agree(index.mesh.group, error)
    elif error is not None:
        raise error


@implements(np.copyto, writes=0, at=True, alone=Alone(unless=lambda dst, *_, **__: is_number(dst)))
def copyto(
    dst: DistArray | Array, src: ArrayLike, casting: Casting = "same_kind", where: ArrayLike = True
) -> None:
    """Copy values into an array, broadcast and cast, where a condition holds.

    Parameters
    ----------
    dst : DistArray or ndarray
        Changed in place; its layout stays.
    src : array_like or DistArray
        The values.
    casting : str
        The casts that are allowed.
    where : array_like or DistArray of bool
        Broadcast to the shape of `dst`.

    Cost
    ----
    None if the arrays have the same layout, or every rank has source and condition.
    """
    mesh = common_mesh(dst, src, where)
    check_array(dst, "copyto")
    source, mask = plain(src), plain(where)
    mask = mask if mask is True else condition(mask)
    target = as_distarray(dst, mesh)
    _check_copy(target, source, casting, mask)
    if type(source) is not int or target.dtype.kind not in "iu":
        source = source if isinstance(source, DistArray) else np.asarray(source)
    if mask is True:
        target[...] = source
        return
    layout, ndim = target.layout, target.ndim
    chosen = as_distarray(mask, mesh)
    values = without_surplus(as_distarray(source, mesh), ndim)
    _check_shapes(target, values, chosen)
    blocks = [
        movement.moved(mesh.asarray(x.block), x.layout, restrict(layout, x.shape), mesh)
        for x in (values, chosen)
    ]
    if layout.holds(mesh.coords):
        if mesh.device_type != "cpu" or np.may_share_memory(target.block, blocks[1]):
            blocks[1] = blocks[1].copy()  # NumPy reads the condition while it overwrites the array
        np.copyto(target.block, blocks[0], casting="unsafe", where=blocks[1])


def _check_copy(
    target: DistArray, source: ArrayLike, casting: Casting, mask: bool | DistArray | Array
) -> None:
    """Raise NumPy's exceptions about the arguments, on every rank."""
    cell = np.ones(1, target.dtype)
    cell.flags.writeable = bool(getattr(target.block.flags, "writeable", True))
    if not isinstance(source, (bool, int, float, complex, np.generic)):
        if not isinstance(source, (DistArray, np.ndarray)):
            source = np.asarray(source)
        source = np.ones((1,) * min(source.ndim, 1), source.dtype)
    kind = True if isinstance(mask, bool) else np.zeros(1, mask.dtype)
    np.copyto(cell, source, casting, kind)


def _check_shapes(target: DistArray, *arrays: DistArray) -> None:
    shape = target.shape
    for array in arrays:
        if array.ndim > len(shape) or np.broadcast_shapes(array.shape, shape) != shape:
            raise ValueError(
                f"could not broadcast input array from shape {shape_text(array.shape)} into shape "
                f"{shape_text(shape)}"
            )
