"""Methods of distributed masked arrays: conversion to NumPy's class, pickling, saving, printing."""

import sys
from collections.abc import Callable, Collection
from functools import wraps
from types import ModuleType
from typing import Any, SupportsIndex

import numpy

from distarray.array.base import Base
from distarray.array.dressing import bare, cell, plain_kind, taken, taken_as
from distarray.array.exporting import while_in_lists
from distarray.array.subclasses import Subclass
from distarray.masked.printing import printed
from distarray.typing import Args, Array, ArrayLike, DTypeLike, Key, Kwargs

__all__ = ["adapt"]

Take = Callable[[Any], Any]


def _part(x: ArrayLike, take: Take) -> Any:
    """Apply `take` to a plain distributed array; return any other value unchanged."""
    return take(x) if isinstance(x, Base) else x


def _whole(x: Base) -> Any:
    return x.full()


class _Methods:
    """Methods that replace those of the executed class `MaskedArray`."""

    _mask: Any
    _hardmask: Any
    _fill_value: Any
    _data: Any
    filled: Any
    tofile: Any
    has_buffer = False

    def _as_numpys(self, take: Take) -> Any:
        """Return a NumPy masked array; `take` converts the data, mask and fill are gathered."""
        if self is _constant[0]:
            return numpy.ma.masked
        mask = _numpys_mask(self._mask)
        data = _part(bare(self), take)
        made: Any = numpy.ma.MaskedArray(data, mask, copy=False, hard_mask=self._hardmask)
        if self._fill_value is not None:
            made._fill_value = numpy.asarray(_part(self._fill_value, _whole))
        return made

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> Any:
        """Return a NumPy masked array, for libraries."""
        while_in_lists()
        whole = self._as_numpys(lambda x: x.__array__(copy=copy))
        return whole if dtype is None else whole.astype(dtype, copy=False)

    def full(self) -> Any:
        """Return the global array as a NumPy masked array on every rank; collective."""
        return self._as_numpys(_whole)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Reduce to a NumPy masked array, which any process can load."""
        whole = self.full()
        if type(self).__name__ == "MaskedArray":
            return whole.__reduce_ex__(protocol)
        return _rebuilt, (type(self), whole, vars(self))

    def __array_function__(
        self, func: Callable[..., Any], types: Collection[type], args: Args, kwargs: Kwargs
    ) -> Any:
        """Call as for other subclasses, but refuse to save to a file that would lose the mask."""
        if func is numpy.save:
            self.tofile(args[0])
        return Subclass.__array_function__(self, func, types, args, kwargs)  # type: ignore[arg-type]

    def _not_there(self) -> Any:
        raise AttributeError("a masked array is more than one piece of memory: m.data and m.mask")

    __array_interface__ = property(_not_there)
    __array_struct__ = property(_not_there)

    def _viewable(self, fill_value: ArrayLike) -> Any:
        return _Viewable(self.filled(fill_value))

    @property
    def _viewable_data(self) -> Any:
        return _Viewable(self._data)


class _ForLibraries:
    """Attribute that is converted to NumPy's form when NumPy's own ``numpy.ma.core`` reads it."""

    def __init__(self, name: str, default: Any, numpys: Callable[[Any], Any]) -> None:
        self._name, self._default, self._numpys = name, default, numpys

    def __get__(self, x: Base | None, owner: type[Any] | None = None) -> Any:
        found = self._default if x is None else vars(x).get(self._name, self._default)
        if found is numpy.ndarray:
            found = plain_kind[0]
        return self._numpys(found) if sys._getframe(1).f_globals is _NUMPYS else found

    def __set__(self, x: Base, value: ArrayLike | type[Any]) -> None:
        vars(x)[self._name] = value


_NUMPYS = vars(numpy.ma.core)


def _numpys_class(kind: type[Any]) -> type[Any]:
    return numpy.ndarray if kind is plain_kind[0] else kind


def _numpys_mask(mask: ArrayLike) -> Any:
    found: Any = bare(mask)
    return found.full() if isinstance(found, Base) else mask


def _of_taken(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: convert a first argument of a NumPy subclass to our class."""

    @wraps(function)
    def call(a: ArrayLike, *args: ArrayLike, **kwargs: ArrayLike) -> Any:
        return function(taken(a), *args, **kwargs)

    return call


def _rebuilt(kind: type[Any], whole: Array, names: dict[str, Any]) -> Any:
    made = taken(whole).view(kind)
    vars(made).update({name: names[name] for name in names if name != "_mask"})
    return made


def _with_defaults(update: Callable[..., None]) -> Callable[..., None]:
    """Decorator of `_update_from`: look up no attributes on a plain array, which has none."""

    @wraps(update)
    def call(self: Base, obj: ArrayLike) -> None:
        update(self, _PLAIN if type(obj) is Base.plain_type else obj)

    return call


_PLAIN = object()


def masked() -> Any:
    """Return the constant `masked`; pickles call this function."""
    return _constant[0]


_constant: list[Any] = []


class _Viewable:
    """Array wrapper for NumPy's code that views a scalar as an array; the scalar stays a scalar."""

    def __init__(self, array: Base) -> None:
        self.array: Any = array

    def __getattr__(self, name: str) -> Callable[..., Any]:
        act = getattr(self.array, name)
        return lambda *args, **kwargs: _Single.of(act(*args, **kwargs))

    def __getitem__(self, key: Key) -> Any:
        return _Single.of(self.array[key])

    def __array_function__(
        self, func: Callable[..., Any], types: Collection[type], args: Args, kwargs: Kwargs
    ) -> Any:
        return func(self.array, *args[1:], **kwargs)


class _Single:
    """Scalar with a `view` method, which NumPy's code calls as if it were a masked array."""

    def __init__(self, value: ArrayLike) -> None:
        self.value = value

    @classmethod
    def of(cls, value: ArrayLike) -> Any:
        """Return the value if it is an array, else wrap it."""
        return value if isinstance(value, Base) else cls(value)

    def view(self, kind: type[Any]) -> Any:
        """Return the scalar unchanged."""
        return self.value

    def __getitem__(self, key: Key) -> Any:
        return cell(self.value)


def adapt(core: ModuleType) -> None:
    """Finish the classes of the executed module."""
    kind, constant = core.MaskedArray, core.masked
    _constant[:] = [constant]
    # No mesh: the constant is combined with arrays on any mesh.
    for name in ("_distributed", "_mask"):
        value = numpy.array(name == "_mask", bool if name == "_mask" else float)
        value.flags.writeable = False
        object.__setattr__(constant, name, value)
    for name, method in vars(_Methods).items():
        if name not in _OF_CLASSES:
            setattr(kind, name, method)
    kind._baseclass = _ForLibraries("_baseclass", kind._baseclass, _numpys_class)
    kind._mask = _ForLibraries("_mask", core.nomask, _numpys_mask)
    kind._numpys_own = numpy.ma.MaskedArray
    kind._update_from = _with_defaults(kind._update_from)
    kind.__repr__ = printed(kind.__repr__, repr)
    kind.__str__ = printed(kind.__str__, str)
    core.MaskedIterator._viewable_items = property(lambda self: _Viewable(self.dataiter))
    names = vars(core)
    names["_viewable_quotient"] = lambda a, b: _Single.of(core.divide(a, b))
    names["_numpys_ndarray"] = numpy.ndarray
    names["getdata"] = _of_taken(core.getdata)
    core.MaskedConstant.is_constant = True
    core.MaskedConstant.__reduce_ex__ = lambda self, protocol: (masked, ())
    taken_as[numpy.ma.MaskedArray] = lambda x: kind(
        numpy.asarray(x), x._mask, hard_mask=x._hardmask, fill_value=x._fill_value
    )
    taken_as[type(numpy.ma.masked)] = lambda _: constant


#: Names that Python itself defines in every class body.
_OF_CLASSES = frozenset({"__module__", "__doc__", "__dict__", "__weakref__", "__annotations__"})
