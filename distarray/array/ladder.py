"""Dispatcher: the steps of every call, whichever entry point it came through.

=====  ===================  ======================================================================
 step  module               action
=====  ===================  ======================================================================
    1  `divergence`         under `config.check` the ranks compare their calls
    2  `floaterrors`        errors and warnings that the program can observe reach it on all ranks
    3  here                 check that ``out=`` contains arrays
    4  `fallback`           Python objects: NumPy's own function, or gathered, as the row declares
    5  here                 pending folds and single coordinates are settled, unless the row accepts
                            them
    6  `one_rank`           NumPy's own function if one rank has everything and the row allows it
    7  the row's function   the implementation
    8  here                 a 0-d result becomes a number: NumPy's scalar
=====  ===================  ======================================================================

Calls on small arrays that every rank has whole skip all steps: NumPy computes with the blocks
(:mod:`~distarray.array.at_hand`) if the row allows it.

Entry points: NumPy's functions and methods of arrays enter by :func:`call`, ufuncs and their
methods by :func:`call_ufunc`, and calls without a row by :func:`watched`. Python's operators and
indexing use the blocks directly if :func:`is_free` returns True: then no step has any effect.
"""

import operator
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np

from distarray.array import at_hand, registry
from distarray.array.base import (
    Base,
    all_readable,
    check_out,
    is_number,
    operands_in,
    own_layout,
    readable,
    sequence_like,
)
from distarray.array.divergence import verify
from distarray.array.error_words import are_ours
from distarray.array.floaterrors import (
    NORMAL,
    agreed,
    error_state,
    is_on_one_rank,
    mesh_concerned,
    settle_before,
    told,
)
from distarray.array.immutable import may_have_effects
from distarray.array.passed import passed
from distarray.array.registry import FUNCTIONS, UFUNC_METHODS, Objects, Row, is_overridden
from distarray.array.settling import ATOMS, as_they_are, settled_arguments
from distarray.array.sharing import to_be_written, writing
from distarray.array.speedups import quick
from distarray.array.unhashable import made_again
from distarray.comm.observed import is_observed
from distarray.config import in_force, on_check
from distarray.layout import Layout
from distarray.typing import Args, Kwargs, UfuncOut

__all__ = [
    "ENTRIES",
    "at_once",
    "basic_keys",
    "call",
    "call_in_general",
    "call_ufunc",
    "is_free",
    "number_at_once",
    "numpys_at_once",
    "on_objects",
    "only_reads",
    "passed",
    "product",
    "two_at_once",
    "ufunc_at_once",
    "unwatched",
    "usual",
    "watched",
]

_Method = TypeVar("_Method", bound=Callable[..., Any])
#: Function that calls NumPy on whole arrays of Python objects; set by
#: :mod:`distarray.array.fallback`.
on_objects: list[Callable[..., Any]] = []

#: The error state under which steps 1 and 2 have no effect, if every rank has all of the operands
#: or nobody observes warnings. Once the program has enabled the comparison of calls or overridden
#: an operator, no state equals this one.
usual: list[object] = [NORMAL]
#: True until a program compares calls or overrides operators. Calls on arrays that every rank has
#: whole check nothing else: NumPy raises the same errors on every rank, floating-point errors
#: included.
unwatched: list[bool] = [True]
#: Types of key entries that NumPy and this library read alike.
ENTRIES = frozenset({int, slice, type(None), type(Ellipsis), np.int64})
#: The same types; empty once indexing has to use the dispatcher, too.
basic_keys: set[type] = set(ENTRIES)


#: Functions that only read their arguments and return new arrays, with the number of arguments
#: up to which this is known.
_READ: dict[Any, int] = {np.matmul: 2, np.dot: 2, np.vdot: 2, np.inner: 2, np.outer: 2}
_READ |= dict.fromkeys([np.sum, np.prod, np.mean, np.max, np.min, np.any, np.all], 2)
_READ |= dict.fromkeys([np.copy, np.argmax, np.argmin, np.linalg.norm, np.std, np.var], 2)
_READ |= {np.where: 3, operator.getitem: 2}


def only_reads(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return True if a call is known to change no argument and to return no shared memory."""
    return not kwargs and len(args) <= _READ.get(function, 0)


def _look_closer() -> None:
    usual[0] = object()
    unwatched[0] = False
    if is_overridden(operator.getitem) or is_overridden(operator.setitem):
        basic_keys.clear()


def _compare() -> None:
    _look_closer()
    basic_keys.clear()


registry.listeners.append(_look_closer)
on_check(_compare)


# -- entry points --------------------------------------------------------------------------------


def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the implementation of a NumPy function, or the fallback."""
    try:
        result = at_once(function, args, kwargs)
        return call_in_general(function, *args, **kwargs) if result is NotImplemented else result
    except TypeError:
        found = made_again(call, (function, *args), kwargs)
        if found is None:
            raise
        return found[0]


def call_in_general(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an implementation as :func:`call`, without the fast path of small whole operands."""
    passed.number += 1
    if only_reads(function, args, kwargs):
        passed.harmless += 1
        whole = all_readable(args)
        if whole is not args:
            return call(function, *whole)
    row = FUNCTIONS.get(function)
    is_writer = "out" in kwargs or (row is not None and (row.out >= 0 or row.writes >= 0))
    targets = _targets(row, args, kwargs) if is_writer else []
    if not targets:
        return _call(function, row, args, kwargs)
    with writing(*targets, whole=row is None or row.writes < 0):
        return _call(function, row, args, kwargs)


def _targets(row: Row | None, args: Args, kwargs: Kwargs) -> list[Base]:
    """Return the arrays written by a call whose writes must be registered (`to_be_written`)."""
    places = () if row is None else (row.writes, row.out)
    found = [args[place] for place in places if 0 <= place < len(args)]
    if "out" in kwargs:
        found.append(kwargs["out"])
    return to_be_written(found) if found else []


def _call(function: Callable[..., Any], row: Row | None, args: Args, kwargs: Kwargs) -> Any:
    if error_state() is usual[0] and not is_observed():
        result = _climb(function, row, args, kwargs)
    elif row is None or row.computes:
        result = watched(function, args, kwargs, _climb, (function, row, args, kwargs))
    else:
        verify(function, args, kwargs)
        result = _climb(function, row, args, kwargs)
    return _handed_out(result, args, kwargs)


def call_ufunc(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the implementation of a ufunc or of one of its methods."""
    reads = method == "__call__" and len(inputs) == ufunc.nin and "out" not in kwargs
    whole = all_readable(inputs) if reads else inputs
    if whole is not inputs:
        return ufunc(*whole, **kwargs)
    key: Any = ufunc if method == "__call__" else (ufunc, method)
    if key in FUNCTIONS:
        return call(key, *inputs, **kwargs)
    if unwatched[0]:
        found = at_hand.answer_to_method(ufunc, method, inputs, kwargs)
        if found is not NotImplemented:
            return found
    passed.number += 1
    passed.harmless += reads
    first = inputs[0] if method == "at" else None
    targets = [] if reads else to_be_written((kwargs.get("out"), first))
    if not targets:
        return _call_ufunc(ufunc, method, inputs, kwargs)
    with writing(*targets, whole=method != "at"):
        return _call_ufunc(ufunc, method, inputs, kwargs)


def _call_ufunc(ufunc: np.ufunc, method: str, inputs: Args, kwargs: Kwargs) -> Any:
    act = UFUNC_METHODS[method].function
    if error_state() is usual[0] and not is_observed():
        result = act(ufunc, *inputs, **kwargs)
    else:
        key = ufunc, method
        result = watched(ufunc, inputs, kwargs, act, (ufunc, *inputs), kwargs, key)
    return _handed_out(result, inputs, kwargs)


def at_once(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a call on small arrays that every rank has whole; else return NotImplemented."""
    row = FUNCTIONS.get(function)
    if row is not None and row.small is not None and args and unwatched[0]:
        second = args[1] if len(args) > 1 else None
        if isinstance(args[0], Base):
            if not isinstance(second, Base):
                found = at_hand.answer_for_one(row.small, args[0], args[1:], kwargs)
                if found is not NotImplemented:
                    return found
            elif len(args) == 2 and not kwargs:
                return at_hand.answer_for_two(row.small, args[0], second)
        return at_hand.answer(row.small, args, kwargs)
    return NotImplemented


def ufunc_at_once(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """Call a ufunc on small whole arrays, as :func:`at_once`."""
    if unwatched[0]:
        return at_hand.answer_to_ufunc(ufunc, inputs)
    return NotImplemented


def two_at_once(ufunc: np.ufunc, x: Base, y: Base) -> Any:
    """Call a ufunc on two arrays, as :func:`ufunc_at_once`."""
    if unwatched[0]:
        return at_hand.answer_to_two(ufunc, x, y)
    return NotImplemented


def product(x: Base, y: Base) -> Any:
    """Compute ``x @ y`` without NumPy's dispatch, which would call this library as well."""
    found = at_hand.answer_to_product(np.matmul, x, y) if unwatched[0] else NotImplemented
    if found is not NotImplemented:
        return found
    if type(x) is type(y) is x.plain_type:
        return call_in_general(np.matmul, x, y)
    return np.matmul(cast("Any", x), cast("Any", y))


def numpys_at_once(method: _Method) -> _Method:
    """Decorator: for small replicated arrays, call NumPy's method on the block instead."""
    return _at_once_first(method, whole=False)


def number_at_once(method: _Method) -> _Method:
    """Decorator as :func:`numpys_at_once`, for methods that return a number without arguments."""
    return _at_once_first(method, whole=True)


def _at_once_first(method: _Method, whole: bool) -> _Method:
    """Return a method that tries NumPy's first; with `whole`, also on arrays cut over one rank.

    A number that all ranks have needs no layout, whereas an array keeps the operand's layout.
    """
    act: Any = getattr(np.ndarray, method.__name__)

    @wraps(method)
    def first(self: Base, *args: Any, **kwargs: Any) -> Any:
        layout = own_layout(self)
        if layout is None and whole and (elements := readable(self)) is not self:
            return quickest(elements, *args, **kwargs)
        if unwatched[0] and layout is not None and layout.is_whole:
            bare = whole and not args and not kwargs
            found = at_hand.answer_for_one(act, self, args, kwargs, bare)
            if found is not NotImplemented:
                return found
        return method(self, *args, **kwargs)

    quickest = quick("number" if whole else "method", act)(cast("_Method", first))
    return quickest


def is_free(function: Callable[..., Any], layout: Layout) -> bool:
    """Return True if a call can use the blocks of arrays of this layout without the dispatcher."""
    if layout.partials or layout.is_lone_element:  # NumPy may report errors of placeholders
        return False
    if error_state() is usual[0] and (layout.is_whole or not is_observed()):
        return True
    return not (in_force().check or is_overridden(function) or (told() and not layout.is_whole))


# -- steps 1 and 2 -------------------------------------------------------------------------------


def watched(
    function: Callable[..., Any],
    args: Iterable[Any],
    kwargs: dict[str, Any],
    act: Callable[..., Any],
    given: Iterable[Any],
    named: dict[str, Any] | None = None,
    key: Any = None,
) -> Any:
    """Make a call that the ranks compare, and whose errors and warnings reach all ranks.

    Parameters
    ----------
    function, args, kwargs
        The call, as the program made it.
    act, given, named
        The function that carries out the call, and its arguments.
    key : object
        For :func:`~distarray.array.floaterrors.agreed`, if it differs from the function.
    """
    passed.number += 1
    verify(function, args, kwargs)
    values = [*args, *kwargs.values()] if told() else []
    if not values or (is_on_one_rank(values) and not are_ours(key or function)):
        return act(*given, **(named or {}))
    settle_before(values)
    return agreed(mesh_concerned(values), key or function, act, *given, **(named or {}))


# -- steps 3 to 7 --------------------------------------------------------------------------------


def _climb(
    function: Callable[..., Any], row: Row | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if row is None:
        return registry.fallback[0](function, args, kwargs)
    if row.out >= 0:
        _refuse_others(kwargs.get("out") if len(args) <= row.out else args[row.out])
    if not (as_they_are(args, row.lists) and (not kwargs or as_they_are(kwargs.values()))):
        server = _server_of_objects(function, row, [*args, *kwargs.values()])
        if server is not None:
            return server(function, args, kwargs)
        args, kwargs = settled_arguments(row, args, kwargs)
    return row.answer(function, args, kwargs)


def _refuse_others(out: UfuncOut) -> None:
    """Raise NumPy's error if `out` is not an array."""
    for item in out if type(out) is tuple else (out,):
        if item is not None:
            check_out(item)


def _server_of_objects(
    function: Callable[..., Any], row: Row, values: list[Any]
) -> Callable[..., Any] | None:
    """Return the function for Python objects; None if the implementation accepts them itself."""
    if row.objects is Objects.ENGINE:
        return None
    operands = list(operands_in(values))
    objects = [x for x in operands if x.block.dtype.hasobject]
    if not objects:
        return None
    if row.objects is Objects.GATHER and not all(x.layout.is_replicated for x in operands):
        return registry.fallback[0]
    mesh = operands[0].mesh
    here = mesh.coords is not None and mesh.device_type == "cpu"  # no objects on a device
    if not here or not str(function.__module__).startswith("numpy"):
        return None
    if all(x.layout.is_replicated for x in operands):
        return on_objects[0]
    # Writing in place calls no methods of objects, and would be lost in a gathered copy.
    return registry.fallback[0] if row.writes < 0 and may_have_effects(objects) else None


# -- step 8 --------------------------------------------------------------------------------------


def _handed_out(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a result in the program's form: 0-d results become NumPy's scalars."""
    if isinstance(result, Base):
        if not is_number(result) or _of_the_standard(args):
            return result
        stays = bool(kwargs) and _of_the_standard(kwargs.values())  # rarely any: fast in loops
        return result if stays else result.number()
    if isinstance(result, tuple) and any(map(is_number, result)):
        items = [_handed_out(item, args, kwargs) for item in result]
        return sequence_like(result, items)
    return result


def _of_the_standard(values: Iterable[Any]) -> bool:
    """Return True if an operand is a 0-d array of the array API standard; so are results then."""
    for value in values:
        if type(value) in ATOMS:
            continue
        if is_number(value) or (isinstance(value, (tuple, list)) and _of_the_standard(value)):
            return True
    return False
