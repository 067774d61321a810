"""Views of an array's memory as another data type or array type, and access to whole blocks.

Another item size changes the extent of the last dimension. NumPy itself decides whether that is
allowed, on an array of the same shape that uses almost no memory. But NumPy does not know the cut
of the last dimension. The cut is kept if every boundary between ranks is also a boundary between
new items. If not, the array is reshaped first, so that all bytes of a new item are on one rank.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from distarray.array.base import Base, raw_block
from distarray.array.memory import is_shared
from distarray.array.sharing import derived
from distarray.array.storage import has_items_in_line, has_lines_in_blocks, is_natural, natural
from distarray.layout import Cut, Layout, rescaled_cut
from distarray.typing import DTypeLike

__all__ = ["across", "retyped", "viewed", "whole_block"]

#: Two functions that view an array as items of a data type and size: the first if a boundary
#: between ranks is inside an item, the second if an alias stores its blocks in another order than
#: NumPy's memory. Set by :mod:`distarray.engines.strided`.
across: list[Callable[[Any, np.dtype[Any], int], Any]] = []

#: Default of an argument that was not given, since None is a data type.
_NOT_GIVEN: Any = object()


def viewed(x: Base, dtype: DTypeLike = _NOT_GIVEN, type: DTypeLike = _NOT_GIVEN) -> Any:
    """Return the array viewed as another data type, another type of array, or both.

    Parameters
    ----------
    x : DistArray
        An array without pending folds.
    dtype : data type, or type of array
        The new data type.
    type : type of array
        The new type of array.

    Raises
    ------
    ValueError, TypeError
        NumPy's errors, and those of :func:`retyped`.
    """
    if type is _NOT_GIVEN and _is_array_type(dtype):
        dtype, type = _NOT_GIVEN, dtype
    kind: Any = type
    if kind is not _NOT_GIVEN and not _is_array_type(kind):
        np.empty(0).view(type=kind)  # NumPy's error
    found = x.view() if dtype is _NOT_GIVEN else retyped(x, dtype)
    return found if kind is _NOT_GIVEN else _of_type(found, kind, x)


def _is_array_type(kind: object) -> bool:
    """Return True if a value is a type of arrays; False for NumPy's scalar types."""
    return isinstance(kind, type) and hasattr(kind, "__array_ufunc__")


def _of_type(x: Base, kind: type[Any], model: Base) -> Any:
    """View an array as a type of arrays: a distributed type, or a NumPy type for the whole array.

    A program's class that is derived from distributed arrays completes the view from `model`.

    Cost
    ----
    A gather if the array is cut and a NumPy array is requested.
    """
    if kind is np.ndarray or not issubclass(kind, np.ndarray):
        over = getattr(kind, "_over", None)
        return x if over is None else over(x, model)
    if not x.layout.is_whole or x.mesh.device_type != "cpu":
        return np.asarray(x).view(kind)
    return x.to_local().view(kind)


def whole_block(x: Base, attribute: str) -> Any:
    """Return the block of a replicated array in host memory, for access to one of its attributes.

    Raises
    ------
    AttributeError
        For other arrays: no rank has the memory that the attribute describes.
    """
    if not x.layout.is_whole or x.mesh.device_type != "cpu":
        raise AttributeError(
            f"{type(x).__name__!r} object has no attribute {attribute!r}: its memory is spread "
            f"over the ranks, or on a device; x.to_local().{attribute} is that of this rank's "
            f"block, x.full().{attribute} that of a copy of the whole array"
        )
    return x.block


def retyped(x: Base, dtype: DTypeLike) -> Any:
    """Return a view of the array's memory as elements of another data type.

    Parameters
    ----------
    x : DistArray
        An array without pending folds.
    dtype : data type
        A data type of any size.

    Raises
    ------
    ValueError, TypeError
        If NumPy rejects the view; on all ranks.

    Cost
    ----
    None for items of the same size, and for arrays made with blocks in C order. Otherwise one
    allreduce of an integer if some rank's block does not determine how the array is stored. If a
    boundary between ranks is inside a new item, that of a reshape.
    """
    kind, own = np.dtype(dtype), x.dtype
    size = kind.itemsize
    if size != own.itemsize and not isinstance(raw_block(x), np.generic):
        found = _asked(x, kind)
        size = size or found.dtype.itemsize  # a string or void takes the size of the items
    if _retyped_layout(x.layout, own.itemsize, size, kind) is None:
        return across[0](x, kind, size)
    if size != own.itemsize and is_shared(x) and x.layout.size and not has_lines_in_blocks(x):
        return across[1](x, kind, size)
    known = is_natural(x)

    def view(y: Base) -> Any:
        found = _retyped_layout(y.layout, own.itemsize, size, kind)
        if found is None:
            return None
        result = y.like(y.block.view(kind))
        result.layout = found
        return natural(result) if known else result

    return derived(x, view)


def _asked(x: Base, kind: np.dtype[Any]) -> Any:
    """Return NumPy's view of an array of this shape and type, or raise its error on all ranks."""
    own, shape = x.dtype, x.layout.shape
    steps = (*[0] * (len(shape) - 1), own.itemsize)[: len(shape)]
    cell = np.empty(1, own)
    problem = found = None
    try:
        found = as_strided(cell, shape, steps).view(kind)
    except ValueError as error:
        problem = error
    if x.layout.size and shape and shape[-1] > 1 and not has_items_in_line(x):
        as_strided(cell, (2,), (0,)).view(kind)  # raises if the size changes
    if problem is not None:
        raise problem from None
    return found


def _retyped_layout(layout: Layout, old: int, new: int, kind: np.dtype[Any]) -> Layout | None:
    """Return the layout of an array viewed as another type; None if a cut splits a new item."""
    found: Layout | None = layout
    if new != old and layout.ndim:
        found = _resized_items(layout, old, new)
    if found is not None and kind.shape:
        found = found.with_cuts([*found.cuts, *map(Cut.whole, kind.shape)])
    return found


@lru_cache(maxsize=1024)
def _resized_items(layout: Layout, size: int, other: int) -> Layout | None:
    """Return the layout of an array whose items of `size` bytes are read as items of another size.

    The result is None if a boundary between ranks is not a boundary between new items.
    """
    cut = rescaled_cut(layout.cuts[-1], size, other)
    return None if cut is None else layout.replace(layout.ndim - 1, cut)
