"""Calls of NumPy's ufuncs, including calls that leave a fold pending."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from distarray.array import DistArray, faults, implements_method, single, wrap
from distarray.array.base import is_subclass
from distarray.array.handing import ordinary
from distarray.array.portable import call_ufunc as of_blocks
from distarray.array.portable import refuse_read_only
from distarray.array.probes import (
    check_shapes,
    check_writeable,
    condition,
    hollow,
    refuse_shapes,
    result_types,
)
from distarray.engines.blockwise import apply_blockwise, in_one_layout
from distarray.engines.mapping.foreign_ufuncs import call_foreign
from distarray.layout import Fold, Layout, Partial, Replicate
from distarray.plan import broadcast_shapes
from distarray.typing import Array, ArrayLike, Casting, DType, DTypeLike

__all__ = ["call_ufunc"]

#: Array to write a result to, or None for a new one.
Out: TypeAlias = DistArray | Array | None

#: Types of Python numbers, with NumPy's letters for their kinds.
_KINDS: dict[type, str] = {int: "i", float: "f", complex: "c", bool: "b"}
#: Ufuncs that work element by element in C.
_PLAIN = frozenset([f for f in vars(np).values() if isinstance(f, np.ufunc) and not f.signature])
#: Positions of the operands in which a call is linear, one at a time: the other operands are plain
#: factors. None: linear in all operands together, if all are pending in the same layout.
_LINEAR: dict[np.ufunc, tuple[int, ...] | None] = {
    np.negative: (0,),
    np.positive: (0,),
    np.conjugate: (0,),
    np.multiply: (0, 1),
    np.true_divide: (0,),
    np.add: None,
    np.subtract: None,
}


@implements_method("__call__")
def call_ufunc(
    ufunc: np.ufunc,
    *inputs: ArrayLike,
    out: Out | tuple[Out, ...] = None,
    where: ArrayLike | bool = True,
    **kwargs: Any,
) -> Any:
    """Call ``ufunc(*inputs, out=..., where=..., dtype=..., casting=...)`` on distributed arrays."""
    if ufunc is np.power:
        _refuse_negative_powers(inputs, out, where, kwargs)
    if where is True and not kwargs and ufunc in _PLAIN:
        if out is not None:
            found = _aligned_into(ufunc, inputs, out)
        else:
            found = _aligned(ufunc, inputs)
            if found is None:
                found = _through(ufunc, inputs)
        if found is not None:
            return found
    return _call_general(ufunc, inputs, out, where, kwargs)


def _call_general(
    ufunc: np.ufunc,
    inputs: Sequence[Any],
    out: Out | tuple[Out, ...],
    where: ArrayLike | bool,
    kwargs: dict[str, Any],
) -> Any:
    given = out if isinstance(out, tuple) else (out,)
    if any(map(_is_foreign, map(type, (*inputs, *given)))):
        return NotImplemented
    if out is None and any(map(is_subclass, map(type, inputs))):
        return ufunc(*ordinary(tuple(inputs), f"numpy.{ufunc.__name__}"), where=where, **kwargs)
    if len(inputs) > ufunc.nin:
        out, inputs = tuple(inputs[ufunc.nin :]), inputs[: ufunc.nin]
    outs: tuple[Any, ...] = out if isinstance(out, tuple) else () if out is None else (out,)
    inputs = tuple([_settled(x) for x in inputs])
    if ufunc not in _PLAIN:
        found = call_foreign(ufunc, inputs, outs, _settled(where), kwargs)
        if found is not NotImplemented:
            return found
    if any(isinstance(o, np.ndarray) for o in outs):
        return _into_numpy(ufunc, inputs, outs, _settled(where), kwargs)
    return apply_blockwise(ufunc, inputs, outs, _settled(where), **kwargs)


def _settled(x: ArrayLike) -> Any:
    """Return an operand without pending folds; all ranks get a lone element."""
    if not isinstance(x, DistArray):
        return x
    if x.layout.partials:
        x.settle()
    return x.plain() if x.layout.is_lone_element else x


@lru_cache(maxsize=256)
def _is_foreign(kind: Hashable) -> bool:
    """Return True if a type implements ufuncs itself, and is not an array that we compute with."""
    override = getattr(kind, "__array_ufunc__", None)
    known = (np.ndarray.__array_ufunc__, DistArray.__array_ufunc__)
    return override not in (None, *known) and not hasattr(kind, "__cuda_array_interface__")


def _refuse_negative_powers(
    inputs: Sequence[Any],
    out: Out | tuple[Out, ...],
    where: ArrayLike | bool,
    keywords: dict[str, Any],
) -> None:
    """Raise NumPy's exception for an integer to a negative integer power, on all ranks.

    Otherwise only a rank that holds such an element would raise.

    Cost
    ----
    One allreduce of a truth value for distributed arrays of signed exponents; else nothing.
    """
    asked = keywords.get("dtype")
    exponent = _integer_exponents(inputs, asked)
    if exponent is None:
        return
    negative = exponent < 0 if type(exponent) is int else np.less(exponent, 0)
    if negative is False:
        return
    (given,) = out if isinstance(out, tuple) else (out,)
    outs = [given] if hasattr(given, "dtype") else []
    operands = [np.asarray(x) if isinstance(x, (list, tuple)) else x for x in inputs[:2]]
    # NumPy's errors about types come first. It may compute in floats: with `dtype`, and of uint64.
    result_types(np.power, operands, outs, keywords)
    (kind,) = result_types(np.power, operands, [], keywords)
    if kind.kind != "i":
        return
    if 0 in broadcast_shapes(np.shape(inputs[0]), np.shape(exponent)):
        return
    if bool(np.any(negative if where is True else np.logical_and(negative, where))):
        raise ValueError("Integers to negative integer powers are not allowed.")


def _integer_exponents(inputs: Sequence[Any], asked: DTypeLike | None) -> Any:
    """Return the exponents of a power of integers, in the dtype `asked`; None for other powers."""
    if len(inputs) < 2:
        return None
    exponent = inputs[1]
    if asked is not None and np.dtype(asked).kind == "i" and _kind(exponent) in "buifc":
        return getattr(exponent, "astype", np.asarray(exponent).astype)(asked)
    return exponent if _kind(inputs[0]) in "bui" and _kind(exponent) == "i" else None


def _kind(x: ArrayLike) -> str:
    """Return NumPy's letter for the kind of an operand's data type."""
    known = _KINDS.get(type(x))
    if known is not None:
        return known
    kind: str = x.dtype.kind if hasattr(x, "dtype") else np.asarray(x).dtype.kind
    return kind


def _aligned(ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """Return the result if all layouts agree, with the least overhead; else None."""
    found = in_one_layout(inputs)
    if found is None:
        return None
    blocks, layout, mesh = found
    if layout.partials or len(blocks) != ufunc.nin:
        return None
    value = ufunc(*blocks) if mesh.device_type == "cpu" else of_blocks(ufunc, *blocks)
    if ufunc.nout == 1:
        return wrap(value if layout.shape else single(value, layout, mesh), layout, mesh)
    return tuple([wrap(v if layout.shape else mesh.scalar(v), layout, mesh) for v in value])


def _aligned_into(ufunc: np.ufunc, inputs: Sequence[Any], outs: Out | tuple[Out, ...]) -> Any:
    """Write the result to `outs` and return them if all layouts agree; else return None."""
    if not isinstance(outs, tuple) or not all(type(out) is DistArray for out in outs):
        return None
    found = in_one_layout((*inputs, *outs))
    if found is None or len(inputs) != ufunc.nin or len(outs) != ufunc.nout:
        return None
    blocks, layout, mesh = found
    if not layout.shape or layout.partials or mesh.device_type != "cpu":
        return None
    faults.DETOURS.get(ufunc, ufunc)(*blocks[: ufunc.nin], out=tuple(blocks[ufunc.nin :]))
    return outs[0] if len(outs) == 1 else outs


def _into_numpy(
    ufunc: np.ufunc,
    inputs: Sequence[Any],
    outs: tuple[Out, ...],
    where: ArrayLike | bool,
    kwargs: dict[str, Any],
) -> Any:
    """Write results to NumPy arrays, which are replicated: every rank receives all elements."""
    ours = tuple([o if isinstance(o, DistArray) else None for o in outs])
    _check_outs(outs)
    is_masked = where is not True
    where = condition(where)
    _check_operands(ufunc, inputs, outs, where, kwargs)
    if any(out is None for out in outs):
        inputs = _as_wide(inputs, next(out.shape for out in outs if out is not None))
    # With a mask NumPy also reads the elements of an `out`, whose text may not be a number.
    masked = where if is_masked and any(o is not None for o in ours) else True
    value = apply_blockwise(ufunc, inputs, ours, masked, whole=True, **kwargs)
    values = value if isinstance(value, tuple) else (value,)
    _copy_to_numpy(outs, values, kwargs.get("casting", "same_kind"), where)
    found = [value if out is None else out for out, value in zip(outs, values, strict=True)]
    return tuple(found) if len(found) > 1 else found[0]


def _check_operands(
    ufunc: np.ufunc,
    inputs: Sequence[Any],
    outs: tuple[Out, ...],
    where: Any,
    kwargs: dict[str, Any],
) -> None:
    """Raise NumPy's exceptions: for types without a loop, for shapes, for casts of elements."""
    typed = [x if type(x) in _KINDS or hasattr(x, "dtype") else np.asarray(x) for x in inputs]
    error = None
    try:
        result_types(ufunc, typed, outs, kwargs)
    except TypeError as found:
        if type(found) is not TypeError:
            raise
        error = found
    try:
        check_shapes(
            [x for x in (*inputs, where) if np.ndim(x)], [out for out in outs if out is not None]
        )
    except ValueError:
        refuse_shapes(ufunc, typed, outs, {**kwargs, "where": hollow(where.shape, where.dtype)})
        raise
    if error is not None:
        raise error


def _check_outs(outs: tuple[Out, ...]) -> None:
    """Raise NumPy's exceptions for outs that cannot be written to."""
    for out in outs:
        if isinstance(out, np.ndarray):
            refuse_read_only(out, "output array is read-only")
        elif out is not None:
            check_writeable([out])


def _copy_to_numpy(
    outs: tuple[Out, ...], values: Sequence[DistArray], casting: Casting, where: ArrayLike | bool
) -> None:
    mask = np.asarray(where)
    for out, value in zip(outs, values, strict=True):
        if isinstance(out, np.ndarray):
            np.copyto(out, value.full(), casting, mask)


def _as_wide(inputs: Sequence[Any], shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return the inputs, one of them broadcast to the shape of the results, i.e. of the outs."""
    wide = next(number for number, x in enumerate(inputs) if isinstance(x, DistArray))
    return (*inputs[:wide], np.broadcast_to(inputs[wide], shape), *inputs[wide + 1 :])


def _through(ufunc: np.ufunc, inputs: Sequence[Any]) -> DistArray | None:
    """Return the result with its fold still pending, if the call is linear; else None."""
    pending = [x for x in inputs if isinstance(x, DistArray) and x.layout.partials]
    if not pending or any(map(is_subclass, map(type, inputs))):
        return None
    if len(inputs) != ufunc.nin or not _linear(ufunc, inputs, pending):
        return None
    layout = pending[0].layout
    # The call is linear, so it is applied to contributions instead of values.
    result = apply_blockwise(ufunc, [_bare(x) if isinstance(x, DistArray) else x for x in inputs])
    if not all(isinstance(result.layout.placements[m], Replicate) for m in layout.partials):
        return None
    placed = {m: layout.placements[m] for m in layout.partials}
    kept = Layout.from_cuts(result.layout.cuts, layout.mesh_shape, placed)
    return wrap(result.block, kept, result.mesh)


def _linear(ufunc: np.ufunc, inputs: Sequence[Any], pending: Sequence[DistArray]) -> bool:
    """Return True if the call commutes with the pending sum; the same on all ranks."""
    if ufunc not in _LINEAR or not _is_sum(pending[0]):
        return False
    dtype = pending[0].dtype
    # Sums of integers wrap around: in a wider type, or divided, the contributions would not.
    if dtype.kind in "iu" and (ufunc is np.true_divide or not _keeps(dtype, inputs)):
        return False
    positions = _LINEAR[ufunc]
    if positions is None:
        return len(pending) == len(inputs) and len({(x.layout, x.mesh) for x in pending}) == 1
    if len(pending) != 1 or not any(inputs[i] is pending[0] for i in positions):
        return False
    others = [x for x in inputs if x is not pending[0]]
    return all(_is_regular(x, ufunc is np.true_divide) for x in others)


def _is_sum(x: DistArray) -> bool:
    """Return True if a sum of numbers is pending, and no other fold."""
    layout = x.layout
    sums = all(layout.placements[m] == Partial(Fold.SUM) for m in layout.partials)
    return sums and not layout.ats and x.dtype.kind in "iufc"


def _keeps(dtype: DType, inputs: Sequence[Any]) -> bool:
    """Return True if the result has the data type of the pending operand."""
    return all(type(x) is int or getattr(x, "dtype", None) == dtype for x in inputs)


def _is_regular(factor: ArrayLike, divides: bool) -> bool:
    """Return True if a factor is finite and, if it divides, nowhere zero.

    Infinite contributions would add up to NaN. Every rank must have the factor, so that all ranks
    decide alike.
    """
    if isinstance(factor, DistArray):
        if not factor.layout.is_replicated:
            return False
        factor = factor.block
    values: Array = np.asarray(factor)
    if values.dtype.kind not in "biufc":
        return False
    return bool(np.isfinite(values).all() and not (divides and (values == 0).any()))


def _bare(x: DistArray) -> DistArray:
    return wrap(x.block, x.layout.settled(), x.mesh)
