"""Conversion to NumPy arrays, for functions that accept no distributed arrays."""

import os
from collections.abc import Callable
from functools import wraps
from operator import is_
from types import ModuleType
from typing import Any

import numpy as np

from distarray.array.base import Base
from distarray.array.exporting import lent

__all__ = ["handing", "handing_module", "ordinary", "standing_in"]

_ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes})
#: Length from which lists that begin with a number or a string are not searched for arrays.
_LONG = 1000


def ordinary(value: object, whom: str) -> Any:
    """Replace distributed arrays in a value by NumPy arrays for `whom`; else return the value."""
    kind: Any = type(value)
    if kind in _ATOMS:
        return value
    if isinstance(value, Base):
        return _array(value, whom)
    if isinstance(value, (list, tuple)) and kind in (list, tuple):
        if len(value) > _LONG and type(value[0]) in _ATOMS:
            return value
        items = [ordinary(item, whom) for item in value]
        return value if all(map(is_, items, value)) else kind(items)
    if isinstance(value, dict) and kind is dict:
        named = {key: ordinary(item, whom) for key, item in value.items()}
        return value if all(map(is_, named.values(), value.values())) else named
    return value


def _array(x: Base, whom: str) -> Any:
    if not x.ndim:
        return np.asarray(x)[()] if isinstance(x.block, np.generic) else np.asarray(x)
    if x.layout.is_whole:
        return np.asarray(x)
    return lent(x, whom)


def handing(function: Callable[..., Any], whom: str) -> Callable[..., Any]:
    """Wrap a function so that it gets NumPy arrays in place of distributed arrays."""

    @wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        args = ordinary(args, whom)
        return function(*args, **(ordinary(kwargs, whom) if kwargs else kwargs))

    code = getattr(function, "__code__", None)
    if code is not None:  # warnings then skip this frame like the frames of `function`'s library
        place = os.path.join(os.path.dirname(code.co_filename), "<arrays handed over by distarray>")
        call.__code__ = call.__code__.replace(co_filename=place)  # type: ignore[attr-defined]
    return call


def standing_in(module: ModuleType, **members: Any) -> ModuleType:
    """Return a copy of a module, with some members replaced."""
    found = ModuleType(module.__name__, module.__doc__)
    vars(found).update({**vars(module), **members})
    vars(found).update(__getattr__=lambda name: getattr(module, name), __dir__=lambda: dir(module))
    return found


def handing_module(module: ModuleType, *names: str) -> ModuleType:
    """Return a copy of a module, some of whose functions get NumPy arrays."""
    found = ModuleType(module.__name__, module.__doc__)
    vars(found).update({name: held for name, held in vars(module).items() if name not in names})
    handed: dict[str, Callable[..., Any]] = {}

    def ask(name: str) -> Any:
        value = getattr(module, name)  # on demand: NumPy may warn about this name alone
        if name in names and name not in handed:
            handed[name] = handing(value, f"{module.__name__}.{name}")
        return handed.get(name, value)

    vars(found).update(__getattr__=ask, __dir__=lambda: dir(module))
    return found
