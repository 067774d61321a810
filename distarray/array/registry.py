"""Which function of ours stands behind which function of NumPy.

Tables are keyed by the NumPy function object. A row says what the implementation can be handed:
an operand with a pending fold is settled before the call unless its fold is listed in `through`,
and one that lives at a single coordinate (:class:`~distarray.layout.At`) unless `at` is true. What
is given as `out` stays where it is: it is written to, and may be a view of another array.
"""

import operator
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

from distarray.array.base import Base, operands_in
from distarray.array.divergence import verify
from distarray.array.floaterrors import NORMAL, agreed, error_state, mesh_concerned, raises
from distarray.config import config
from distarray.layout import Fold

__all__ = [
    "FUNCTIONS",
    "UFUNC_METHODS",
    "Base",
    "Row",
    "call",
    "implements",
    "register_function",
    "register_ufunc",
    "set_fallback",
    "settled_arguments",
]


Function = TypeVar("Function", bound=Callable[..., Any])


class Row(NamedTuple):
    """An implementation and what it may be handed."""

    function: Callable[..., Any]
    through: frozenset[Fold] = frozenset()
    at: bool = False
    like: bool = False
    #: Position of the parameter `out`; -1 if it has none that can be given by position.
    out: int = -1
    #: Whether it cannot work on blocks of Python objects: it compares or measures elements.
    measures: bool = False
    #: Whether it computes with elements, so that floating-point errors may be raised.
    computes: bool = True
    #: Whether it takes lists as they are, with whatever distributed arrays there are in them.
    lists: bool = False
    #: Whether NumPy's function takes its place where operands lie whole, Python objects among them.
    numpys: bool = False


#: NumPy function -> row. Other callables that stand for an operation (`operator.getitem`) too.
FUNCTIONS: dict[Callable[..., Any], Row] = {}
#: Method of a ufunc ("__call__", "reduce", ...) -> function(ufunc, *inputs, **keywords).
UFUNC_METHODS: dict[str, Callable[..., Any]] = {}

#: Where the functions are that compare elements across ranks or count their bytes. Python objects
#: that are cut are gathered for these.
_MEASURING = tuple(
    [f"distarray.ops.{name}" for name in ("sorting", "sets", "quantiles", "extremes", "statistics")]
)
#: Where the functions are that only describe and rearrange elements, and which of the others do.
_MOVING = tuple(
    [
        f"distarray.ops.{name}"
        for name in ("flattening", "metadata", "printing", "reshape", "shape", "splitting")
    ]
)
_READING = frozenset({np.real, np.imag, operator.getitem})
#: Types of arguments that are what they are.
_ATOMS = frozenset({type(None), bool, int, float, complex, str, type})

_fallback: list[Callable[..., Any]] = []
_on_objects: list[Callable[..., Any]] = []


def implements(
    *numpy_functions: Callable[..., Any],
    through: Iterable[Fold] = (),
    at: bool = False,
    like: bool = False,
    lists: bool = False,
) -> Callable[[Function], Function]:
    """Register the decorated function behind NumPy's.

    Parameters
    ----------
    *numpy_functions : callable
        The functions of NumPy that it implements; each may be registered once.
    through : iterable of Fold
        Pending folds that the implementation takes as they are.
    at : bool
        Whether it takes operands that live at one coordinate of a mesh dimension.
    like : bool
        Whether it makes arrays, and takes the one that NumPy was handed as ``like=``.
    lists : bool
        Whether it sees itself to distributed arrays in lists, which then are not looked through.
    """

    def register(function: Function) -> Function:
        for numpy_function in numpy_functions:
            if numpy_function in FUNCTIONS:
                raise ValueError(f"{numpy_function!r} is registered already")
            module = function.__module__
            FUNCTIONS[numpy_function] = Row(
                function,
                frozenset(through),
                at,
                like,
                _position_of_out(function),
                measures=module.startswith(_MEASURING),
                computes=numpy_function not in _READING and not module.startswith(_MOVING),
                lists=lists,
                numpys=module.startswith("distarray.ops.")
                and not (like or isinstance(numpy_function, type))
                and str(numpy_function.__module__).startswith("numpy"),
            )
        return function

    return register


def register_function(
    numpy_function: Callable[..., Any], *, through: Iterable[Fold] = (), at: bool = False
) -> Callable[[Function], Function]:
    """Put the decorated function behind NumPy's, before what is built in.

    Parameters
    ----------
    numpy_function : callable
        A function of NumPy's that can be overridden, or of a library that uses its protocol.
    through : iterable of Fold
        Pending folds that the function takes as they are; others are carried out first.
    at : bool
        Whether it takes arrays that live at one coordinate of a mesh dimension.

    Returns
    -------
    callable
        The decorator. The function gets the arguments of the call. It may return NotImplemented,
        without having communicated: what stood behind NumPy's function then is called.

    Notes
    -----
    Methods of arrays go the same way (``x.sort()`` calls :func:`numpy.sort`); operations of this
    library that are made of others may use the built-in ones.

    Examples
    --------
    >>> import numpy, distarray
    >>> @distarray.register_function(numpy.i0)
    ... def fast_i0(x):
    ...     return NotImplemented if x.dtype.kind == "c" else distarray.map_blocks(numpy.i0, x)
    """

    def register(function: Function) -> Function:
        before = FUNCTIONS.get(numpy_function)
        if isinstance(numpy_function, np.ufunc):
            for listener in operator_listeners:
                listener(numpy_function)

        @wraps(function)
        def first(*args: Any, **kwargs: Any) -> Any:
            value = function(*args, **kwargs)
            if value is not NotImplemented:
                return value
            if before is None:
                return _built_in(numpy_function, args, kwargs)
            return before.function(*args, **kwargs)

        like = before is not None and before.like
        FUNCTIONS[numpy_function] = Row(
            first, frozenset(through), at, like, _position_of_out(function)
        )
        return function

    return register


def register_ufunc(
    ufunc: np.ufunc, method: str = "__call__", *, through: Iterable[Fold] = ()
) -> Callable[[Function], Function]:
    """Put the decorated function behind a ufunc or one of its methods, before what is built in.

    Parameters
    ----------
    ufunc : numpy.ufunc
        NumPy's or any other, such as those of :mod:`scipy.special`. Python's operators that
        stand for it (``a + b``) call the function as well.
    method : str
        "__call__", or "reduce", "accumulate", "reduceat", "outer", "at".
    through : iterable of Fold
        Pending folds that the function takes as they are; others are carried out first.

    Returns
    -------
    callable
        The decorator. The function gets the inputs and keywords of the call; it may return
        NotImplemented, without having communicated, to leave it to what is built in.

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


#: Called with a ufunc that somebody registers: what has a shorter way to it gives that up.
operator_listeners: list[Callable[[np.ufunc], None]] = []


def _built_in(key: Any, args: Any, kwargs: Any) -> Any:
    """What serves a call that nobody has registered."""
    if isinstance(key, np.ufunc):
        return UFUNC_METHODS["__call__"](key, *args, **kwargs)
    if isinstance(key, tuple):
        return UFUNC_METHODS[key[1]](key[0], *args, **kwargs)
    return _fallback[0](key, args, kwargs)


def _position_of_out(function: Callable[..., Any]) -> int:
    while hasattr(function, "__wrapped__"):  # a decorated function has the parameters within
        function = function.__wrapped__
    code = getattr(function, "__code__", None)  # inspect.signature takes long, at each import
    names = code.co_varnames[: code.co_argcount] if code is not None else ()
    return names.index("out") if "out" in names else -1


def set_fallback(function: Callable[..., Any], on_objects: Callable[..., Any]) -> None:
    """Name the functions(numpy_function, args, kwargs) that serve what has no row, and objects.

    `on_objects` is called where all operands lie whole and Python objects are among them.
    """
    _fallback[:], _on_objects[:] = [function], [on_objects]


def _settled(value: Any, row: Row) -> Any:
    """An argument as the implementation takes it; itself if it can be."""
    if isinstance(value, Base):
        layout = value.layout
        if layout.is_plain:
            return value
        folds = {layout.placements[m].op for m in layout.partials}  # type: ignore[attr-defined]
        fits = (row.at or not layout.ats) and folds <= row.through
        return value if fits else value.plain()
    if isinstance(value, (list, tuple)):
        items = [_settled(item, row) for item in value]
        if any(new is not old for new, old in zip(items, value, strict=True)):
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _refuse_others(out: Any) -> None:
    """Raise what NumPy raises for scalars, and what is no array, that are to be written to."""
    if out is None:
        return
    if type(out) is tuple:
        for item in out:
            _refuse_others(item)
    elif isinstance(getattr(out, "block", out), np.generic) or not hasattr(out, "dtype"):
        raise TypeError("return arrays must be of ArrayType")


def _settle_folds(out: Any) -> None:
    """Make arrays that are to be written to ready for it, without moving them."""
    for value in out if isinstance(out, (tuple, list)) else (out,):
        if isinstance(value, Base) and value.layout.partials:
            value.settle()


def settled_arguments(
    row: Row, args: Iterable[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as an implementation takes them.

    Pending folds are carried out in place. What lives at one coordinate is replicated in a copy:
    it may be a view, and what is written to it later must still reach the array it is a view of.
    """
    found = []
    for position, value in enumerate(args):
        if position == row.out:
            _settle_folds(value)
        found.append(value if position == row.out else _settled(value, row))
    named = {}
    for name, value in kwargs.items():
        if name == "out":
            _settle_folds(value)
        named[name] = value if name == "out" else _settled(value, row)
    return found, named


def _server(row: Row, values: list[Any]) -> Callable[..., Any] | None:
    """What takes the place of an implementation that is handed Python objects, if anything does."""
    operands = list(operands_in(values))
    objects = [x for x in operands if x.block.dtype.hasobject]
    if not objects:
        return None
    if row.measures and any(not x.layout.is_replicated for x in objects):
        return _fallback[0]
    mesh = operands[0].mesh
    here = mesh.coords is not None and mesh.device_type == "cpu"  # objects never lie on a device
    whole = row.numpys and here and all(x.layout.is_replicated for x in operands)
    return _on_objects[0] if whole else None


def _as_they_are(values: Iterable[Any], lists: bool = False) -> bool:
    """Whether no argument can be, or hold, an array that has to be settled; `lists` as in a row."""
    for value in values:
        if type(value) in _ATOMS:
            continue
        if isinstance(value, Base):
            if not value.layout.is_plain or value.block.dtype.hasobject:
                return False
        elif isinstance(value, (tuple, list)) and not (lists or _all_as_they_are(value)):
            return False
    return True


def _all_as_they_are(values: Iterable[Any]) -> bool:
    return _ATOMS.issuperset(map(type, values)) or _as_they_are(values)  # lists may be long


def call(numpy_function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call what stands behind a NumPy function, or the fallback."""
    if config.settings.check:
        verify(numpy_function, args, kwargs)
    row = FUNCTIONS.get(numpy_function)
    if error_state() is not NORMAL and raises() and (row is None or row.computes):
        mesh = mesh_concerned([*args, *kwargs.values()])
        if mesh is not None:
            return agreed(mesh, call, numpy_function, *args, **kwargs)
    if row is None:
        return _fallback[0](numpy_function, args, kwargs)
    return _called(numpy_function, row, args, kwargs)


def _called(numpy_function: Any, row: Row, args: Any, kwargs: dict[str, Any]) -> Any:
    if row.out >= 0:
        _refuse_others(kwargs.get("out") if len(args) <= row.out else args[row.out])
    if _as_they_are(args, row.lists) and (not kwargs or _as_they_are(kwargs.values())):
        return row.function(*args, **kwargs)
    server = _server(row, [*args, *kwargs.values()])
    if server is not None:
        return server(numpy_function, args, kwargs)
    given, named = settled_arguments(row, args, kwargs)
    return row.function(*given, **named)
