"""Transforms of blocks along a dimension that they have whole.

NumPy's own functions do the work (CuPy's on a device). Where SciPy is installed, large blocks of
single precision go to it, which takes half the time or less; double precision gains nothing there.
"""

import importlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from distarray.config import config
from distarray.plan.fourier import Kind, Pass
from distarray.typing import Array

__all__ = ["across", "transformed"]

#: Bytes from which SciPy is worth its import.
SCIPY_FROM = 1 << 20


def transformed(
    block: Array, step: Pass, norm: Any, shape: tuple[int, ...], dtype: np.dtype[Any], xp: Any
) -> Array:
    """A block transformed; a new array.

    Parameters
    ----------
    block : array
        Its dimension `step.axis` is whole.
    step : Pass
        What to do.
    norm : str or None
        As NumPy's.
    shape, dtype
        Of the result: what a rank without elements has of it, it makes itself.
    xp : module
        Where the blocks are.
    """
    if 0 in shape:
        return xp.empty(shape, dtype)
    if not block.size:  # there is nothing but what is padded
        return xp.zeros(shape, dtype)
    large = block.nbytes >= SCIPY_FROM and type(block) is np.ndarray
    function = _function(step.kind, block.dtype, large)
    return function(block, step.length, step.axis, norm=norm)


def across(kind: Kind, tile: Array, length: int, norm: Any, target: Array) -> None:
    """A part of a large block transformed along its last dimension, into given memory.

    Whichever of the two lies across memory, NumPy reads or writes it a number at a time, which
    takes less than a copy.
    """
    function = _function(kind, tile.dtype, type(tile) is np.ndarray)
    if type(tile) is np.ndarray and function is getattr(np.fft, kind.value):
        function(tile, length, -1, norm, out=target)
    else:
        target[...] = function(tile, length, -1, norm=norm)


def _function(kind: Kind, dtype: np.dtype[Any], large: bool) -> Callable[..., Array]:
    """The function that transforms blocks of this dtype fastest."""
    if large and dtype.char in "fF" and not config.settings.reproducible:
        scipy_fft = _scipy_fft()
        if scipy_fft is not None:
            return getattr(scipy_fft, kind.value)  # type: ignore[no-any-return]
    return getattr(np.fft, kind.value)  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _scipy_fft() -> Any:
    try:
        return importlib.import_module("scipy.fft")
    except ImportError:
        return None
