"""NumPy's masked arrays over distributed arrays.

NumPy implements :mod:`numpy.ma` in Python, as a subclass of :class:`numpy.ndarray`. This package
executes the installed source a second time, in modules whose `numpy` is :mod:`distarray.numpy` and
whose `ndarray` is :class:`~distarray.array.subclasses.Subclass`. So data and masks are distributed
arrays, and everything else is NumPy's own code.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from distarray.array.subclasses import sources

__all__ = ["namespace"]

#: The module :mod:`distarray.numpy`, which registers itself here: this room may not import it.
namespace: list[ModuleType] = []


def _source_of(func: Callable[..., Any]) -> Any:
    return import_module("distarray.masked.executing").source_of(func)


sources[:] = [_source_of]
