"""Nested lists with distributed arrays in them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.array.placing import plain
from distarray.typing import ArrayLike, DTypeLike

__all__ = ["joined"]


def joined(value: ArrayLike, dtype: DTypeLike, keywords: dict[str, Any]) -> Any:
    """Nested lists that contain DistArrays, stacked; as objects their shapes may differ."""
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


def _gathered(value: Any) -> Any:
    if isinstance(value, DistArray):
        return np.asarray(value)
    return type(value)(map(_gathered, value)) if type(value) in (list, tuple) else value


def _of_objects(value: Any, keywords: dict[str, Any]) -> Any:
    """The array of objects that NumPy makes from ragged lists with DistArrays in them."""
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
    """Nested lists in which arrays without memory stand for DistArrays."""
    if isinstance(value, DistArray):
        return np.broadcast_to(np.zeros(()), value.shape)
    return [_hollow(item) for item in value] if isinstance(value, (list, tuple)) else value


def _stacked(value: ArrayLike) -> Any:
    """Nested lists that contain DistArrays, stacked; other input unchanged.

    Lists of 0-d arrays (results of reductions) become lists of NumPy's scalars.
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
    """Whether there is a DistArray in nested lists."""
    kinds = set(map(type, value))
    if DistArray in kinds:
        return True
    if kinds.isdisjoint((list, tuple)):
        return False
    return any(_mentions(item) for item in value if isinstance(item, (list, tuple)))
