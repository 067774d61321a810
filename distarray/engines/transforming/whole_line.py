"""Transforms of blocks along a dimension that is whole.

NumPy's functions compute the transforms, or CuPy's on a device. If SciPy is installed, it
transforms large blocks of single precision, in half the time or less; SciPy's double precision is
not faster.
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

#: From this many bytes on, SciPy is worth the time of its import.
SCIPY_FROM = 1 << 20


def transformed(
    block: Array,
    step: Pass,
    norm: str | None,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    xp: ModuleType,
) -> Array:
    """Transform a block; the result is a new array.

    Parameters
    ----------
    block : array
        The block, whole along `step.axis`.
    step : Pass
        The transform.
    norm : str or None
        The normalization, as in NumPy.
    shape, dtype
        The shape and data type of the result, for ranks without elements.
    xp : module
        The array module of the blocks.
    """
    if 0 in shape or not block.size:  # then all elements of the result are padding
        zeros: Array = xp.zeros(shape, dtype)
        return zeros
    large = block.nbytes >= SCIPY_FROM and type(block) is np.ndarray
    function = _function(step.kind, block.dtype, large)
    return function(block, step.length, step.axis, norm=norm)


def across(kind: Kind, tile: Array, length: int, norm: str | None, target: Array) -> None:
    """Transform a part of a large block along its last dimension into given memory.

    If lines of the part or of the target are not contiguous, NumPy reads or writes them number by
    number, which is faster than a copy.
    """
    function = _function(kind, tile.dtype, type(tile) is np.ndarray)
    if type(tile) is np.ndarray and function is getattr(np.fft, kind.value):
        function(tile, length, -1, norm, out=target)
    else:
        target[...] = function(tile, length, -1, norm=norm)


def _function(kind: Kind, dtype: np.dtype[Any], large: bool) -> Callable[..., Array]:
    """Return the fastest transform function for blocks of this data type."""
    module: ModuleType = np.fft
    if large and dtype.char in "fF" and not config.settings.reproducible:
        module = _scipy_fft() or module
    function: Callable[..., Array] = getattr(module, kind.value)
    return function


@lru_cache(maxsize=1)
def _scipy_fft() -> ModuleType | None:
    """Import SciPy's transforms; return None if SciPy is not installed."""
    try:
        return importlib.import_module("scipy.fft")
    except ImportError:
        return None
