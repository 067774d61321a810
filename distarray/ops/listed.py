"""Nested lists that contain distributed arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.array.creation import given_by
from distarray.array.dressing import listed
from distarray.array.exporting import converted
from distarray.array.placing import plain
from distarray.typing import ArrayLike, DTypeLike

__all__ = ["joined", "of_lists"]

#: NumPy's error text if ``__array__`` of a class returns a distributed array.
_NO_ARRAY = "object __array__ method not producing an array"


def joined(value: ArrayLike, dtype: DTypeLike, keywords: dict[str, Any]) -> Any:
    """Stack nested lists that contain DistArrays; as objects their shapes may differ."""
    if dtype is not None and np.dtype(dtype).names is not None:
        return _gathered(value)  # a tuple is a record
    objects = dtype is not None and np.dtype(dtype) == object
    if not objects or "ndmax" not in keywords:
        try:
            return _stacked(value)
        except ValueError:
            if not objects:
                np.array(_hollow(value), dtype)  # NumPy's error
                raise
    return _of_objects(value, keywords)


def _by_numpy(source: Any, dtype: DTypeLike, keywords: dict[str, Any]) -> tuple[Any, Any]:
    """Return NumPy's array of nested lists, or None; and the lists with their DistArrays."""
    try:
        return converted(source, np.array, dtype, **keywords), source
    except ValueError as error:
        if _NO_ARRAY not in str(error):
            raise
        return None, _answered(source)


def of_lists(source: Any, dtype: DTypeLike, keywords: dict[str, Any]) -> tuple[Any, Any]:
    """Return NumPy's array of lists, and the lists; None and an array if they hold DistArrays."""
    kind = None if dtype is None else np.dtype(dtype)
    if type(source) is tuple and kind is not None and kind.names:  # fields, as in NumPy
        source = tuple([x.full() if isinstance(x, DistArray) and not x.ndim else x for x in source])
    values, source = _by_numpy(source, dtype, keywords)
    if values is not None:
        return values, source
    plain = listed(source, kind)
    if plain is not source:
        values, plain = _by_numpy(plain, dtype, keywords)
    return values, plain if values is not None else joined(plain, dtype, keywords)


def _answered(value: Any) -> Any:
    """Return nested lists with the DistArrays that ``__array__`` of the objects in them returns."""
    if isinstance(value, (list, tuple)):
        return [_answered(item) for item in value]
    given = given_by(value)
    return value if given is None else given


def _gathered(value: Any) -> Any:
    if isinstance(value, DistArray):
        return np.asarray(value)
    return type(value)(map(_gathered, value)) if type(value) in (list, tuple) else value


def _of_objects(value: Any, keywords: dict[str, Any]) -> Any:
    """Return the array of objects that NumPy makes from ragged lists that contain DistArrays."""
    limit = {name: value for name, value in keywords.items() if name == "ndmax"}
    shape = np.array(_hollow(value), object, **limit).shape
    found = np.empty(shape, object)
    for index in np.ndindex(shape):
        item = value
        for number in index:
            item = item[number]
        found[index] = item
    return found


def _hollow(value: Any) -> Any:
    """Return nested lists with arrays without memory in place of DistArrays."""
    if isinstance(value, DistArray):
        return np.broadcast_to(np.zeros(()), value.shape)
    return [_hollow(item) for item in value] if isinstance(value, (list, tuple)) else value


def _stacked(value: ArrayLike) -> Any:
    """Stack nested lists that contain DistArrays; return other input unchanged.

    Lists of 0-d arrays (results of reductions) become lists of NumPy scalars.
    """
    if isinstance(value, DistArray):
        return plain(value.plain())
    if not isinstance(value, (list, tuple)) or not _mentions(value):
        return value
    items = [_stacked(item) for item in value]
    if not any(isinstance(item, DistArray) for item in items):
        return items
    mesh = common_mesh(*items)
    return np.stack([as_distarray(item, mesh) for item in items])


def _mentions(value: Sequence[Any]) -> bool:
    """Return True if there is a DistArray in nested lists."""
    kinds = set(map(type, value))
    if DistArray in kinds:
        return True
    if kinds.isdisjoint((list, tuple)):
        return False
    return any(_mentions(item) for item in value if isinstance(item, (list, tuple)))
