"""Indexing, assignment and iteration.

Where every rank has the whole array, on one rank as for a replicated array on many, NumPy reads
the key itself: what is selected is whole, too, and only its layout is looked up. Otherwise the key
is read here, and each rank takes its part.
"""

import operator
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from distarray.array import registry
from distarray.array.assigning import assign, one_element
from distarray.array.base import Base
from distarray.array.blocks import refuse_read_only
from distarray.array.divergence import verify
from distarray.array.floaterrors import NORMAL, agreed, error_state, raises
from distarray.array.keys import basic_entries, directed, field_named, names_element
from distarray.array.storage import vacant
from distarray.config import config
from distarray.layout import Layout, local_key, view_layout, whole_view

__all__ = ["Items"]

#: Entries of keys that NumPy reads as we do, and values that it copies into blocks as we do.
_BASIC = frozenset({int, slice, type(None), type(Ellipsis), np.int64})
_VALUES = frozenset({int, float, complex, bool, np.ndarray})
#: Records, Python objects and strings of any length, whose elements are no scalars of NumPy's.
_SPECIAL = "VOT"

_new = object.__new__


def _as_it_is(value: Any, mesh: Any) -> Any:
    """A value that NumPy copies into a whole block as we do; None for others."""
    if isinstance(value, Base):
        return value._block if value._mesh is mesh and value._layout.is_whole else None
    return value if type(value) in _VALUES or isinstance(value, np.generic) else None


class Items(Base):
    """The indexing of :class:`numpy.ndarray`."""

    __slots__ = ()

    def __getitem__(self: Any, key: Any) -> Any:
        if config.settings.check:
            verify(operator.getitem, (self, key), {})
        layout, block = self._layout, self._block
        if layout.is_whole and type(block) is np.ndarray:
            kinds = tuple(map(type, key)) if type(key) is tuple else (type(key),)
            if _BASIC.issuperset(kinds) and self._at_hand():
                result = _new(type(self))
                result._block = part = block[key]
                result._layout = whole_view(layout, kinds, part.shape)
                result._mesh = self._mesh
                return result
        return self._read(key)

    def _at_hand(self) -> bool:
        """Whether NumPy can index the block of a whole array in its place."""
        return self._mesh.coords is not None and self._block.dtype.kind not in _SPECIAL

    def _read(self: Any, key: Any) -> Any:
        if self._layout.partials:
            self._settle()
        if isinstance(self._block, np.void):
            key = field_named(self._block, key)
        entries = basic_entries(key, self._layout.shape)
        if entries is None:
            return registry.call(operator.getitem, self, key)
        result = self._view(entries)
        if names_element(key, result._layout.shape):
            result._settle()
            if result._block.dtype.kind in "OT":
                return result._block[()]  # the object itself, as in NumPy
            result._block = result._mesh.scalar(result._block)
        return result

    def __setitem__(self: Any, key: Any, value: Any) -> None:
        if config.settings.check:
            verify(operator.setitem, (self, key, value), {})
        layout, block = self._layout, self._block
        if layout.is_whole and type(block) is np.ndarray:
            kinds = map(type, key) if type(key) is tuple else (type(key),)
            if _BASIC.issuperset(kinds) and self._at_hand():
                given = _as_it_is(value, self._mesh)
                if given is not None and (error_state() is NORMAL or not raises()):
                    block[key] = given
                    return
        self._write(key, value)

    def _write(self: Any, key: Any, value: Any) -> None:
        if isinstance(self._block, np.generic):
            self._set_scalar(key, value)
        elif error_state() is not NORMAL and raises() and not self._layout.is_replicated:
            agreed(self._mesh, self._set, key, value)
        else:
            self._set(key, value)

    def _set(self: Any, key: Any, value: Any) -> None:
        if self._layout.partials:
            self._settle()
        refuse_read_only(self._block)
        entries = basic_entries(key, self._layout.shape, arrays=True)
        if entries is None:
            registry.call(operator.setitem, self, key, value)
            return
        view = self._view(entries)
        if names_element(key, view._layout.shape):
            value = one_element(value, self.dtype)
        assign(view, value)

    def _set_scalar(self: Any, key: Any, value: Any) -> None:
        """Assign to the 0-d result of an operation.

        NumPy's scalars refuse it. The array API standard has 0-d arrays instead, and libraries
        that are written to it (SciPy) assign to them.
        """
        if isinstance(self._block, np.void):
            raise TypeError(
                "a record that was read from a distributed array is a copy of it: write to the "
                "array, x['field'][index] = value or x[index] = record"
            )
        cell = self._like(self._mesh.xp.array(self._block))
        cell[key] = value
        self._block = self._mesh.scalar(cell._block)

    def _view(self, entries: Any) -> Self:
        layout, mesh = self._layout, self._mesh
        result = _new(type(self))
        result._mesh = mesh
        result._layout = layout_of_view = view_layout(layout, entries)
        key = local_key(layout, entries, mesh.coords)
        if key is None:
            block = vacant(self, layout_of_view)
        else:
            block = self._block
            if mesh.device_type != "cpu" or isinstance(block, (str, bytes)):
                block = mesh.asarray(block)  # a scalar of the host, or of text, is no array
            block = block[key] if layout_of_view.shape else block[(*key, ...)]
        result._block = block if block.size else directed(block, self._block, entries)
        return result

    def _assign(self, value: Any) -> None:
        assign(self, value)

    def __len__(self: Any) -> int:
        if isinstance(self._block, np.void):
            return len(self.dtype.names or ())
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]  # type: ignore[no-any-return]

    def __iter__(self: Any) -> Any:
        if isinstance(self._block, np.void):
            return (self[position] for position in range(len(self)))
        if not self._layout.shape:
            raise TypeError("iteration over a 0-d array")
        if not self._layout.shape[0]:
            return iter(())
        if self._layout.partials:
            self._settle()
        layout, block = self._layout, self._block
        if layout.is_whole and type(block) is np.ndarray and self._at_hand():
            return self._wrapped(block, whole_view(layout, (int,), layout.shape[1:]))
        if layout.ndim > 1:
            return (self[position] for position in range(layout.shape[0]))
        return self._scalars()

    def _wrapped(self, parts: Any, layout: Layout) -> Iterator[Any]:
        kind, mesh = type(self), self._mesh
        for part in parts:
            result = _new(kind)
            result._block = part
            result._layout = layout
            result._mesh = mesh
            yield result

    def _scalars(self: Any) -> Iterator[Any]:
        """Elements of a 1-d array, a stretch of them fetched at a time."""
        layout = Layout.replicated((), self._mesh.shape)
        for start in range(0, self.shape[0], 1 << 16):
            elements = self[start : start + (1 << 16)].full()
            yield from elements if self.dtype.hasobject else self._wrapped(elements, layout)

    def __contains__(self: Any, value: Any) -> bool:
        return bool((self == value).any())
