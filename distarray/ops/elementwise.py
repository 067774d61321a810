"""NumPy's elementwise functions that are not ufuncs.

Each calls NumPy's own function on each rank's blocks. Comparisons of whole arrays (`allclose`,
`array_equal`) take one more small reduction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.portable import refuse_read_only
from distarray.array.probes import check_shapes, condition, result_types
from distarray.array.sharing import derived
from distarray.array.small import spreads
from distarray.engines.blockwise import apply_blockwise
from distarray.typing import Array, ArrayLike, DTypeLike, UfuncOut

__all__ = [
    "allclose",
    "angle",
    "array_equal",
    "array_equiv",
    "astype",
    "clip",
    "fix",
    "i0",
    "imag",
    "isclose",
    "iscomplex",
    "isneginf",
    "isposinf",
    "isreal",
    "nan_to_num",
    "real",
    "real_if_close",
    "round",
    "sinc",
]

_NO_VALUE: Any = np._NoValue


def _blockwise(
    function: Callable[..., Any],
    inputs: list[Any],
    out: UfuncOut = None,
    where: ArrayLike | bool = True,
    **keywords: Any,
) -> Any:
    """Apply `function` to the blocks, into `out` if it is given."""
    if out is None:
        return apply_blockwise(function, inputs, where=where, **keywords)
    into: Any = out
    if isinstance(out, tuple):
        (into,) = out
    refuse_read_only(into, "output array is read-only")
    result_types(function, inputs, [into], keywords)  # raises NumPy's exception, before any message
    if isinstance(into, DistArray):
        return apply_blockwise(function, inputs, (into,), where, **keywords)
    where = condition(where)
    check_shapes([x for x in (*inputs, where) if np.ndim(x)], (into,))
    value = apply_blockwise(function, inputs, whole=True, **keywords).full()
    np.copyto(into, value, keywords.get("casting", "same_kind"), np.asarray(where))
    return into


# -- limits and rounding -------------------------------------------------------------------------


@implements(np.clip, at=True, small=spreads(np.clip))
def clip(
    a: ArrayLike,
    a_min: ArrayLike = _NO_VALUE,
    a_max: ArrayLike = _NO_VALUE,
    out: UfuncOut = None,
    *,
    min: ArrayLike = _NO_VALUE,
    max: ArrayLike = _NO_VALUE,
    **kwargs: Any,
) -> Any:
    """Limit the elements to an interval; see :func:`numpy.clip`.

    Limits broadcast against `a`; keywords of ufuncs (`where`, `dtype`, `casting`) are passed on.

    Cost
    ----
    No message, unless a limit is distributed differently from `a`.
    """
    low, high = _limits(a_min, a_max, min, max)
    x: Any = a if hasattr(a, "dtype") else as_distarray(a, common_mesh(low, high, out))
    into: Any = out
    if x.dtype.kind in "iu":
        low, high = _within(low, high, np.iinfo(x.dtype))
    if low is None and high is None:
        return np.positive(x, out=into, **kwargs)
    if low is None:
        return np.minimum(x, high, out=into, **kwargs)
    if high is None:
        return np.maximum(x, low, out=into, **kwargs)
    return _blockwise(np.clip, [x, low, high], into, **kwargs)


def _within(low: int | ArrayLike, high: int | ArrayLike, info: np.iinfo[Any]) -> tuple[Any, Any]:
    """Return integer limits; None for a Python integer that excludes no value of the data type."""
    return (
        None if type(low) is int and low <= info.min else low,
        None if type(high) is int and high >= info.max else high,
    )


def _limits(a_min: ArrayLike, a_max: ArrayLike, low: ArrayLike, high: ArrayLike) -> tuple[Any, Any]:
    """Return the two limits, each of which has two names; None for a missing limit."""
    if a_min is _NO_VALUE and a_max is _NO_VALUE:
        return None if low is _NO_VALUE else low, None if high is _NO_VALUE else high
    for name, value in (("a_min", a_min), ("a_max", a_max)):
        if value is _NO_VALUE:
            raise TypeError(f"clip() missing 1 required positional argument: '{name}'")
    if low is not _NO_VALUE or high is not _NO_VALUE:
        raise ValueError(
            "Passing `min` or `max` keyword argument when `a_min` and `a_max` are provided is "
            "forbidden."
        )
    return a_min, a_max


@implements(np.round, np.around, at=True)
def round(a: ArrayLike, decimals: int = 0, out: UfuncOut = None) -> Any:
    """Round the elements to a number of decimals; see :func:`numpy.round`.

    Cost
    ----
    No message, unless `out` is distributed differently from `a`.
    """
    x: Any = a
    given: Any = out[0] if isinstance(out, tuple) else out
    if given is not None:
        if given.size != np.size(x):
            raise ValueError("invalid output shape")
        if x.dtype.kind == "f" and type(decimals) is int and decimals == 0:
            return np.rint(x, out=given)
        if given.shape != np.shape(x):
            raise ValueError("invalid output shape")
    return _blockwise(np.round, [x], given, decimals=decimals)


@implements(np.fix, at=True)
def fix(x: ArrayLike, out: UfuncOut = None) -> Any:
    """Round the elements towards zero; see :func:`numpy.fix`.

    Cost
    ----
    No message, unless `out` is distributed differently from `x`.
    """
    ufunc: Any = np.trunc
    return ufunc(x, out=out)


@implements(np.nan_to_num, at=True)
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Any:
    """Replace NaN and infinities by numbers; see :func:`numpy.nan_to_num`.

    Cost
    ----
    No message, unless replacements are arrays that are distributed differently from `x`.
    """
    if not copy and isinstance(x, DistArray) and x.dtype.kind not in "fc":
        return x if x.ndim else x[()]  # no element to replace, so nothing is written
    given = {"nan": nan, "posinf": posinf, "neginf": neginf}
    numbers = {name: value for name, value in given.items() if value is not None}

    def replaced(block: Array, *values: Array) -> Any:
        named: Any = dict(zip(numbers, values, strict=True))
        return np.nan_to_num(block, **named)

    result = apply_blockwise(replaced, [x, *numbers.values()])
    if copy or not isinstance(x, DistArray):
        return result
    x[...] = result
    return x if x.ndim else result


# -- complex numbers -----------------------------------------------------------------------------


@implements(np.real, at=True, computes=False)
def real(val: DistArray) -> Any:
    """Return the real part, a view; see :func:`numpy.real`.

    Cost
    ----
    No message.
    """
    return val if val.dtype.kind != "c" else derived(val, lambda x: x.like(x.block.real))


@implements(np.imag, at=True, computes=False)
def imag(val: DistArray) -> Any:
    """Return the imaginary part, a view of a complex array; see :func:`numpy.imag`.

    Cost
    ----
    No message.
    """
    if val.dtype.kind != "c" and val.dtype != object:
        return val.like(val.block.imag)  # zeros in new memory
    return derived(val, lambda x: x.like(x.block.imag))


@implements(np.angle, at=True)
def angle(z: ArrayLike, deg: bool = False) -> Any:
    """Compute the angles of complex numbers; see :func:`numpy.angle`.

    Cost
    ----
    No message.
    """
    return apply_blockwise(np.angle, [z], deg=deg)


@implements(np.real_if_close, at=True)
def real_if_close(a: DistArray, tol: float = 100) -> Any:
    """Return the real part if all imaginary parts are near zero; see :func:`numpy.real_if_close`.

    Cost
    ----
    One allreduce of a number; none for real arrays.
    """
    if a.dtype.kind != "c":
        return a
    limit = np.finfo(a.dtype).eps * tol if tol > 1 else tol
    return a.real if bool(np.all(np.absolute(a.imag) < limit)) else a


@implements(np.iscomplex, at=True)
def iscomplex(x: ArrayLike) -> Any:
    """Return True where the imaginary part is not zero; see :func:`numpy.iscomplex`.

    Cost
    ----
    No message.
    """
    return apply_blockwise(np.iscomplex, [x])


@implements(np.isreal, at=True)
def isreal(x: ArrayLike) -> Any:
    """Return True where the imaginary part is zero; see :func:`numpy.isreal`.

    Cost
    ----
    No message.
    """
    return apply_blockwise(np.isreal, [x])


# -- special functions and casts -----------------------------------------------------------------


@implements(np.isneginf, at=True)
def isneginf(x: ArrayLike, out: UfuncOut = None) -> Any:
    """Return True where an element is minus infinity; see :func:`numpy.isneginf`.

    Cost
    ----
    No message, unless `out` is distributed differently from `x`.
    """
    _check_signs(x, out)
    return _blockwise(np.isneginf, [x], out)


@implements(np.isposinf, at=True)
def isposinf(x: ArrayLike, out: UfuncOut = None) -> Any:
    """Return True where an element is plus infinity; see :func:`numpy.isposinf`.

    Cost
    ----
    No message, unless `out` is distributed differently from `x`.
    """
    _check_signs(x, out)
    return _blockwise(np.isposinf, [x], out)


def _check_signs(x: ArrayLike, out: UfuncOut) -> None:
    """Raise NumPy's exception for an `out` of another shape: it combines two conditions on `x`."""
    if out is not None:
        check_shapes([x, x], out if isinstance(out, tuple) else (out,))


@implements(np.sinc, at=True)
def sinc(x: ArrayLike) -> Any:
    """Compute ``sin(pi x) / (pi x)``; see :func:`numpy.sinc`.

    Cost
    ----
    No message.
    """
    return apply_blockwise(np.sinc, [x])


@implements(np.i0, at=True)
def i0(x: DistArray) -> Any:
    """Compute the modified Bessel function of order 0; see :func:`numpy.i0`.

    Cost
    ----
    No message.
    """
    if x.dtype.kind not in "fc":
        x = x.astype(float)  # reads text as numbers, so it may fail on one rank only
    result = apply_blockwise(np.i0, [x])
    # NumPy's function returns a 0-d array where a ufunc returns a scalar.
    return result if x.ndim else result.like(result.mesh.asarray(result.block))


@implements(np.astype, at=True)
def astype(
    x: DistArray, dtype: DTypeLike, /, *, copy: bool = True, device: str | None = None
) -> Any:
    """Cast the elements to a data type; see :func:`numpy.astype`.

    Cost
    ----
    No message.
    """
    if device not in (None, x.mesh.device_type, x.device):
        raise ValueError(
            f'Device not understood. Only "{x.device}" is allowed, but received: {device}'
        )
    return x.astype(dtype, copy=copy)


# -- comparisons of whole arrays -----------------------------------------------------------------


@implements(np.isclose, at=True, small=spreads(np.isclose))
def isclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1.0e-5,
    atol: ArrayLike = 1.0e-8,
    equal_nan: bool = False,
) -> Any:
    """Return True where two arrays agree within a tolerance; see :func:`numpy.isclose`.

    Cost
    ----
    No message, unless the operands are distributed differently.
    """
    return apply_blockwise(np.isclose, [a, b, rtol, atol], equal_nan=equal_nan)


@implements(np.allclose)
def allclose(
    a: ArrayLike,
    b: ArrayLike,
    rtol: ArrayLike = 1.0e-5,
    atol: ArrayLike = 1.0e-8,
    equal_nan: bool = False,
) -> bool:
    """Check whether two arrays agree within a tolerance; see :func:`numpy.allclose`.

    Cost
    ----
    One allreduce of a truth value, and the messages that align the operands.
    """
    return bool(np.all(isclose(a, b, rtol, atol, equal_nan)))


@implements(np.array_equal)
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> bool:
    """Check whether two arrays have the same shape and elements; see :func:`numpy.array_equal`.

    Cost
    ----
    One allreduce of a truth value, and the messages that align the operands.
    """
    operands = _operands(a1, a2)
    if operands is None or operands[0].shape != operands[1].shape:
        return False
    first, second = operands
    if equal_nan and first is second:
        return True
    same = first == second
    if equal_nan and first.dtype.kind in "fcmM" and second.dtype.kind in "fcmM":
        same = same | (np.isnan(first) & np.isnan(second))
    return bool(np.all(same))


@implements(np.array_equiv)
def array_equiv(a1: ArrayLike, a2: ArrayLike) -> bool:
    """Check whether two arrays are equal after broadcasting; see :func:`numpy.array_equiv`.

    Cost
    ----
    One allreduce of a truth value, and the messages that align the operands.
    """
    try:
        shape = np.broadcast_shapes(np.shape(a1), np.shape(a2))
    except Exception:  # of any kind: NumPy then returns False, too
        return False
    operands = _operands(a1, a2)
    if operands is None:  # for example text on a device, which equals no number
        return 0 in shape
    return bool(np.all(operands[0] == operands[1]))


def _operands(a1: ArrayLike, a2: ArrayLike) -> tuple[DistArray, DistArray] | None:
    """Return both as arrays on one mesh; None if NumPy cannot make an array of one of them."""
    mesh = common_mesh(a1, a2)
    try:
        return as_distarray(a1, mesh), as_distarray(a2, mesh)
    except Exception:  # of any kind: NumPy then calls the two unequal
        return None
