"""Registry of the implementation of each NumPy function, and its traits.

Tables are keyed by the NumPy function object. A row declares the traits that the dispatcher
(:mod:`distarray.array.ladder`) must know before it calls the implementation.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any, Protocol

import numpy as np

from distarray.layout import Fold
from distarray.typing import Function, Operation

__all__ = [
    "FUNCTIONS",
    "UFUNC_METHODS",
    "Objects",
    "Row",
    "Shortcut",
    "implements",
    "implements_method",
    "is_overridden",
    "register_function",
    "register_ufunc",
    "unregistered",
]


class Objects(Enum):
    """Treatments of arrays of Python objects."""

    #: If all operands are whole, NumPy's own function is called; else the implementation.
    NUMPY = "NumPy's function where whole"
    #: As `NUMPY`, but cut operands are gathered, since elements are compared or measured.
    GATHER = "gathered"
    #: The implementation accepts them like any other type.
    ENGINE = "as any other"


class Shortcut(Protocol):
    """NumPy's own call if one rank has everything; see :mod:`distarray.array.one_rank`."""

    def answer(
        self, row: "Row", key: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the result of a call, or NotImplemented if the implementation must be called."""


@dataclass(slots=True, frozen=True)
class Row:
    """An implementation and its traits.

    Attributes
    ----------
    function : callable
        The implementation.
    through : frozenset of Fold
        Pending folds that it accepts; others are carried out before the call.
    at : bool
        True if it accepts arrays stored at one coordinate of a mesh dimension
        (:class:`~distarray.layout.At`); otherwise they are replicated before the call.
    like : bool
        True if it creates arrays, and accepts the argument ``like=`` of NumPy's function.
    lists : bool
        True if it reads lists itself, with the distributed arrays in them; they are then not
        searched for arrays to be settled.
    computes : bool
        True if it computes with elements, so that it may raise floating-point errors, on which
        the ranks then agree. False if it only describes or rearranges elements.
    objects : Objects
        Treatment of Python objects.
    alone : Shortcut or None
        NumPy's own call if one rank has everything.
    small : callable or None
        NumPy's own function without its dispatch, for small operands that every rank has whole.
        None if this library decides the layout of the result, or if the result may be large or be
        the operand itself.
    settles : bool
        True if it settles all of its operands itself.
    out : int
        Position of the parameter `out`; -1 if `out` cannot be given by position.
    writes : int
        Position of the argument that it changes in place; -1 if it changes only `out`.
    outside : bool
        True if a program has registered it; operators then always use the dispatcher.
    """

    function: Callable[..., Any]
    through: frozenset[Fold] = frozenset()
    at: bool = False
    like: bool = False
    lists: bool = False
    computes: bool = True
    objects: Objects = Objects.ENGINE
    alone: Shortcut | None = None
    small: Callable[..., Any] | None = None
    settles: bool = False
    out: int = -1
    writes: int = -1
    outside: bool = False

    def answer(self, key: Operation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Carry out the last dispatch steps: NumPy's call on one rank, or the implementation."""
        if self.alone is not None:
            found = self.alone.answer(self, key, args, kwargs)
            if found is not NotImplemented:
                return found
        return self.function(*args, **kwargs)


#: NumPy function -> row. Keys are also other callables for an operation (`operator.getitem`).
FUNCTIONS: dict[Any, Row] = {}
#: Method of a ufunc ("__call__", "reduce", ...) -> row of a function(ufunc, *inputs, **keywords).
UFUNC_METHODS: dict[str, Row] = {}


def implements(
    *numpy_functions: Callable[..., Any],
    through: Iterable[Fold] = (),
    at: bool = False,
    like: bool = False,
    lists: bool = False,
    computes: bool = True,
    objects: Objects = Objects.NUMPY,
    alone: Shortcut | None = None,
    small: bool | Callable[..., Any] = True,
    writes: int = -1,
) -> Callable[[Function], Function]:
    """Register the decorated function as the implementation of NumPy functions.

    Parameters
    ----------
    *numpy_functions : callable
        The NumPy functions that it implements; each may be registered once.
    through, at, like, lists, computes, objects, alone, writes
        Traits; see :class:`Row`.
    small : bool or callable
        True if NumPy accepts small operands that every rank has whole; or a function that accepts
        them, with the same arguments, such as a method of NumPy's arrays.
    """

    def register(function: Function) -> Function:
        for numpy_function in numpy_functions:
            if numpy_function in FUNCTIONS:
                raise ValueError(f"{numpy_function!r} is registered already")
            FUNCTIONS[numpy_function] = Row(
                function,
                frozenset(through),
                at,
                like,
                lists,
                computes,
                objects,
                alone,
                _own_function(numpy_function) if small is True else small or None,
                out=_position_of_out(function),
                writes=writes,
            )
        return function

    return register


def _own_function(numpy_function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the undispatched NumPy function, or None if NumPy does not expose it."""
    return getattr(numpy_function, "_implementation", None)


def implements_method(name: str, alone: Shortcut | None = None) -> Callable[[Function], Function]:
    """Register the decorated function as the implementation of a method of all ufuncs.

    It is called as ``function(ufunc, *inputs, **keywords)``.

    Parameters
    ----------
    name : str
        "__call__", "reduce", "accumulate", "reduceat", "outer" or "at".
    alone : Shortcut, optional
        As in :class:`Row`. The function settles its operands itself.
    """

    def register(function: Function) -> Function:
        UFUNC_METHODS[name] = Row(function, alone=alone, settles=True)
        return function

    return register


def register_function(
    numpy_function: Callable[..., Any], *, through: Iterable[Fold] = (), at: bool = False
) -> Callable[[Function], Function]:
    """Make the decorated function implement a NumPy function, in place of the built-in one.

    Parameters
    ----------
    numpy_function : callable
        A NumPy function that can be overridden, or one of a library that uses its protocol.
    through : iterable of Fold
        Pending folds that the function accepts; others are carried out first.
    at : bool
        True if it accepts arrays stored at one coordinate of a mesh dimension.

    Returns
    -------
    callable
        The decorator. The function receives the arguments of the call. It may return NotImplemented
        without having communicated: then the earlier implementation is called.

    Notes
    -----
    Methods of arrays call the function, too (``x.sort()`` calls :func:`numpy.sort`). Operations of
    this library that are composed of others may call the built-in implementations.

    Examples
    --------
    >>> import numpy, distarray
    >>> @distarray.register_function(numpy.i0)
    ... def fast_i0(x):
    ...     return NotImplemented if x.dtype.kind == "c" else distarray.map_blocks(numpy.i0, x)
    """

    def register(function: Function) -> Function:
        before = FUNCTIONS.get(numpy_function)

        @wraps(function)
        def first(*args: Any, **kwargs: Any) -> Any:
            value = function(*args, **kwargs)
            if value is not NotImplemented:
                return value
            return unregistered(numpy_function, before, args, kwargs)

        FUNCTIONS[numpy_function] = Row(
            first,
            frozenset(through),
            at,
            like=before is not None and before.like,
            out=_position_of_out(function),
            writes=-1 if before is None else before.writes,
            outside=True,
        )
        for listener in listeners:
            listener()
        return function

    return register


def register_ufunc(
    ufunc: np.ufunc, method: str = "__call__", *, through: Iterable[Fold] = ()
) -> Callable[[Function], Function]:
    """Make the decorated function implement a ufunc or ufunc method, in place of the built-in one.

    Parameters
    ----------
    ufunc : numpy.ufunc
        NumPy's or any other, such as those of :mod:`scipy.special`. The corresponding Python
        operators (``a + b``) call the function as well.
    method : str
        "__call__", or "reduce", "accumulate", "reduceat", "outer", "at".
    through : iterable of Fold
        Pending folds that the function accepts; others are carried out first.

    Returns
    -------
    callable
        The decorator. The function receives the inputs and keywords of the call. It may return
        NotImplemented without having communicated: then the built-in implementation is called.

    Examples
    --------
    >>> import numpy, distarray
    >>> half = numpy.frompyfunc(lambda v: v / 2, 1, 1)  # of Python objects, one after the other
    >>> @distarray.register_ufunc(half)
    ... def fast_half(x):
    ...     return x * 0.5
    >>> half(distarray.distribute(numpy.arange(4.0))).full()
    array([0. , 0.5, 1. , 1.5])
    """
    if method != "__call__" and method not in UFUNC_METHODS:
        raise ValueError(f"a ufunc has no method {method!r}; there are {sorted(UFUNC_METHODS)}")
    key: Any = ufunc if method == "__call__" else (ufunc, method)
    return register_function(key, through=through)


#: Functions that are called when a program registers a function.
listeners: list[Callable[[], None]] = []
#: Function that is called with a function without a row and its arguments; set by the fallback.
fallback: list[Callable[..., Any]] = []


def is_overridden(key: Operation) -> bool:
    """Return True if a program has registered its own implementation of an operation."""
    row = FUNCTIONS.get(key)
    return row is not None and row.outside


def unregistered(
    key: Operation, row: Row | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the implementation that was in force before a program registered its own."""
    if row is not None:
        return row.answer(key, args, kwargs)
    if isinstance(key, np.ufunc):
        return UFUNC_METHODS["__call__"].function(key, *args, **kwargs)
    if isinstance(key, tuple):
        return UFUNC_METHODS[key[1]].function(key[0], *args, **kwargs)
    return fallback[0](key, args, kwargs)


def _position_of_out(function: Callable[..., Any]) -> int:
    while hasattr(function, "__wrapped__"):  # the inner function has the parameters
        function = function.__wrapped__
    code = getattr(function, "__code__", None)  # inspect.signature would slow down the import
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    return names.index("out") if "out" in names else -1
