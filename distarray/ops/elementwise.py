"""NumPy's functions that treat each element by itself and are no ufuncs.

Each is NumPy's own function, called on the blocks where the operands lie; what is said about the
whole array (`allclose`, `array_equal`) is one small reduction more.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.portable import refuse_read_only
from distarray.engines.blockwise import apply_blockwise

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
    function: Callable[..., Any], inputs: list[Any], out: Any = None, **keywords: Any
) -> Any:
    """`function` block by block, into `out` if there is one."""
    if out is None:
        return apply_blockwise(function, inputs, **keywords)
    if isinstance(out, tuple):
        (out,) = out
    refuse_read_only(getattr(out, "block", out), "output array is read-only")
    # Asked of NumPy with empty arrays first: what it refuses is refused before any message.
    probes = [np.empty((0,), x.dtype) if hasattr(x, "dtype") else x for x in inputs]
    function(*probes, out=np.empty((0,), out.dtype), **keywords)
    if isinstance(out, DistArray):
        return apply_blockwise(function, inputs, (out,), **keywords)
    np.copyto(out, apply_blockwise(function, inputs, **keywords).full(), casting="same_kind")
    return out


# -- limits and rounding -------------------------------------------------------------------------


@implements(np.clip, at=True)
def clip(
    a: Any,
    a_min: Any = _NO_VALUE,
    a_max: Any = _NO_VALUE,
    out: Any = None,
    *,
    min: Any = _NO_VALUE,
    max: Any = _NO_VALUE,
    **kwargs: Any,
) -> Any:
    """The elements limited to an interval; see :func:`numpy.clip`.

    Limits broadcast against `a`; keywords of ufuncs (`where`, `dtype`, `casting`) are passed on.

    Cost
    ----
    No message, unless a limit is distributed otherwise than `a`.
    """
    low, high = _limits(a_min, a_max, min, max)
    if not hasattr(a, "dtype"):
        a = as_distarray(a, common_mesh(low, high, out))
    if a.dtype.kind in "iu":  # Python integers beyond the type limit nothing
        low = None if type(low) is int and low <= np.iinfo(a.dtype).min else low
        high = None if type(high) is int and high >= np.iinfo(a.dtype).max else high
    if low is None and high is None:
        return np.positive(a, out=out, **kwargs)
    if low is None:
        return np.minimum(a, high, out=out, **kwargs)
    if high is None:
        return np.maximum(a, low, out=out, **kwargs)
    where = kwargs.pop("where", True)
    if where is True:
        return _blockwise(np.clip, [a, low, high], out, **kwargs)
    outs = () if out is None else out if isinstance(out, tuple) else (out,)
    return apply_blockwise(np.clip, [a, low, high], outs, where, **kwargs)


def _limits(a_min: Any, a_max: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """The two limits, which have two names each; None where there is none."""
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
def round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """The elements rounded to a number of decimals; see :func:`numpy.round`.

    Cost
    ----
    No message, unless `out` is distributed otherwise than `a`.
    """
    given = out[0] if isinstance(out, tuple) else out
    if given is not None:
        if given.size != np.size(a):
            raise ValueError("invalid output shape")
        if a.dtype.kind == "f" and type(decimals) is int and decimals == 0:
            return np.rint(a, out=given)
        if given.shape != np.shape(a):
            raise ValueError("invalid output shape")
    return _blockwise(np.round, [a], given, decimals=decimals)


@implements(np.fix, at=True)
def fix(x: Any, out: Any = None) -> Any:
    """The elements rounded towards zero; see :func:`numpy.fix`.

    Cost
    ----
    No message, unless `out` is distributed otherwise than `x`.
    """
    return np.trunc(x, out=out)


@implements(np.nan_to_num, at=True)
def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    """NaN and infinities replaced by numbers; see :func:`numpy.nan_to_num`.

    Cost
    ----
    No message, unless replacements are arrays that are distributed otherwise than `x`.
    """
    if not copy and isinstance(x, DistArray) and x.dtype.kind not in "fc":
        return x if x.ndim else x[()]  # there is nothing to replace, and nothing is written
    given = {"nan": nan, "posinf": posinf, "neginf": neginf}
    names = [name for name, value in given.items() if value is not None]

    def replaced(block: Any, *values: Any) -> Any:
        return np.nan_to_num(block, **dict(zip(names, values, strict=True)))

    result = apply_blockwise(replaced, [x, *[given[name] for name in names]])
    if copy or not isinstance(x, DistArray):
        return result
    x[...] = result
    return x if x.ndim else result


# -- complex numbers -----------------------------------------------------------------------------


@implements(np.real, at=True, computes=False)
def real(val: Any) -> Any:
    """The real part, a view; see :func:`numpy.real`.

    Cost
    ----
    No message.
    """
    return val if val.dtype.kind != "c" else val.like(val.block.real)


@implements(np.imag, at=True, computes=False)
def imag(val: Any) -> Any:
    """The imaginary part, a view of a complex array; see :func:`numpy.imag`.

    Cost
    ----
    No message.
    """
    return val.like(val.block.imag)


@implements(np.angle, at=True)
def angle(z: Any, deg: bool = False) -> Any:
    """The angles of complex numbers; see :func:`numpy.angle`.

    Cost
    ----
    No message.
    """
    return apply_blockwise(np.angle, [z], deg=deg)


@implements(np.real_if_close, at=True)
def real_if_close(a: Any, tol: float = 100) -> Any:
    """The real part, if all imaginary parts are close to zero; see :func:`numpy.real_if_close`.

    Cost
    ----
    One allreduce of a number; none for real arrays.
    """
    if a.dtype.kind != "c":
        return a
    limit = np.finfo(a.dtype).eps * tol if tol > 1 else tol
    return a.real if bool(np.all(np.absolute(a.imag) < limit)) else a


@implements(np.iscomplex, at=True)
def iscomplex(x: Any) -> Any:
    """Where the imaginary part is not zero; see :func:`numpy.iscomplex`.

    Cost
    ----
    No message.
    """
    return apply_blockwise(np.iscomplex, [x])


@implements(np.isreal, at=True)
def isreal(x: Any) -> Any:
    """Where the imaginary part is zero; see :func:`numpy.isreal`.

    Cost
    ----
    No message.
    """
    return apply_blockwise(np.isreal, [x])


# -- special functions and casts -----------------------------------------------------------------


@implements(np.isneginf, at=True)
def isneginf(x: Any, out: Any = None) -> Any:
    """Where an element is minus infinity; see :func:`numpy.isneginf`.

    Cost
    ----
    No message, unless `out` is distributed otherwise than `x`.
    """
    return _blockwise(np.isneginf, [x], out)


@implements(np.isposinf, at=True)
def isposinf(x: Any, out: Any = None) -> Any:
    """Where an element is plus infinity; see :func:`numpy.isposinf`.

    Cost
    ----
    No message, unless `out` is distributed otherwise than `x`.
    """
    return _blockwise(np.isposinf, [x], out)


@implements(np.sinc, at=True)
def sinc(x: Any) -> Any:
    """``sin(pi x) / (pi x)``; see :func:`numpy.sinc`.

    Cost
    ----
    No message.
    """
    return apply_blockwise(np.sinc, [x])


@implements(np.i0, at=True)
def i0(x: Any) -> Any:
    """The modified Bessel function of order 0; see :func:`numpy.i0`.

    Cost
    ----
    No message.
    """
    if x.dtype.kind not in "fc":
        x = x.astype(float)  # text is read there, which may fail on one rank
    result = apply_blockwise(np.i0, [x])
    # NumPy's is no ufunc, and gives a 0-d array where a ufunc gives a scalar.
    return result if x.ndim else result.like(result.mesh.asarray(result.block))


@implements(np.astype, at=True)
def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Any:
    """The elements cast to a data type; see :func:`numpy.astype`.

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


@implements(np.isclose, at=True)
def isclose(a: Any, b: Any, rtol: Any = 1.0e-5, atol: Any = 1.0e-8, equal_nan: bool = False) -> Any:
    """Where two arrays agree within a tolerance; see :func:`numpy.isclose`.

    Cost
    ----
    No message, unless the operands are distributed differently.
    """
    return apply_blockwise(np.isclose, [a, b, rtol, atol], equal_nan=equal_nan)


@implements(np.allclose)
def allclose(
    a: Any, b: Any, rtol: Any = 1.0e-5, atol: Any = 1.0e-8, equal_nan: bool = False
) -> bool:
    """Whether two arrays agree within a tolerance; see :func:`numpy.allclose`.

    Cost
    ----
    One allreduce of a truth value, and what aligns the operands.
    """
    return bool(np.all(isclose(a, b, rtol, atol, equal_nan)))


@implements(np.array_equal)
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> bool:
    """Whether two arrays have the same shape and elements; see :func:`numpy.array_equal`.

    Cost
    ----
    One allreduce of a truth value, and what aligns the operands.
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
def array_equiv(a1: Any, a2: Any) -> bool:
    """Whether two arrays are equal where they are broadcast; see :func:`numpy.array_equiv`.

    Cost
    ----
    One allreduce of a truth value, and what aligns the operands.
    """
    operands = _operands(a1, a2)
    if operands is None:
        return False
    try:
        np.broadcast_shapes(operands[0].shape, operands[1].shape)
    except ValueError:
        return False
    return bool(np.all(operands[0] == operands[1]))


def _operands(a1: Any, a2: Any) -> tuple[DistArray, DistArray] | None:
    """Both as arrays on one mesh; None if one is nothing that NumPy makes an array of."""
    mesh = common_mesh(a1, a2)
    try:
        return as_distarray(a1, mesh), as_distarray(a2, mesh)
    except Exception:  # whatever it is: NumPy then calls the two unequal
        return None
