"""Excerpts: cached views of a cut array whose elements every rank has in a mirror.

An array that is an excerpt has no block and no layout in its slots; its storage is an
:class:`Excerpt`. As long as the :class:`~distarray.array.mirrors.Mirror` is valid, operators and
functions that only read the array use the cached elements, as if the array were replicated
(:func:`~distarray.array.base.readable`). Any access to its block or its layout might lead to a
write, so it turns the array into a plain view of the cut array. So the rest of the library never
gets an excerpt.
"""

import operator
from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np

from distarray.array import stale_copies
from distarray.array.base import Base, become, own_layout, storage_of
from distarray.array.floaterrors import error_state
from distarray.array.keys import basic_entries, plain_key
from distarray.array.ladder import passed, usual
from distarray.array.mirrors import KINDS, SMALL, Mirror, is_plain, is_writeable, write_through
from distarray.array.sharing import ancestor
from distarray.layout import Layout
from distarray.typing import Array, ArrayLike, DType, Key, Shape

__all__ = ["NUMBERS", "Excerpt", "elements_at_hand", "excerpt", "given", "is_of"]

#: Types of numbers that NumPy uses without conversion.
NUMBERS = frozenset({int, float, complex, bool, np.float64, np.int64})
_new = object.__new__


class Excerpt:
    """Storage of an array that is an excerpt.

    Attributes
    ----------
    mirror : Mirror
        The cached elements of the whole array.
    parent : DistArray
        The array, or another excerpt of it.
    key
        The key that selects the excerpt from `parent`.
    part : numpy.ndarray
        The excerpt's elements, a view of the mirror's elements.
    """

    __slots__ = ("key", "mirror", "parent", "part")

    mirror: Mirror
    parent: Any
    key: Any
    part: Any
    #: Attributes of a :class:`~distarray.array.memory.Storage`, all None: an excerpt has no place
    #: in a memory yet.
    block: ClassVar[None] = None
    late: ClassVar[None] = None
    source: ClassVar[None] = None
    base: ClassVar[None] = None

    # -- properties that need no view ----------------------------------------------------------

    @property
    def dtype(self) -> DType:
        """Data type of the elements."""
        dtype: DType = self.part.dtype
        return dtype

    @property
    def shape(self) -> Shape:
        """Shape of the array."""
        shape: Shape = self.part.shape
        return shape

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.part.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.part.shape)

    # -- reading ---------------------------------------------------------------------------------

    @property
    def is_valid(self) -> bool:
        """True if the cached elements are those of the array, and can be read."""
        mirror, now = self.mirror, passed.__dict__
        # The first half is `mirror.holds`, inlined since loops evaluate it at every step.
        if mirror.seen != now["number"] - now["harmless"] or self.part.base is not mirror.elements:
            return False
        return error_state() is usual[0] or mirror.is_free

    def item(self, x: Base, key: Key) -> Any:
        """Return the elements that a key selects; NotImplemented if a view is needed first."""
        if not self.is_valid or not is_plain(key):
            return NotImplemented
        part = self.part[key]
        return excerpt(self.mirror, x, key, part) if type(part) is np.ndarray else part

    def readable(self, x: Base) -> Any:
        """Return a replicated array of the cached elements; if stale, `x` as a plain view."""
        if not self.is_valid:
            self.become_view(x)
            return x
        result = _new(Base.plain_type)
        result.block, result.mesh = self.part, x.mesh
        result.layout = self.mirror.replicas[self.part.shape]
        return result

    # -- writing -----------------------------------------------------------------------------------

    def set_item(self, x: Base, key: Key, value: ArrayLike) -> bool:
        """Assign to the elements that a key selects; False if a plain view is needed first."""
        return is_plain(key) and self._write(x, value, operator.setitem, key)

    def in_place(self, x: Base, ufunc: np.ufunc, other: ArrayLike) -> bool:
        """Apply an operator in place; return False if a plain view is needed first."""
        return self._write(x, other, ufunc)

    def _write(self, x: Base, value: ArrayLike, act: Callable[..., Any], *key: Key) -> bool:
        mirror, parent = self.mirror, self.parent
        if not self.is_valid or parent is not mirror.origin:
            return False
        found = given(value, x)
        if found is None or not is_writeable(parent):
            return False
        if passed.watched:
            stale_copies.tell(parent)
        args = (*key, found) if key else (found, self.part)  # the second is the ufunc's `out`
        write_through(mirror, parent, self.key, act, self.part, *args)
        return True

    # -- conversion to a plain view --------------------------------------------------------------

    def block_of(self, x: Base) -> Any:
        """Turn the array into a plain view, and return its block."""
        self.become_view(x)
        return x.block

    def layout_of(self, x: Base) -> Layout:
        """Turn the array into a plain view, and return its layout."""
        self.become_view(x)
        return x.layout

    def become_view(self, x: Base) -> None:
        """Turn the array into a plain view of the cut array."""
        parent = self.parent
        entries: Any = basic_entries(plain_key(self.key), parent.layout.shape)
        become(x, parent.sliced(entries))
        if storage_of(x) is not None:  # its base must be an array that the program has
            x._storage.base = ancestor(parent)


def excerpt(mirror: Mirror, parent: Base, key: Key, part: Array) -> Any:
    """Return the excerpt with the elements `part`, which `key` selects from `parent`."""
    own = _new(Excerpt)
    own.mirror, own.parent, own.key, own.part = mirror, parent, key, part
    result = _new(Base.plain_type)
    result.mesh, result._storage = parent.mesh, own
    return result


def elements_at_hand(x: Base) -> Any:
    """Return the elements of a valid excerpt; any other array unchanged."""
    own = storage_of(x) if own_layout(x) is None else None
    return own.part if type(own) is Excerpt and own.is_valid else x


def is_of(x: Base, mirror: Mirror, key: Key) -> bool:
    """Return True if `x` is the valid excerpt that a key selects from a mirror's array."""
    own = storage_of(x) if own_layout(x) is None else None
    if type(own) is not Excerpt or own.mirror is not mirror or own.parent is not mirror.origin:
        return False
    return own.is_valid and bool(own.key == key)


def given(value: ArrayLike | Base, x: Base) -> Any:
    """Return a small value that all ranks have, in a form that NumPy accepts; else None."""
    if type(value) in NUMBERS:
        return value
    if isinstance(value, Base):
        if value.mesh is not x.mesh:
            return None
        found = elements_at_hand(value)
        if found is not value:
            return found
        if not value.layout.is_whole or value.layout.size * value.dtype.itemsize > SMALL:
            return None
        value = value.block
    elif type(value) is not np.ndarray and not isinstance(value, np.generic):
        return None
    block: Any = value
    return block if block.dtype.kind in KINDS and block.nbytes <= SMALL else None
