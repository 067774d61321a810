"""Arrays of a program's own classes, taken off and put on.

An array of such a class (:mod:`~distarray.array.subclasses`) has a plain one, with which all of the
library computes: :func:`bare` gives it, and :func:`dressed` puts the class on a result, as NumPy
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

#: The ufunc of a result, its arguments, and which of its results that is.
Context = tuple[Any, ...] | None
#: Arguments of calls, or one of them.
Value = Key | Args | Kwargs
_new = object.__new__
#: The class that programs call `ndarray`: an array viewed as this one is plain. Set by its module.
plain_kind: list[Any] = [np.ndarray]
#: Makes a plain array of NumPy's; set with it.
plain_array: list[Callable[[Any], Any]] = [distribute]
#: NumPy's own classes, and what makes one of a class of ours of their arrays.
taken_as: dict[type, Callable[[Any], Any]] = {}


def is_dressed(value: Value) -> bool:
    """Whether a value is a distributed array of a program's class."""
    return isinstance(value, Base) and value.is_dressed


def is_class(value: DTypeLike) -> bool:
    """Whether a value is a class of arrays; NumPy's scalar types are not."""
    if not isinstance(value, type) or issubclass(value, np.generic):
        return False
    return value is plain_kind[0] or hasattr(value, "__array_ufunc__")


def bare(value: Value) -> Any:
    """The plain array of one of a program's class; another value itself.

    A constant goes with arrays of all meshes, and has one on the usual mesh.
    """
    if not isinstance(value, Base) or not value.is_dressed:
        return value
    found: Any = value
    found = found._distributed
    return found if isinstance(found, Base) else cell(found)


def bare_all(value: Value) -> Any:
    """As :func:`bare`, for what is in tuples, lists and dictionaries, too."""
    kind: Any = type(value)
    given: Any = value
    if kind is tuple or kind is list:
        items = [bare_all(item) for item in given]
        return value if all(map(operator.is_, items, given)) else kind(items)
    if kind is dict:
        return {name: bare_all(item) for name, item in given.items()}
    return bare(value)


def listed(value: ArrayLike, dtype: np.dtype[Any] | None = None) -> Any:
    """As :func:`bare_all`, for lists of which an array of a data type is made."""
    kind: Any = type(value)
    given: Any = value
    if kind is tuple or kind is list:
        items = [listed(item, dtype) for item in given]
        return value if all(map(operator.is_, items, given)) else kind(items)
    return as_number(given, dtype) if is_dressed(given) and given.is_constant else bare(given)


def dressed(x: ArrayLike, kind: type[Any], model: ArrayLike | None) -> Any:
    """An array of a program's class over a plain array.

    Parameters
    ----------
    x : DistArray
    kind : type
    model : array or None
        What ``__array_finalize__`` gets: the array that this one was made of.
    """
    made: Any = _new(kind)
    made._distributed = x
    if kind.__array_finalize__ is not None:
        made.__array_finalize__(model)
    return made


def finished(self: ArrayLike, found: ArrayLike) -> Any:
    """A result with the class of an array, if it is an array."""
    own: Any = self
    if not isinstance(found, DistArray) or not is_dressed(own):
        return found
    return own if found is own._distributed else dressed(found, type(own), own)


def taken(value: ArrayLike) -> Any:
    """An array of a class of NumPy's own as one of ours, if there is such a class."""
    make = taken_as.get(type(value))
    return value if make is None else make(value)


def first_of(values: Iterable[Any]) -> Any:
    """The array that decides about the class of a result; None if all are plain.

    It is the one with the highest ``__array_priority__``, of those the first.
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
    """A result as the ``__array_wrap__`` of an array gives it.

    Parameters
    ----------
    model : array or None
        None if all operands are plain.
    found : DistArray, scalar or None
    context : tuple, optional
        The ufunc, its arguments, and which of its results this is.
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
    """A scalar as a plain array without dimensions, on the mesh of an array or on the usual one."""
    block: Any = value
    if not isinstance(value, np.ndarray):
        block = np.empty((), getattr(value, "dtype", object))
        block[()] = value
    mesh = model.mesh if isinstance(model, Base) else common_mesh()
    return wrap(block, Layout.replicated((), mesh.shape), mesh)
