"""Decorator `fuse`: runs a function whose body is one expression in one pass.

On the host the operations are deferred (:mod:`distarray.array.deferred`), from smaller blocks on
than elsewhere, and run when the function returns. On a device they become one kernel: the function
is called once with symbols that record its operations, and ``cupy.fuse`` compiles them.
"""

from collections.abc import Callable, Collection, Iterator
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from distarray.array import deferred
from distarray.array.alike import ELEMENTWISE
from distarray.array.base import Base
from distarray.array.core import DistArray
from distarray.array.operations import SCALARS, acting, result_type
from distarray.config import config
from distarray.typing import Args, Array, ArrayLike, Kwargs

__all__ = ["fuse"]

_Function = TypeVar("_Function", bound=Callable[..., Any])


def fuse(function: _Function) -> _Function:
    """Decorate a function whose whole body is one expression: it makes one pass over its operands.

    On the host, operations on large blocks are deferred and run together in any case. In a
    decorated function they are deferred from blocks of 1 MiB on, also if ``config.fuse`` is "off",
    and run when the function returns. On a device nothing is deferred. There an elementwise
    expression of arrays with one layout becomes one kernel by ``cupy.fuse``; any other function
    runs unchanged.

    Parameters
    ----------
    function : callable
        Takes distributed arrays and numbers, and returns an array or a tuple computed from them. On
        a device it is called once with symbols for each combination of data types, so its
        operations must depend only on its arguments.

    Returns
    -------
    callable
        A function with the same results. On the host they are bitwise equal. On a device they are
        equal up to rounding, since the compiler may contract a product and a sum.

    Cost
    ----
    That of the function's operations.

    Examples
    --------
    >>> import distarray.numpy as np
    >>> from distarray import fuse
    >>> @fuse
    ... def smooth(x, y):
    ...     return np.sqrt(x * x + y * y) / (1 + np.abs(x))
    >>> smooth(np.array([3.0, 0.0]), np.array([4.0, 2.0])).tolist()
    [1.25, 2.0]
    """
    kernels: dict[Any, Any] = {}

    @wraps(function)
    def fused(*args: ArrayLike, **kwargs: ArrayLike) -> Any:
        model = next((x for x in (*args, *kwargs.values()) if isinstance(x, Base)), None)
        if model is None:
            return function(*args, **kwargs)
        if model.mesh.device_type != "cpu":
            found = _on_device(function, kernels, model, args, kwargs)
            return function(*args, **kwargs) if found is NotImplemented else found
        with config.override(fuse="on"), deferred.early():
            found = function(*args, **kwargs)
        for x in found if isinstance(found, tuple) else (found,):
            if isinstance(x, Base):
                x.block  # noqa: B018 (its operations run)
        return found

    return cast(_Function, fused)


# -- on a device -----------------------------------------------------------------------------------

#: Types of numbers that are arguments of a kernel; other numbers are compiled into it.
_GIVEN = SCALARS - {int, bool}


def _on_device(
    function: Callable[..., Any], kernels: dict[Any, Any], model: Base, args: Args, kwargs: Kwargs
) -> Any:
    """Compute the function's results by one kernel; return NotImplemented if impossible."""
    if kwargs or not all(_is_alike(x, model) for x in args):
        return NotImplemented
    key = tuple([_kind(x) for x in args])
    given = [x.block if isinstance(x, Base) else x for x in args]
    try:
        if key not in kernels:
            kernels[key] = _kernel(function, args)
        blocks = NotImplemented if kernels[key] is None else kernels[key](*given)
    except Exception:  # CuPy cannot make a kernel: nothing has been written yet
        kernels[key] = None
        return NotImplemented
    if isinstance(blocks, tuple):
        return tuple([model.like(block) for block in blocks])
    return blocks if blocks is NotImplemented else model.like(blocks)


def _is_alike(x: ArrayLike, model: Base) -> bool:
    """Return True if an argument suits a kernel: a number, or an array laid out as `model`."""
    if type(x) is not DistArray:
        return type(x) in SCALARS
    layout = x.layout
    alike = layout is model.layout and x.mesh is model.mesh
    return alike and bool(layout.shape) and not layout.partials


def _kind(x: ArrayLike) -> Any:
    """Return an argument's contribution to the key of a kernel.

    It is the data type of an array or the type of a number; for int and bool also the value.
    """
    if isinstance(x, Base):
        return x.dtype
    return type(x) if type(x) in _GIVEN else (type(x), x)


class _Symbol(NDArrayOperatorsMixin):
    """Symbol for an argument or a result, which records the operations on it.

    Attributes
    ----------
    sample : array or number
        A value of its type; an array has no elements.
    operation : tuple
        The function and its operands; empty for an argument.
    """

    def __init__(self, sample: Array | complex, operation: Args = ()) -> None:
        self._sample, self._operation = sample, operation

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: ArrayLike, **kwargs: ArrayLike
    ) -> Any:
        if method != "__call__":
            raise _NoExpressionError
        return _noted(ufunc, inputs, kwargs)

    def __array_function__(
        self, function: Callable[..., Any], types: Collection[type], args: Args, kwargs: Kwargs
    ) -> Any:
        return _noted(function, args, kwargs)

    def __bool__(self) -> bool:
        raise _NoExpressionError


class _NoExpressionError(Exception):
    """Function that does other things than compute element by element."""


def _noted(function: Callable[..., Any], operands: Args, kwargs: Kwargs) -> _Symbol:
    act: Any = function if function in ELEMENTWISE else acting(function)
    samples = [x._sample if isinstance(x, _Symbol) else x for x in operands]
    known = all(isinstance(x, np.ndarray) or type(x) in SCALARS for x in samples)
    whole = any(isinstance(x, np.ndarray) for x in samples)
    if act is None or len(operands) != act.nin or kwargs or not (known and whole):
        raise _NoExpressionError
    dtype = result_type(act, samples)
    if dtype is None:
        raise _NoExpressionError
    return _Symbol(np.empty(0, dtype), (function, *operands))


def _kernel(function: Callable[..., Any], args: Args) -> Any:
    """Compile a kernel for arguments of these types; None if the function is not elementwise.

    Its operations have NumPy's data types: a result of CuPy with another type is converted.
    """
    symbols: list[Any] = [_symbol(x) for x in args]
    found = function(*symbols)
    results = found if isinstance(found, tuple) else (found,)
    if not all(isinstance(x, _Symbol) and x._operation for x in results):
        return None
    import cupy

    def replayed(*given: ArrayLike) -> Any:
        values = {id(x): y for x, y in zip(symbols, given, strict=True) if isinstance(x, _Symbol)}
        for symbol in _in_order(results):
            operation, *operands = symbol._operation
            bare = [values[id(x)] if isinstance(x, _Symbol) else x for x in operands]
            value = getattr(cupy, operation.__name__)(*bare)
            dtype = np.asarray(symbol._sample).dtype
            values[id(symbol)] = value if value.dtype == dtype else value.astype(dtype)
        made = tuple([values[id(x)] for x in results])
        return made if isinstance(found, tuple) else made[0]

    return cupy.fuse(replayed)


def _symbol(x: ArrayLike) -> Any:
    """Return the symbol for an argument; int and bool arguments are returned unchanged."""
    if isinstance(x, Base):
        return _Symbol(np.empty(0, x.dtype))
    return _Symbol(cast(complex, x)) if type(x) in _GIVEN else x


def _in_order(results: tuple[_Symbol, ...]) -> Iterator[_Symbol]:
    """Yield all symbols that results are computed from, operands first, and the results."""
    seen: set[int] = set()
    pending = [(x, False) for x in reversed(results)]
    while pending:
        x, ready = pending.pop()
        if ready:
            yield x
        elif x._operation and id(x) not in seen:
            seen.add(id(x))
            pending.append((x, True))
            pending += [(y, False) for y in x._operation[1:] if isinstance(y, _Symbol)]
