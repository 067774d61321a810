"""Immutable objects: their types, and arrays that contain only immutable objects."""

from collections.abc import Iterable
from enum import Enum
from types import EllipsisType, NoneType, NotImplementedType
from typing import Any

import numpy as np

from distarray.array.base import Base
from distarray.typing import Array

__all__ = ["holds_changeable", "is_immutable", "may_have_effects"]

_TYPES: set[type] = {
    *(bool, int, float, complex, str, bytes, range, slice),
    *(NoneType, EllipsisType, NotImplementedType),
}
#: Types, by module and name, whose modules may not have been imported.
_NAMES = frozenset(
    {
        ("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"), ("re", "Pattern"),
        ("datetime", "date"), ("datetime", "datetime"), ("datetime", "time"),
        ("datetime", "timedelta"), ("datetime", "timezone"), ("zoneinfo", "ZoneInfo"),
        ("pathlib", "Path"), ("pathlib", "PosixPath"), ("pathlib", "PurePosixPath"),
    }
)  # fmt: skip


def _is_immutable_type(kind: type) -> bool:
    if kind in _TYPES:
        return True
    named = (kind.__module__, kind.__name__) in _NAMES
    number = kind.__module__ == "numpy" and issubclass(kind, (np.generic, np.dtype))
    if named or (number and not issubclass(kind, (np.void, np.object_))):
        _TYPES.add(kind)
        return True
    return False


def is_immutable(value: Any) -> bool:
    """Return True if a value is an immutable object of Python or NumPy, contents included."""
    kind = type(value)
    if kind in (tuple, frozenset):
        return all(map(is_immutable, value))
    return _is_immutable_type(kind) or (isinstance(value, Enum) and is_immutable(value.value))


def holds_changeable(values: Array) -> bool:
    """Return True if some elements of an array are Python objects that may be mutable."""
    if not values.dtype.hasobject:
        return False
    if values.dtype.names is not None or values.dtype.subdtype is not None:
        return True
    kinds = set(map(type, values.flat))
    if all(kind in _TYPES for kind in kinds):
        return False
    return not all(map(is_immutable, values.flat))


def may_have_effects(arrays: Iterable[Base]) -> bool:
    """Return True if methods of replicated Python objects may have side effects."""
    return any(x.layout.is_replicated and holds_changeable(x.block) for x in arrays)
