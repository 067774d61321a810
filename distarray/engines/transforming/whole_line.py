"""Transforms of blocks along a dimension that is whole.

NumPy's functions do the work, or CuPy's on a device. Where SciPy is installed, it transforms large
blocks of single precision, in half the time or less; double precision is not faster there.
"""

import importlib
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from distarray.config import config
from distarray.plan.fourier import Kind, Pass
from distarray.typing import Array

__all__ = ["across", "transformed"]

#: From so many bytes on, SciPy is worth its import.
SCIPY_FROM = 1 << 20


def transformed(
    block: Array,
    step: Pass,
    norm: str | None,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    xp: ModuleType,
) -> Array:
    """The transform of a block, a new array.

    Parameters
    ----------
    block : array
        Whole along `step.axis`.
    step : Pass
        The transform.
    norm : str or None
        As in NumPy.
    shape, dtype
        The shape and data type of the result, for ranks without elements.
    xp : module
        The array module of the blocks.
    """
    if 0 in shape or not block.size:  # then all elements of the result come from padding
        zeros: Array = xp.zeros(shape, dtype)
        return zeros
    large = block.nbytes >= SCIPY_FROM and type(block) is np.ndarray
    function = _function(step.kind, block.dtype, large)
    return function(block, step.length, step.axis, norm=norm)


def across(kind: Kind, tile: Array, length: int, norm: str | None, target: Array) -> None:
    """Transform a part of a large block along its last dimension into given memory.

    Where lines of either are not contiguous, NumPy reads or writes them number by number, which is
    faster than a copy.
    """
    function = _function(kind, tile.dtype, type(tile) is np.ndarray)
    if type(tile) is np.ndarray and function is getattr(np.fft, kind.value):
        function(tile, length, -1, norm, out=target)
    else:
        target[...] = function(tile, length, -1, norm=norm)


def _function(kind: Kind, dtype: np.dtype[Any], large: bool) -> Callable[..., Array]:
    """The fastest transform of blocks of this data type."""
    module: ModuleType = np.fft
    if large and dtype.char in "fF" and not config.settings.reproducible:
        module = _scipy_fft() or module
    function: Callable[..., Array] = getattr(module, kind.value)
    return function


@lru_cache(maxsize=1)
def _scipy_fft() -> ModuleType | None:
    """SciPy's transforms, if it is installed."""
    try:
        return importlib.import_module("scipy.fft")
    except ImportError:
        return None
