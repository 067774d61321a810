"""Indexing, assignment and iteration.

If every rank has the whole array (on a single rank, or replicated), NumPy reads the key itself: the
selection is whole, too, and only its layout is looked up. Otherwise this library reads the key, and
each rank selects from its block.
"""

import operator
from collections.abc import Callable, Iterator
from sys import getrefcount
from typing import Any, Self, SupportsIndex, overload

import numpy as np

from distarray.array import mirroring, records, temporaries
from distarray.array.assigning import as_number, assign, one_element
from distarray.array.at_hand import answer_to_key, set_at_mask
from distarray.array.base import Base, own_block, own_layout
from distarray.array.divergence import verify
from distarray.array.ends import assigned
from distarray.array.excerpts import elements_at_hand
from distarray.array.keys import basic_entries, directed, names_element, plain_key
from distarray.array.ladder import (
    at_once,
    basic_keys,
    call,
    call_in_general,
    passed,
    watched,
)
from distarray.array.lending import refreshed
from distarray.array.portable import refuse_read_only
from distarray.array.sharing import derived, noted
from distarray.array.speedups import quick
from distarray.array.storage import vacant
from distarray.config import in_force
from distarray.layout import Entries, Layout, local_key, view_layout, whole_view
from distarray.typing import Array, ArrayKey, ArrayLike, ElementKey, Key

__all__ = ["Items", "fetched"]

#: Types of values that NumPy and this library copy into blocks alike.
_VALUES = frozenset({int, float, complex, bool, np.ndarray, np.float64, np.int64})
_SINGLE = _VALUES - {np.ndarray}
#: Kinds of data types whose elements are not NumPy's scalars: records, Python objects, strings of
#: variable length.
_SPECIAL = "VOT"
#: Largest number of elements that an iterator fetches at a time.
_AHEAD = 1 << 16

_new = object.__new__
_array = np.ndarray


class Items(Base):
    """Indexing of :class:`numpy.ndarray`."""

    __slots__ = ()

    @overload
    def __getitem__(self, key: ArrayKey) -> Self: ...
    @overload
    def __getitem__(self, key: ElementKey) -> Any: ...
    @overload
    def __getitem__(self, key: tuple[Any, ...]) -> Self: ...
    @overload
    def __getitem__(self, key: SupportsIndex) -> Any: ...
    @quick("get_item")
    def __getitem__(self, key: Any) -> Any:
        block = own_block(self)
        if block is None:
            return self._read_stored(key)
        layout, mesh = self.layout, self.mesh
        # Inlined, and each condition evaluated once: function calls would cost more than the work.
        if layout.is_whole and type(block) is _array and mesh.coords is not None:
            kind = type(key)
            if kind is not tuple:
                basic = kind in basic_keys
            else:
                basic = _are_basic(key)
            if not basic:
                return self._selected(block, key)
            part = block[key]
            if type(part) is not _array:
                return part
            known = layout.replicas
            if known is None or block.dtype.kind in _SPECIAL:
                return self._part(part, key)
            result = _new(type(self))
            result.block = part
            result.mesh = mesh
            result.layout = layout.row if kind is int else known[part.shape]
            return result
        del block  # a later step may count the references to the block
        return self._read(key)

    def _read_stored(self, key: Key) -> Any:
        """Select from an array whose storage has its block, or a copy of its elements."""
        found = NotImplemented if own_layout(self) is not None else self._storage.item(self, key)
        return self._read(key) if found is NotImplemented else found

    def _part(self, part: Array, key: Any) -> Any:
        """Return the array that a basic key selects; `part` is NumPy's selection from the block.

        Records, objects and texts are selected by the general method.
        """
        if self.block.dtype.kind in _SPECIAL:
            return self._read(key)
        kinds = tuple(map(type, key)) if type(key) is tuple else (type(key),)
        return self._of_block(part, whole_view(self.layout, kinds, part.shape))

    def _selected(self, block: Array, key: Any) -> Any:
        """Select by a key that is not of the basic types."""
        found = answer_to_key(self, key) if basic_keys else NotImplemented
        if found is NotImplemented and block.nbytes < in_force().replicate_below:
            found = at_once(operator.getitem, (self, key), {})
        return self._read(key) if found is NotImplemented else found

    def _of_block(self, part: Array, layout: Layout) -> Self:
        """Return a view whose layout is known."""
        result = _new(type(self))
        result.block = part
        result.layout = layout
        result.mesh = self.mesh
        if self.layout.size >= temporaries.LARGE:
            noted(self, result, None)
        return result

    def _at_hand(self) -> bool:
        """Return True if NumPy can index the block of a whole array directly."""
        return self.mesh.coords is not None and self.block.dtype.kind not in _SPECIAL

    def _read(self, key: Key) -> Any:
        if not self.layout.is_whole:
            found = mirroring.read(self, key)
            if found is not NotImplemented:
                return found
        key = plain_key(key)
        verify(operator.getitem, (self, key), {})
        if self.layout.partials:
            self.settle()
        entries = basic_entries(key, self.layout.shape)
        if entries is None:
            return call_in_general(operator.getitem, self, key)
        result = self.sliced(entries)
        if not self.layout.is_whole:
            mirroring.noted(self, result.layout)
        return self._element(result) if names_element(key, result.layout.shape) else result

    def _element(self, cell: Self) -> Any:
        """Convert a view of one element to NumPy's scalar, or to the Python object in it.

        A record can be written to, as in NumPy; see :mod:`distarray.array.records`.
        """
        whole = cell.layout.is_replicated
        own = None if whole else records.own_part(self, cell)
        cell.settle()
        if self.mesh.coords is None:
            return cell
        if isinstance(self.block, np.generic):
            return cell.like(self.mesh.scalar(cell.block))
        block: Any = self.mesh.to_host(cell.block)
        if block.dtype.kind == "V" and not whole:
            return records.as_read(self, block, own)
        return block[()]

    @quick("set_item")
    def __setitem__(self, key: Any, value: ArrayLike) -> None:
        if own_layout(self) is None and self._storage.set_item(self, key, value):
            return
        layout = self.layout
        if layout.size >= temporaries.LARGE and self._takes_late(key, getrefcount(value), value):
            return
        block = self.block
        if layout.is_whole and type(block) is _array and self.mesh.coords is not None:
            if type(key) is not tuple:
                basic = type(key) in basic_keys
            else:
                basic = _are_basic(key)
            if basic and type(value) in _SINGLE:
                block[key] = value
                return
            if self._put(block, key, value, basic):
                return
        del block  # a later step may count the references to the block
        self._assign(plain_key(key), value)

    def _put(self, block: Array, key: Any, value: ArrayLike, basic: bool) -> bool:
        """Let NumPy set elements of a whole block if it reads the value alike; True if done."""
        if not basic or block.dtype.kind in _SPECIAL:
            done = not basic and bool(basic_keys) and set_at_mask(self, key, value)
            return done or at_once(operator.setitem, (self, key, value), {}) is None
        if isinstance(value, Base):
            if value.is_constant or value.mesh is not self.mesh or not value.layout.is_whole:
                return False
            block[key] = value.block
            return True
        if type(value) in _VALUES or isinstance(value, np.generic):
            block[key] = value
            return True
        return False

    def _assign(self, key: Key, value: ArrayLike) -> None:
        if not self.layout.is_whole and mirroring.write(self, key, value):
            return
        if isinstance(value, Base):
            given: Any = as_number(value, self.dtype) if value.is_constant else value
            value = elements_at_hand(given) if given is value else given
        act = self._set_scalar if isinstance(self.block, np.generic) else self._set
        watched(operator.setitem, (self, key, value), {}, act, (key, value))

    def _takes_late(self, key: Key, count: int, value: Any) -> bool:
        """Assign a deferred value with `count` references, if possible; return True if done."""
        if not isinstance(value, Base) or not value.waits:
            return False
        return mirroring.write(self, key, value) or assigned(self, key, count, value)

    def _set(self, key: Key, value: ArrayLike) -> None:
        if self.layout.partials:
            self.settle()
        refuse_read_only(self)
        entries = basic_entries(key, self.layout.shape, arrays=True)
        if entries is None:
            call(operator.setitem, self, key, value)
            return
        view = self.sliced(entries)
        if not self.layout.is_whole:
            mirroring.noted(self, view.layout)
        if names_element(key, view.layout.shape):
            value = one_element(value, self.dtype, self.layout.is_whole)
        assign(view, value)

    def _set_scalar(self, key: Key, value: ArrayLike) -> None:
        """Assign to the 0-d result of an operation.

        NumPy's scalars are immutable. The array API standard has 0-d arrays instead, and libraries
        that use the standard (SciPy) assign to them.
        """
        cell = self.like(self.mesh.xp.array(self.block))
        cell[key] = value
        self.block = self.mesh.scalar(cell.block)

    def sliced(self, entries: Entries) -> Self:
        """Return the view that entries of :mod:`distarray.layout.views` describe; sends nothing."""
        return derived(self, lambda x: x.viewed(x.block, entries))

    def viewed(self, own: Any, entries: Entries) -> Self:
        """Return the view that entries describe, as :meth:`sliced`, given the block."""
        layout, mesh = self.layout, self.mesh
        result = _new(type(self))
        result.mesh = mesh
        result.layout = layout_of_view = view_layout(layout, entries)
        key = local_key(layout, entries, mesh.coords)
        if key is None:
            block = vacant(own, layout_of_view, mesh)
        else:
            block = own
            if mesh.device_type != "cpu" or isinstance(block, (str, bytes)):
                block = mesh.asarray(block)  # scalars of the host and strings are no arrays
            block = block[key] if layout_of_view.shape else block[(*key, ...)]
        result.block = block if block.size else directed(block, own, entries)
        return result

    def refresh(self) -> Self:
        """Update the blocks with values that were written through other arrays; collective.

        NumPy's views share memory. If no cut of the memory fits two arrays, as for some reshapes,
        each array has its own blocks, and a stale block is updated when the array is used. The
        update takes messages, so that no rank can do it alone: :meth:`to_local` raises an error
        until all ranks have called this method. Values that the program then writes to the block of
        :meth:`to_local` reach the other arrays as well.

        Returns
        -------
        DistArray
            The array itself.

        Cost
        ----
        None if the array does not share memory like this. Otherwise one allreduce of two integers;
        if the array has stale blocks, also one exchange of the elements that are on other ranks.

        Examples
        --------
        >>> import numpy, distarray
        >>> x = distarray.distribute(numpy.zeros(6), placements=[distarray.Shard(0)])
        >>> grid = x.reshape(2, 3)
        >>> x[:] = 1
        >>> bool((grid.refresh().to_local() == 1).all())
        True
        """
        verify(type(self).refresh, (self,), {})
        refreshed(self)
        return self

    def assign(self, value: ArrayLike) -> None:
        """Copy a value into the array, as ``x[...] = value`` does."""
        assign(self, value)

    def __delitem__(self, key: Key) -> None:
        raise ValueError("cannot delete array elements")

    def __len__(self) -> int:
        layout = own_layout(self)
        shape = (self._storage if layout is None else layout).shape
        if not shape:
            raise TypeError("len() of unsized object")
        return shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.layout.shape:
            raise TypeError("iteration over a 0-d array")
        if not self.layout.shape[0]:
            return iter(())
        if self.layout.partials:
            self.settle()
        return self._elements() if self.layout.ndim == 1 else self._rows()

    def _rows(self) -> Iterator[Any]:
        layout, block = self.layout, self.block
        if layout.is_whole and type(block) is np.ndarray and self._at_hand():
            part_layout = whole_view(layout, (int,), layout.shape[1:])
            return (self._of_block(part, part_layout) for part in block)
        return (self[position] for position in range(layout.shape[0]))

    def _elements(self) -> Iterator[Any]:
        """Return an iterator over a 1-d array; elements of a cut array are fetched in stretches."""
        if self.mesh.coords is not None and self.layout.is_whole and self.mesh.device_type == "cpu":
            return iter(self.block)
        return fetched(lambda: self, self.shape[0])

    def __contains__(self, value: ArrayLike) -> bool:
        return bool(np.any(self == value))


def _are_basic(key: tuple[Any, ...]) -> bool:
    """Return True if NumPy and this library read all entries of a key alike."""
    if len(key) == 2:  # by far the most frequent length
        return type(key[0]) in basic_keys and type(key[1]) in basic_keys
    return basic_keys.issuperset(map(type, key)) and bool(basic_keys)


def fetched(line: Callable[[], Any], size: int) -> Iterator[Any]:
    """Yield the elements of a 1-d array, of which a stretch is fetched at a time.

    Elements are fetched again after calls that may have written to them, and then few at a time.
    `line` returns the current array.
    """
    start, ahead, seen = 0, _AHEAD, -1
    array: Any = None
    while start < size:
        array = array if seen == passed.number else line()
        elements = records.with_own(array, start, array[start : start + ahead].full())
        seen, ahead = passed.number, min(2 * ahead, _AHEAD)
        for element in elements:
            if passed.number != seen:
                ahead = 1
                break
            yield element
            start += 1
