"""Transforms of blocks along a dimension that they have whole.

NumPy's own functions do the work (CuPy's on a device). Two things are added on the host. A
dimension other than the last is transformed tile by tile: some neighbouring lines are copied next
to one another, transformed, and copied to where they belong, all in cache, since lines that lie
across memory would be fetched a cache line for each number. And where SciPy is installed, its
transforms are taken for what it does faster: single precision, two to three times.
"""

import importlib
from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.config import config
from distarray.plan.fourier import Kind, Pass

__all__ = ["along_last", "function_of", "transformed"]

Array = Any
#: Bytes of a tile, and of the smallest block that is divided into tiles.
TILE, TILED_FROM = 1 << 18, 1 << 20
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
    if type(block) is not np.ndarray:
        return getattr(np.fft, step.kind.value)(block, step.length, step.axis, norm)
    function = function_of(step.kind, block.dtype, block.nbytes)
    inner = prod(block.shape[step.axis + 1 :])
    if inner > 1 and block.nbytes >= TILED_FROM and block.flags.c_contiguous:
        return _by_tiles(function, block, step, norm, shape, dtype)
    return function(block, step.length, step.axis, norm=norm)


def function_of(kind: Kind, dtype: np.dtype[Any], nbytes: int) -> Callable[..., Array]:
    """The function that transforms blocks of this dtype in the host's memory fastest."""
    if dtype.char in "fF" and nbytes >= SCIPY_FROM and not config.settings.reproducible:
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


def _by_tiles(
    function: Callable[..., Array],
    block: Array,
    step: Pass,
    norm: Any,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Array:
    """A contiguous block transformed along a dimension that is not its last."""
    axis = step.axis
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1 :])
    result = np.empty(shape, dtype)
    source = block.reshape(outer, block.shape[axis], inner).swapaxes(1, 2)
    target = result.reshape(outer, shape[axis], inner).swapaxes(1, 2)
    line = max(block.shape[axis], step.length) * dtype.itemsize
    width = min(inner, max(8, TILE // line))
    deep = max(1, TILE // (width * line)) if width == inner else 1
    for first in range(0, outer, deep):
        for start in range(0, inner, width):
            key = slice(first, first + deep), slice(start, start + width)
            tile = np.ascontiguousarray(source[key])
            target[key] = function(tile, step.length, -1, norm=norm)
    return result


def along_last(kind: Kind, tile: Array, length: int, norm: Any) -> Array:
    """A small array transformed along its last dimension, wherever it is."""
    return getattr(np.fft, kind.value)(tile, length, -1, norm)
