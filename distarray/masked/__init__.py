"""NumPy's masked arrays over distributed arrays.

NumPy's :mod:`numpy.ma` is written in Python, on top of what :class:`numpy.ndarray` does for its
subclasses. Its installed source is executed here once more, in modules whose `numpy` is
:mod:`distarray.numpy`, with our :class:`~distarray.array.subclasses.Subclass` for `ndarray`: so
data and masks are distributed arrays, and all else is NumPy's own.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from distarray.array.subclasses import sources

__all__ = ["namespace"]

#: The module of our names, which is a floor above and enters itself.
namespace: list[ModuleType] = []


def _source_of(func: Callable[..., Any]) -> Any:
    return import_module("distarray.masked.executing").source_of(func)


sources[:] = [_source_of]
