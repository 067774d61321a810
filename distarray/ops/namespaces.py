"""Namespace of an array: NumPy's names, for programs or for libraries that use the standard.

A program gets :mod:`distarray.numpy`, in which 0-d results are NumPy scalars. Libraries that are
written for the array API standard pass such results on to other functions, and `array_api_compat`
treats NumPy scalars as NumPy arrays. So installed libraries get the same functions with distributed
arrays as 0-d results; results computed from these alone are distributed again.
"""

import sys
from collections.abc import Callable, Iterable
from functools import cache, wraps
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from distarray.array import DistArray, implements, wrap
from distarray.array.base import operands_in, sequence_like
from distarray.comm import DeviceMesh, default_mesh
from distarray.comm.user_lines import is_library, user_frames
from distarray.layout import Layout

__all__ = ["Standard"]

_VERSIONS = (None, "2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


@implements(DistArray.__array_namespace__, computes=False)
def _array_namespace(api_version: str | None = None) -> Any:
    if api_version not in _VERSIONS:
        raise ValueError(f"unknown version of the array API standard: {api_version!r}")
    asking = next(user_frames(sys._getframe()), None)
    module = import_module("distarray.numpy")
    return _of_the_standard(module) if asking is not None and is_library(asking) else module


class Standard(ModuleType):
    """Module with another module's names; its functions return 0-d arrays instead of scalars."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(module.__name__, module.__doc__)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._module, name)
        if isinstance(value, ModuleType):
            value = _of_the_standard(value)
        elif callable(value) and not isinstance(value, type):
            value = _keeping_arrays(value)
        setattr(self, name, value)
        return value

    def __dir__(self) -> Iterable[str]:
        return dir(self._module)

    def __repr__(self) -> str:
        return f"<{self._module.__name__} with 0-d arrays instead of scalars>"


_of_the_standard = cache(Standard)


def _keeping_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _as_arrays(function(*args, **kwargs), [*args, *kwargs.values()])

    return call


def _as_arrays(result: Any, values: list[Any]) -> Any:
    """Return a result of a NumPy function with 0-d arrays in place of its scalars."""
    if isinstance(result, np.generic):
        mesh: DeviceMesh = next((x.mesh for x in operands_in(values)), None) or default_mesh()
        return wrap(result, Layout.replicated((), mesh.shape), mesh)
    if isinstance(result, DistArray) and not result.ndim and result.layout.is_whole:
        return result.like(result.mesh.scalar(result.block))
    if isinstance(result, tuple):
        items = [_as_arrays(item, values) for item in result]
        return sequence_like(result, items)
    return result
