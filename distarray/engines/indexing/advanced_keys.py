"""Normal form of an advanced key: a basic view, then index arrays on some of its dimensions.

Slices, new axes and omitted dimensions become a view, which is free. The rest of the key is one
index array for each of some dimensions of the view (or one mask over consecutive dimensions), and
the position of the index arrays' dimensions in the result: the position of the first index array
if all are adjacent in the key, else 0.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import index
from types import EllipsisType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from distarray.array import DistArray
from distarray.array.keys import INVALID, as_index
from distarray.layout import Cut, Entries, Layout
from distarray.plan import shape_text
from distarray.typing import Array, Shape

__all__ = ["AdvancedKey", "IndexArray", "advanced_key", "index_shape"]

#: Array of indices or mask: distributed, or whole on every rank.
IndexArray: TypeAlias = DistArray | Array
#: Parsed entry of a key: an array has at least one dimension, a bool is a 0-d mask.
_Entry: TypeAlias = "slice | EllipsisType | bool | int | IndexArray | None"

_FULL = slice(None)
_ARRAYS = (np.ndarray, DistArray)


class AdvancedKey(NamedTuple):
    """Advanced key in normal form.

    Attributes
    ----------
    entries : tuple
        Entries of the basic view that is taken first.
    dims : tuple of int
        Dimensions of the view that are indexed.
    axes : tuple of int
        The corresponding dimensions of the array, for error messages.
    indices : tuple of array
        One integer array for each of `dims`, not yet checked against the extents; or one boolean
        array over all of `dims`.
    at : int
        Position in the result of the first dimension of the index arrays.
    alone : bool
        True if the key was one mask over the whole array, which NumPy assigns by other rules.
    """

    entries: Entries
    dims: tuple[int, ...]
    axes: tuple[int, ...]
    indices: tuple[IndexArray, ...]
    at: int
    alone: bool = False

    @property
    def is_mask(self) -> bool:
        """True if `indices` is one mask."""
        return len(self.indices) == 1 and bool(self.indices[0].dtype == bool)


def advanced_key(
    key: Any, layout: Layout, nonzero: Callable[[IndexArray], Sequence[IndexArray]]
) -> AdvancedKey:
    """Parse a key that is not basic.

    Parameters
    ----------
    key : object
        The key of ``x[key]``.
    layout : Layout
        The layout of the indexed array.
    nonzero : callable
        Converts a mask to index arrays; called for a mask next to other index arrays.

    Raises
    ------
    IndexError
        In the same cases and with the same text as in NumPy, from metadata alone.
    """
    parts = key if type(key) is tuple else (key,)
    entries = _spelled_out([_read(part) for part in parts], layout.ndim)
    _check_number(entries, layout.ndim)
    arrays = [entry for entry in entries if isinstance(entry, _ARRAYS)]
    masks = any(array.dtype == bool for array in arrays)
    if masks:
        _check_masks(entries, layout.shape)
    stays = masks and len(arrays) == 1 and _stays_mask(entries, layout)
    builder = _Builder(layout)
    for entry in entries:
        builder.add(entry, nonzero, stays)
    shape = arrays[0].shape if stays else () if type(entries[0]) is bool else None
    return builder.finish(len(parts) == 1 and shape == layout.shape)


def _check_number(entries: Sequence[_Entry], ndim: int) -> None:
    """Raise NumPy's error for more index arrays, or dimensions, than NumPy supports."""
    if len(entries) > _FEW:
        np.ones((1,) * ndim)[tuple([_like(entry) for entry in entries])]


#: Number of entries of a key that is always within NumPy's limits, which are near 64.
_FEW = 24


def _like(entry: _Entry) -> Any:
    """Return an entry of the same kind that is valid for a dimension of one element."""
    if isinstance(entry, _ARRAYS):
        return np.full((1,) * entry.ndim, entry.dtype == bool, bool if entry.dtype == bool else int)
    if type(entry) is int:
        return 0
    return slice(None) if type(entry) is slice else entry


def _stays_mask(entries: Sequence[_Entry], layout: Layout) -> bool:
    """Return True if the only array of a key, a mask, need not be converted to index arrays.

    It must be converted next to an entry that acts as an index array (a 0-d mask, an integer on a
    cut dimension), and if the mask has extent 0 along a dimension where the array has not.
    """
    for entry, dim in _with_dims(entries):
        if type(entry) is bool or (type(entry) is int and _is_cut(layout.cuts[dim])):
            return False
        if isinstance(entry, _ARRAYS) and entry.shape != layout.shape[dim : dim + entry.ndim]:
            return False
    return True


class _Builder:
    """Builder of the normal form that processes the entries of a key from left to right."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.entries: list[Any] = []
        self.dims: list[int] = []
        self.axes: list[int] = []
        self.indices: list[IndexArray] = []
        self.dim = 0  # current dimension of the array
        self.kept = 0  # dimensions of the result that come from slices and new axes
        self.first: int | None = None  # position of the index dimensions in the result
        self.gap = False  # a basic entry has followed an index array
        self.apart = False  # index arrays are not adjacent

    def add(
        self,
        entry: _Entry,
        nonzero: Callable[[IndexArray], Sequence[IndexArray]],
        stays: bool,
    ) -> None:
        """Add the next entry; if `stays`, a mask is not converted to index arrays."""
        if entry is None or entry is Ellipsis or isinstance(entry, slice):
            self._add_basic(entry)
            return
        if self.first is None:
            self.first = self.kept
        self.apart |= self.gap
        if isinstance(entry, bool):
            self._add_flag(entry)
        elif isinstance(entry, int):
            self._add_integer(entry)
        elif entry.dtype == bool and stays:
            self.indices.append(entry)
            for _ in range(entry.ndim):
                self._whole_dim()
        else:
            for array in nonzero(entry) if entry.dtype == bool else (entry,):
                self.indices.append(array)
                self._whole_dim()

    def finish(self, alone: bool) -> AdvancedKey:
        """Return the key in normal form."""
        at = 0 if self.apart or self.first is None else self.first
        return AdvancedKey(
            tuple(self.entries),
            tuple(self.dims),
            tuple(self.axes),
            tuple(self.indices),
            at,
            alone,
        )

    def _add_basic(self, entry: slice | EllipsisType | None) -> None:
        self.gap = self.first is not None
        if isinstance(entry, EllipsisType):
            return  # its slices follow; an ellipsis of no slices still separates index arrays
        self.kept += 1
        if entry is None:
            self.entries.append(None)
            return
        start, stop, step = entry.indices(self.layout.shape[self.dim])
        self.entries.append((start, step, len(range(start, stop, step))))
        self.dim += 1

    def _add_flag(self, flag: bool) -> None:
        """Add a 0-d mask: an index array on a new axis."""
        self._index_view_dim(self.dim)
        self.entries.append(None)
        self.indices.append(np.zeros(1 if flag else 0, np.intp))

    def _add_integer(self, number: int) -> None:
        """Add an integer: a 0-d index array, or a basic index if the dimension is not cut."""
        extent = self.layout.shape[self.dim]
        if not -extent <= number < extent:
            raise IndexError(
                f"index {number} is out of bounds for axis {self.dim} with size {extent}"
            )
        number += extent if number < 0 else 0
        if not _is_cut(self.layout.cuts[self.dim]):
            self.entries.append(number)
            self.dim += 1
            return
        self.indices.append(np.array(number, np.intp))
        self._whole_dim()

    def _whole_dim(self) -> None:
        self._index_view_dim(self.dim)
        self.entries.append((0, 1, self.layout.shape[self.dim]))
        self.dim += 1

    def _index_view_dim(self, axis: int) -> None:
        self.dims.append(len([entry for entry in self.entries if type(entry) is not int]))
        self.axes.append(axis)


def _is_cut(cut: Cut) -> bool:
    return cut.parts > 1


def _read(part: Any) -> _Entry:
    """Convert an element of a key to an entry."""
    if part is None or part is Ellipsis or type(part) is slice:
        entry: slice | EllipsisType | None = part
        return entry
    if isinstance(part, (bool, np.bool_)):
        return bool(part)
    if isinstance(part, DistArray):
        part = part.plain()
    if isinstance(part, _ARRAYS):
        return _read_array(part)
    number = as_index(part)
    return _read_sequence(part) if number is None else number


def _read_sequence(part: Any) -> bool | int | IndexArray:
    if not hasattr(part, "__len__") or isinstance(part, (str, bytes, dict, set)):
        raise IndexError(INVALID)
    array = np.asarray(part)
    if not array.size and array.dtype != bool:
        array = array.astype(np.intp)
    if array.dtype.kind not in "biu":
        raise IndexError(INVALID)
    return _read_array(array)


def _read_array(array: IndexArray) -> bool | int | IndexArray:
    if array.dtype.kind not in "biu":
        raise IndexError("arrays used as indices must be of integer (or boolean) type")
    if array.ndim:
        return array
    return bool(array) if array.dtype == bool else index(array)


def _width(entry: _Entry) -> int:
    """Return the number of the array's dimensions that an entry consumes."""
    if entry is None or entry is Ellipsis or type(entry) is bool:
        return 0
    if isinstance(entry, _ARRAYS) and entry.dtype == bool:
        return entry.ndim
    return 1


def _spelled_out(entries: list[_Entry], ndim: int) -> list[_Entry]:
    """Insert the full slices that an ellipsis represents after it, or at the end without one."""
    used = sum([_width(entry) for entry in entries])
    places = [place for place, entry in enumerate(entries) if entry is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    if used > ndim:
        raise IndexError(
            f"too many indices for array: array is {ndim}-dimensional, but {used} were indexed"
        )
    after = places[0] + 1 if places else len(entries)
    return [*entries[:after], *[_FULL] * (ndim - used), *entries[after:]]


def _with_dims(entries: Sequence[_Entry]) -> Iterator[tuple[_Entry, int]]:
    """Yield the entries, each with the first array dimension that it indexes."""
    dim = 0
    for entry in entries:
        yield entry, dim
        dim += _width(entry)


def _check_masks(entries: Sequence[_Entry], shape: Shape) -> None:
    for entry, dim in _with_dims(entries):
        if not isinstance(entry, _ARRAYS) or entry.dtype != bool:
            continue
        for axis, extent in enumerate(entry.shape, dim):
            if extent and extent != shape[axis]:  # NumPy accepts masks of extent 0 anywhere
                raise IndexError(
                    f"boolean index did not match indexed array along axis {axis}; size of "
                    f"axis is {shape[axis]} but size of corresponding boolean axis is {extent}"
                )


def index_shape(indices: Sequence[IndexArray]) -> Shape:
    """Return the shape to which index arrays broadcast.

    Raises
    ------
    IndexError
        With NumPy's text, if the index arrays do not broadcast.
    """
    if len(indices) == 1:
        return indices[0].shape
    try:
        return np.broadcast_shapes(*[array.shape for array in indices])
    except ValueError as error:
        if "too large" in str(error):
            raise ValueError("iterator is too large") from None
        listed = " ".join([shape_text(array.shape) for array in indices if array.ndim])
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {listed} "
        ) from None
