"""Conversion between arrays of a program's own classes and plain distributed arrays.

An array of such a class (:mod:`~distarray.array.subclasses`) contains a plain array, with which the
library computes: :func:`bare` returns it, and :func:`dressed` wraps a result in the class, as NumPy
does for subclasses of its arrays.
"""

import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from distarray.array.assigning import as_number
from distarray.array.base import Base, is_subclass
from distarray.array.core import DistArray, wrap
from distarray.array.creation import common_mesh, distribute
from distarray.layout import Layout
from distarray.typing import Args, ArrayLike, DTypeLike, Key, Kwargs

__all__ = [
    "Context",
    "bare",
    "bare_all",
    "cell",
    "dressed",
    "finished",
    "first_of",
    "is_class",
    "is_dressed",
    "listed",
    "plain_array",
    "plain_kind",
    "taken",
    "taken_as",
    "wrapped",
]

#: The ufunc of a result, its arguments, and the index of the result among the ufunc's results.
Context = tuple[Any, ...] | None
#: Arguments of calls, or a single argument.
Value = Key | Args | Kwargs
_new = object.__new__
#: The class that programs call `ndarray`: a view as this class is a plain array. Set by the module
#: of that class.
plain_kind: list[Any] = [np.ndarray]
#: Function that converts a NumPy array to a plain array; set together with `plain_kind`.
plain_array: list[Callable[[Any], Any]] = [distribute]
#: NumPy's own classes, and functions that convert their arrays to a class of this library.
taken_as: dict[type, Callable[[Any], Any]] = {}


def is_dressed(value: Value) -> bool:
    """Return True if a value is a distributed array of a program's class."""
    return isinstance(value, Base) and value.is_dressed


def is_class(value: DTypeLike) -> bool:
    """Return True if a value is a class of arrays; NumPy's scalar types are not."""
    if not isinstance(value, type) or issubclass(value, np.generic):
        return False
    return value is plain_kind[0] or hasattr(value, "__array_ufunc__")


def bare(value: Value) -> Any:
    """Return the plain array of an array of a program's class; other values unchanged.

    A constant can be combined with arrays of all meshes; its plain array is on the default mesh.
    """
    if not isinstance(value, Base) or not value.is_dressed:
        return value
    found: Any = value
    found = found._distributed
    return found if isinstance(found, Base) else cell(found)


def bare_all(value: Value) -> Any:
    """Replace arrays by plain arrays as :func:`bare`, also in tuples, lists and dictionaries."""
    kind: Any = type(value)
    given: Any = value
    if kind is tuple or kind is list:
        items = [bare_all(item) for item in given]
        return value if all(map(operator.is_, items, given)) else kind(items)
    if kind is dict:
        return {name: bare_all(item) for name, item in given.items()}
    return bare(value)


def listed(value: ArrayLike, dtype: np.dtype[Any] | None = None) -> Any:
    """Replace arrays as :func:`bare_all`, in lists that become an array of a data type."""
    kind: Any = type(value)
    given: Any = value
    if kind is tuple or kind is list:
        items = [listed(item, dtype) for item in given]
        return value if all(map(operator.is_, items, given)) else kind(items)
    return as_number(given, dtype) if is_dressed(given) and given.is_constant else bare(given)


def dressed(x: ArrayLike, kind: type[Any], model: ArrayLike | None) -> Any:
    """Make an array of a program's class over a plain array.

    Parameters
    ----------
    x : DistArray
    kind : type
    model : array or None
        Argument of ``__array_finalize__``: the array from which this one was made.
    """
    made: Any = _new(kind)
    made._distributed = x
    if kind.__array_finalize__ is not None:
        made.__array_finalize__(model)
    return made


def finished(self: ArrayLike, found: ArrayLike) -> Any:
    """Wrap a result in the class of `self`, if the result is an array."""
    own: Any = self
    if not isinstance(found, DistArray) or not is_dressed(own):
        return found
    return own if found is own._distributed else dressed(found, type(own), own)


def taken(value: ArrayLike) -> Any:
    """Convert an array of a NumPy class to the corresponding class of this library, if any."""
    make = taken_as.get(type(value))
    return value if make is None else make(value)


def first_of(values: Iterable[Any]) -> Any:
    """Return the array that determines the class of a result; None if all arrays are plain.

    It is the array with the highest ``__array_priority__``, and the first of several such arrays.
    """
    chosen, highest = None, 0.0
    for value in values:
        kind: Any = type(value)
        if is_dressed(value) or is_subclass(kind):
            priority = float(getattr(value, "__array_priority__", 0.0))
            if chosen is None or priority > highest:
                chosen, highest = value, priority
    return chosen


def wrapped(model: ArrayLike | None, found: ArrayLike | None, context: Context = None) -> Any:
    """Return the result of an array's ``__array_wrap__`` for a result.

    Parameters
    ----------
    model : array or None
        None if all operands are plain.
    found : DistArray, scalar or None
    context : tuple, optional
        The ufunc, its arguments, and the index of this result among its results.
    """
    if model is None or found is None:
        return found
    act: Any = model
    single = not np.ndim(found)
    if not isinstance(found, DistArray):
        is_array = isinstance(found, np.ndarray)
        found = plain_array[0](found) if is_array else cell(found, bare(model))
    try:
        return act.__array_wrap__(found, context, single)
    except TypeError as error:
        if "positional argument" not in str(error):
            raise
        return act.__array_wrap__(found, context)


def cell(value: ArrayLike, model: ArrayLike | None = None) -> DistArray:
    """Wrap a scalar as a plain 0-d array, on the mesh of an array or on the default mesh."""
    block: Any = value
    if not isinstance(value, np.ndarray):
        block = np.empty((), getattr(value, "dtype", object))
        block[()] = value
    mesh = model.mesh if isinstance(model, Base) else common_mesh()
    return wrap(block, Layout.replicated((), mesh.shape), mesh)
