"""Excerpts: what a loop selects from a cut array of which every rank keeps all elements.

An excerpt stands for a view. As long as its :class:`~distarray.array.mirrors.Mirror` is valid,
operators and functions that only read it use the elements that are kept, as those of an array that
every rank has whole. As soon as anybody asks for its block or its layout, and so might write to it,
it becomes the view, so that the rest of the library never sees an excerpt.
(:class:`~distarray.array.deferred.Deferred` works in the same way.)
"""

import operator
from collections.abc import Callable, Collection, Iterable
from functools import wraps
from math import prod
from typing import Any

import numpy as np

from distarray.array import mirrors
from distarray.array.base import Base, become, storage_of
from distarray.array.core import DistArray
from distarray.array.deferred import Unseen
from distarray.array.floaterrors import error_state
from distarray.array.keys import basic_entries, plain_key
from distarray.array.ladder import is_free, only_reads, passed, usual
from distarray.array.leaves import held, hold
from distarray.array.mirrors import Mirror
from distarray.array.sharing import ancestor
from distarray.layout import Layout
from distarray.typing import Args, Array, ArrayLike, DTypeLike, Key, Kwargs, ShapeLike

__all__ = ["Excerpt"]

_layout_slot: Any = Base.__dict__["layout"]
_set_layout: Callable[[Any, Layout], None] = _layout_slot.__set__
_new = object.__new__


class _Selected:
    """Where an excerpt comes from.

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


class Excerpt(DistArray, metaclass=Unseen):
    """Stands for a view of a cut array whose elements every rank keeps; see the module."""

    __slots__ = ()

    @property
    def layout(self) -> Layout:
        """Where every element is; asking for it makes the excerpt a plain view."""
        _become_view(self)
        return self.layout

    @layout.setter
    def layout(self, layout: Layout) -> None:
        _set_layout(self, layout)

    @property
    def block(self) -> Any:
        """This rank's block; asking for it makes the excerpt a plain view."""
        _become_view(self)
        return self.block

    @block.setter
    def block(self, block: Array) -> None:
        _become_view(self)
        self.block = block

    # -- what is known without the view --------------------------------------------------------

    @property
    def shape(self) -> Any:
        """Shape of the global array."""
        return _part(self).shape

    @shape.setter
    def shape(self, shape: ShapeLike) -> None:
        _become_view(self)
        self.shape = shape

    @property
    def dtype(self) -> Any:
        """Data type of the elements."""
        return _part(self).dtype

    @dtype.setter
    def dtype(self, dtype: DTypeLike) -> None:
        _become_view(self)
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(_part(self).shape)

    @property
    def size(self) -> int:
        """Number of elements of the global array."""
        return prod(_part(self).shape)

    def __len__(self) -> int:
        return len(_part(self))

    # -- reading ---------------------------------------------------------------------------------

    def __getitem__(self, key: Key) -> Any:  # type: ignore[override]
        kept = _valid(self)
        if kept is None or not mirrors.is_plain(key):
            _become_view(self)
            return self[key]
        part = kept.part[key]
        if type(part) is np.ndarray:
            return _excerpt(kept.mirror, self, key, part)
        return part

    def __setitem__(self, key: Any, value: ArrayLike) -> None:
        kept = _valid(self)
        if kept is not None and kept.parent is kept.mirror.origin and mirrors.is_plain(key):
            given = mirrors.given(value, self)
            if given is not None and mirrors.is_writeable(kept.parent):
                _write(kept, operator.setitem, kept.part, key, given)
                return
        _become_view(self)
        self[key] = value

    def full(self) -> Any:
        """The global array as a new NumPy array on every rank; collective."""
        kept = _valid(self)
        if kept is None:
            _become_view(self)
            return self.full()
        return kept.part.copy()

    full_tensor = full

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "__call__" and "out" not in kwargs and len(inputs) == ufunc.nin:
            inputs = tuple(map(_at_hand, inputs))
        _become_views((*inputs, *kwargs.values()))
        return getattr(ufunc, method)(*inputs, **kwargs)

    def __array_function__(
        self, func: Callable[..., Any], types: Collection[type], args: Args, kwargs: Kwargs
    ) -> Any:
        if only_reads(func, args, kwargs):
            args = tuple(map(_at_hand, args))
        _become_views((*args, *kwargs.values()))
        return func(*args, **kwargs)


Excerpt.__name__, Excerpt.__qualname__ = DistArray.__name__, DistArray.__qualname__


def _part(x: Base) -> Any:
    kept: Any = held(x)
    return kept.part if type(kept) is _Selected else kept


def _valid(x: Base) -> _Selected | None:
    """Where an excerpt comes from, if the elements kept are still the array's; else None."""
    kept: Any = held(x)
    if type(kept) is not _Selected:
        return None
    mirror, now = kept.mirror, passed.__dict__
    # The first half is `mirror.holds`, written out as loops ask it at every step.
    if mirror.seen != now["number"] - now["harmless"] or kept.part.base is not mirror.elements:
        return None
    if error_state() is usual[0] or is_free(operator.getitem, mirror.layout):
        return kept
    return None


def _at_hand(x: Any) -> Any:
    """An excerpt with valid elements as a whole array of them; any other value unchanged."""
    kept = _valid(x) if type(x) is Excerpt else None
    return x if kept is None else _whole(kept, x)


def _whole(kept: _Selected, x: Base) -> DistArray:
    result: DistArray = _new(DistArray)
    result.block, result.mesh = kept.part, x.mesh
    result.layout = kept.mirror.replicas[kept.part.shape]
    return result


def _become_views(values: Iterable[Any]) -> None:
    for value in values:
        if type(value) is Excerpt:
            _become_view(value)
        elif type(value) in (tuple, list):
            _become_views(value)


def _become_view(x: Any) -> None:
    """Make an excerpt the view that it stands for."""
    kept = held(x)
    if type(kept) is not _Selected:
        return
    parent = kept.parent
    entries: Any = basic_entries(plain_key(kept.key), parent.layout.shape)
    view = parent.sliced(entries)
    x.__class__ = DistArray
    become(x, view)
    if storage_of(x) is not None:  # the mirror's own array is none that the program knows
        x._storage.base = ancestor(parent)


def _excerpt(mirror: Mirror, parent: Base, key: Key, part: Array) -> Any:
    """An excerpt of the elements `part`, which `key` selects from `parent`."""
    kept = _new(_Selected)
    kept.mirror, kept.parent, kept.key, kept.part = mirror, parent, key, part
    result = _new(Excerpt)
    result.mesh = parent.mesh
    hold(result, kept)
    return result


def _elements_of(x: Base) -> Any:
    kept = _valid(x) if type(x) is Excerpt else None
    return None if kept is None else kept.part


def _is_of(x: Base, mirror: Mirror, key: Key) -> bool:
    kept = _valid(x) if type(x) is Excerpt else None
    if kept is None or kept.mirror is not mirror or kept.parent is not mirror.origin:
        return False
    return bool(kept.key == key)


# -- operators and methods -----------------------------------------------------------------------


def _reading(name: str) -> Callable[..., Any]:
    """A method that only reads, applied to the elements that are kept, if they are valid."""
    plain: Callable[..., Any] = getattr(DistArray, name)

    @wraps(plain)
    def act(self: Excerpt, *args: Any, **kwargs: Any) -> Any:
        return plain(_ready(self), *map(_at_hand, args), **kwargs)

    return act


def _of_two(name: str) -> Callable[..., Any]:
    """As :func:`_reading`, for an operator of two operands."""
    plain: Callable[..., Any] = getattr(DistArray, name)

    @wraps(plain)
    def act(self: Excerpt, other: ArrayLike) -> Any:
        return plain(_ready(self), _at_hand(other) if type(other) is Excerpt else other)

    return act


def _ready(x: Any) -> Any:
    """A whole array of the elements that are kept; the excerpt as a plain view if not valid."""
    kept = _valid(x)
    if kept is None:
        _become_view(x)
        return x
    return _whole(kept, x)


def _in_place(name: str) -> Callable[..., Any]:
    """An operator in place, which NumPy applies to the elements that are kept."""
    plain: Callable[..., Any] = getattr(DistArray, name)
    of_numpy: Callable[..., Any] = getattr(np.ndarray, name)

    @wraps(plain)
    def act(self: Excerpt, other: ArrayLike) -> Any:
        kept = _valid(self)
        if kept is not None and kept.parent is kept.mirror.origin:
            given = mirrors.given(other, self)
            if given is not None and mirrors.is_writeable(kept.parent):
                _write(kept, of_numpy, kept.part, given)
                return self
        _become_view(self)
        return plain(self, other)

    return act


def _write(kept: _Selected, act: Callable[..., Any], *args: ArrayLike) -> None:
    mirrors.write_through(kept.mirror, kept.parent, kept.key, act, *args)


_ARITHMETIC = "add sub mul truediv floordiv mod lshift rshift and or xor"
for _name in _ARITHMETIC.split():
    setattr(Excerpt, f"__{_name}__", _of_two(f"__{_name}__"))
    setattr(Excerpt, f"__r{_name}__", _of_two(f"__r{_name}__"))
    setattr(Excerpt, f"__i{_name}__", _in_place(f"__i{_name}__"))
for _name in ("matmul", "rmatmul", "divmod", "rdivmod", "lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Excerpt, f"__{_name}__", _of_two(f"__{_name}__"))
_METHODS = """
__pow__ __rpow__ __neg__ __pos__ __abs__ __invert__
copy sum prod mean max min any all argmax argmin dot tolist item
"""
for _name in _METHODS.split():
    setattr(Excerpt, _name, _reading(_name))

mirrors.excerpt = _excerpt
mirrors.elements_of = _elements_of
mirrors.is_of = _is_of
