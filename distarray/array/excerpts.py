"""Excerpts: what a loop selects from a cut array of which every rank keeps all elements.

An array that is an excerpt has no block and no layout in its slots; its storage is an
:class:`Excerpt`. As long as the :class:`~distarray.array.mirrors.Mirror` is valid, operators and
functions that only read the array use the elements that are kept, as those of an array that every
rank has whole (:func:`~distarray.array.base.readable`). As soon as anybody asks for its block or
its layout, and so might write to it, the array becomes the view that it stands for. So the rest of
the library never sees an excerpt.
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

#: Types of numbers that NumPy takes as they are.
NUMBERS = frozenset({int, float, complex, bool, np.float64, np.int64})
_new = object.__new__


class Excerpt:
    """The storage of an array that is an excerpt.

    Attributes
    ----------
    mirror : Mirror
        Has the elements.
    parent : DistArray
        The array, or another excerpt of it.
    key
        Selects the excerpt from `parent`.
    part : numpy.ndarray
        The excerpt's elements, a view of the mirror's.
    """

    __slots__ = ("key", "mirror", "parent", "part")

    mirror: Mirror
    parent: Any
    key: Any
    part: Any
    #: As those of a :class:`~distarray.array.memory.Storage`; it has a place in no memory yet.
    block: ClassVar[None] = None
    late: ClassVar[None] = None
    source: ClassVar[None] = None
    base: ClassVar[None] = None

    # -- what is known without the view --------------------------------------------------------

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
        """Whether the elements that are kept are still the array's, and can be read."""
        mirror, now = self.mirror, passed.__dict__
        # The first half is `mirror.holds`, written out as loops ask it at every step.
        if mirror.seen != now["number"] - now["harmless"] or self.part.base is not mirror.elements:
            return False
        return error_state() is usual[0] or mirror.is_free

    def item(self, x: Base, key: Key) -> Any:
        """The elements that a key selects; NotImplemented if the array has to be a view first."""
        if not self.is_valid or not is_plain(key):
            return NotImplemented
        part = self.part[key]
        return excerpt(self.mirror, x, key, part) if type(part) is np.ndarray else part

    def readable(self, x: Base) -> Any:
        """A whole array of the elements that are kept; if they are old, the array, now a view."""
        if not self.is_valid:
            self.become_view(x)
            return x
        result = _new(Base.plain_type)
        result.block, result.mesh = self.part, x.mesh
        result.layout = self.mirror.replicas[self.part.shape]
        return result

    # -- writing -----------------------------------------------------------------------------------

    def set_item(self, x: Base, key: Key, value: ArrayLike) -> bool:
        """Assign to the elements that a key selects; False if the array has to be a view first."""
        return is_plain(key) and self._write(x, value, operator.setitem, key)

    def in_place(self, x: Base, ufunc: np.ufunc, other: ArrayLike) -> bool:
        """Apply an operator in place; False if the array has to be a view first."""
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
        args = (*key, found) if key else (found, self.part)  # which is the ufunc's `out`
        write_through(mirror, parent, self.key, act, self.part, *args)
        return True

    # -- becoming the view -----------------------------------------------------------------------

    def block_of(self, x: Base) -> Any:
        """The block of the array, which is the view from then on."""
        self.become_view(x)
        return x.block

    def layout_of(self, x: Base) -> Layout:
        """Where every element is; the array is the view from then on."""
        self.become_view(x)
        return x.layout

    def become_view(self, x: Base) -> None:
        """Make the array the view that it stands for."""
        parent = self.parent
        entries: Any = basic_entries(plain_key(self.key), parent.layout.shape)
        become(x, parent.sliced(entries))
        if storage_of(x) is not None:  # the mirror's own array is none that the program knows
            x._storage.base = ancestor(parent)


def excerpt(mirror: Mirror, parent: Base, key: Key, part: Array) -> Any:
    """The excerpt of the elements `part`, which `key` selects from `parent`."""
    own = _new(Excerpt)
    own.mirror, own.parent, own.key, own.part = mirror, parent, key, part
    result = _new(Base.plain_type)
    result.mesh, result._storage = parent.mesh, own
    return result


def elements_at_hand(x: Base) -> Any:
    """The elements of an excerpt, if they are valid; any other array unchanged."""
    own = storage_of(x) if own_layout(x) is None else None
    return own.part if type(own) is Excerpt and own.is_valid else x


def is_of(x: Base, mirror: Mirror, key: Key) -> bool:
    """Whether a key selects this very excerpt of an array."""
    own = storage_of(x) if own_layout(x) is None else None
    if type(own) is not Excerpt or own.mirror is not mirror or own.parent is not mirror.origin:
        return False
    return own.is_valid and bool(own.key == key)


def given(value: ArrayLike | Base, x: Base) -> Any:
    """A small value that all ranks have, as NumPy takes it; None for any other value."""
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
