"""Base class of distributed arrays: the state, and the methods that other modules use."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from sys import getrefcount
from typing import TYPE_CHECKING, Any, ClassVar, cast
from weakref import WeakValueDictionary

import numpy as np

from distarray.array.speedups import used
from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.typing import Array, DTypeLike, ShapeLike

__all__ = [
    "Base",
    "all_readable",
    "become",
    "check_out",
    "is_number",
    "is_subclass",
    "keep_owned",
    "lent_of",
    "mirror_of",
    "natural_of",
    "operands_in",
    "own_block",
    "own_layout",
    "owns_block",
    "raw_block",
    "readable",
    "sequence_like",
    "storage_of",
]


class Base:
    """State of a distributed array, and declarations of methods that :class:`DistArray` adds.

    It is a plain class: every code path checks for it, and an abstract class makes such checks
    several times slower. Outside of :mod:`distarray.array`, modules normally only read the state.

    Attributes
    ----------
    block : array or numpy.generic
        This rank's block as stored: an array, or NumPy's scalar for the 0-d result of an operation.
        :meth:`DistArray.to_local` always returns an array.
    layout : Layout
        The placement of every element.
    mesh : DeviceMesh
        The ranks that hold the array.
    """

    __slots__ = (
        "__weakref__",
        "_lent",
        "_mirror",
        "_natural",
        "_storage",
        "block",
        "layout",
        "mesh",
    )

    block: Any
    layout: Layout
    mesh: DeviceMesh
    #: Class of results, whatever the operands' class: :class:`DistArray`, which sets this.
    plain_type: ClassVar[Any]
    #: True if the array consists of nothing but elements, so that it can be a buffer of them.
    has_buffer: ClassVar[bool] = True
    #: True for instances of a program's own class; see :mod:`distarray.array.subclasses`.
    is_dressed: ClassVar[bool] = False
    #: True for a constant such as ``numpy.ma.masked``: NumPy's conversions to numbers call its
    #: class's methods and do not read the elements.
    is_constant: ClassVar[bool] = False
    #: The block, if it is known that all ranks made their blocks in C order; False if blocks may be
    #: stored in different orders; unset otherwise. See :mod:`distarray.array.storage`.
    _natural: Any
    #: Blocks whose addresses were exposed; they live as long as the array. Often unset.
    _lent: list[Any]

    #: Mirror: the replicated read cache for element access in loops; see
    #: :mod:`~distarray.array.mirrors`. Often unset.
    _mirror: Any

    #: Storage (:class:`~distarray.array.memory.Storage`) of an array that shares memory, or may.
    #: Often unset.
    _storage: Any

    #: Method that carries out pending folds and replicates an array at one coordinate, in place.
    settle: Callable[[], None]
    #: Method that returns the settled array: the array itself, or a copy if it is at one
    #: coordinate. An array at one coordinate may be a view of another array, so it must stay there.
    plain: Callable[[], Any]
    #: Method that returns an array of the same layout with another block.
    like: Callable[[Any], Any]
    #: Method that returns the result of an operation, given its block, in this layout; a 0-d result
    #: becomes a number.
    computed: Callable[[Any], Any]
    #: Method that returns the 0-d result of an operation as NumPy's scalar.
    number: Callable[[], Any]
    #: Method that returns this rank's block as an array, not copied.
    to_local: Callable[[], Array]
    #: Method that returns the global array as a NumPy array on every rank.
    full: Callable[[], Array]
    #: Method that returns an array over the same memory, perhaps with another data type.
    view: Callable[..., Any]
    #: Method that returns the view that entries of :mod:`distarray.layout.views` describe.
    sliced: Callable[[Any], Any]

    if not TYPE_CHECKING:  # otherwise type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            if name in _STORED:  # the slot is empty
                storage = _storage_slot.__get__(self)
                return storage.block_of(self) if name == "block" else storage.layout_of(self)
            find = type(self).__getattribute__
            if find is not object.__getattribute__:
                return find(self, name)  # a program's class: again, for its error text
            own = getattr(type(self), name, None)
            if isinstance(own, property):  # has raised AttributeError: again, for its text
                return own.__get__(self)
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(text, name=name, obj=self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the global array."""
        layout = own_layout(self)
        shape: tuple[int, ...] = (self._storage if layout is None else layout).shape
        return shape

    @shape.setter
    def shape(self, shape: ShapeLike) -> None:
        """Reshape the array over the same memory; raise if elements would change rank."""
        np.empty(0).shape = 0  # warns if NumPy does
        try:
            found: Any = np.reshape(cast("Any", self), shape, copy=False)
        except ValueError as error:
            if not str(error).startswith("Unable to avoid"):
                raise
            text = "Incompatible shape for in-place modification. Use `.reshape()` to make a copy"
            raise AttributeError(f"{text} with the desired shape.") from None
        layout = found.layout
        if layout.is_whole:
            del found  # a view of the block
            if _resized(self, layout):
                return
            found = np.reshape(cast("Any", self), shape, copy=False)
        _take(self, found)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        layout = own_layout(self)
        ndim: int = (self._storage if layout is None else layout).ndim
        return ndim

    @property
    def size(self) -> int:
        """Number of elements of the global array."""
        layout = own_layout(self)
        size: int = (self._storage if layout is None else layout).size
        return size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        block = own_block(self)
        dtype: np.dtype[Any] = (self._storage if block is None else block).dtype
        return dtype

    @dtype.setter
    def dtype(self, dtype: DTypeLike) -> None:
        """Interpret the same memory as another data type; see :meth:`view`."""
        _take(self, self.view(dtype))

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the global array."""
        return self.size * self.itemsize

    @property
    def waits(self) -> bool:
        """True if the array waits for deferred operations, or deferred operations for its block."""
        storage = storage_of(self)
        return storage is not None and storage.late is not None

    @property
    def _beginning(self) -> dict[str, Any]:
        """Location of the first element, in the format of ``__array_interface__["data"]``.

        If two arrays have equal values on one rank, they have equal values on all ranks.
        """
        if self.layout.is_whole:
            block = self.block
            is_array = isinstance(block, np.ndarray)
            place: Any = block.__array_interface__["data"][0] if is_array else id(self)
        else:
            storage = storage_of(self)
            offsets = [cut.offset for cut in self.layout.cuts if cut.offset]
            place = id(self if storage is None else storage.source.memory), *offsets
        return {"data": (place, False)}


_STORED = ("block", "layout")
_block_slot: Any = Base.__dict__["block"]
_storage_slot: Any = Base.__dict__["_storage"]


def raw_block(x: Base) -> Any:
    """Return this rank's current block, perhaps with stale elements; no communication."""
    if type(x) is not x.plain_type:
        return x.block
    block = own_block(x)
    if block is None:
        block = _storage_slot.__get__(x).block
    return x.block if block is None else block


def _getter(slot: Any) -> Callable[[Base], Any]:
    """Return a function that gets the value of a slot, or None if the slot is empty.

    It bypasses :meth:`Base.__getattr__`, which would cost time.
    """
    if hasattr(used, "getter"):
        quick: Callable[[Base], Any] = used.getter(slot)
        return quick
    get = slot.__get__

    def value_or_none(x: Base) -> Any:
        try:
            return get(x)
        except AttributeError:
            return None

    return value_or_none


storage_of, mirror_of, natural_of, lent_of, own_block, own_layout = map(
    _getter,
    [
        Base.__dict__[name]
        for name in ("_storage", "_mirror", "_natural", "_lent", "block", "layout")
    ],
)


def readable(x: Base) -> Any:
    """Return an array for reading: a replicated array of cached elements for a valid excerpt."""
    if own_layout(x) is None:
        storage = storage_of(x)
        if storage is not None:
            return storage.readable(x)
    return x


def all_readable(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace excerpts among arguments as :func:`readable`; without any return the same tuple."""
    for value in values:
        is_kept = isinstance(value, Base) and own_layout(value) is None
        if is_kept and readable(value) is not value:
            return tuple([readable(x) if isinstance(x, Base) else x for x in values])
    return values


def become(x: Base, other: Base) -> None:
    """Give an array the memory, the block and the layout of another one."""
    x.layout, x._natural = other.layout, natural_of(other)
    storage = storage_of(other)
    x._storage, x._mirror = storage, None
    if storage is None or storage.block is None:
        x.block = raw_block(other)
    elif own_block(x) is not None:
        _block_slot.__delete__(x)
    if storage is not None:
        storage.source.enter(x)
        if storage.base is x:  # `x` is the base of the memory, as before
            storage.base = None


def _resized(x: Base, layout: Layout) -> bool:
    """Reshape the block in place if only this array refers to it; return False otherwise.

    Then the array still owns its memory, as in NumPy.
    """
    if not x.layout.is_whole:
        return False
    block, storage = x.block, storage_of(x)
    if type(block) is not np.ndarray:
        return False
    if storage is not None:
        alive = [known for known in storage.source.arrays if known() is not None]
        if storage.parent is not None or len(alive) > 1:
            return False
    x._natural = None
    if block.base is not None or not block.flags.c_contiguous or getrefcount(block) > _ALONE:
        return False
    block.resize(layout.shape, refcheck=False)
    x.layout, x._mirror = layout, None
    if storage is not None:
        storage.kind = layout.shape, block.dtype
    return True


def _take(x: Base, view: Base) -> None:
    """Give an array the block of a view of itself; it owns its memory if it did."""
    owned = owns_block(raw_block(x))
    become(x, view)
    if owned:
        keep_owned(raw_block(x))


#: Views that have taken the place of the block that owns the memory, by their ids.
_owning: WeakValueDictionary[int, Any] = WeakValueDictionary()


def owns_block(block: Any) -> bool:
    """Return True if a block owns its memory, or took the place of the block that does."""
    return bool(block.flags.owndata) or _owning.get(id(block)) is block


def keep_owned(block: Any) -> None:
    """Note that a view has taken the place of the block that owns the memory."""
    if isinstance(block, np.ndarray) and not block.flags.owndata:
        _owning[id(block)] = block


def _count_alone() -> int:
    """Return the count that :func:`_resized` sees if only its array refers to the block."""
    x: Any = object.__new__(Base)
    x.block = np.empty(1)
    block = x.block
    return getrefcount(block)


_ALONE = _count_alone()


def operands_in(values: Iterable[Any]) -> Iterator[Base]:
    """Yield the distributed arrays among arguments and in nested lists and tuples."""
    for value in values:
        if isinstance(value, Base):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from operands_in(value)


def is_number(value: Any) -> bool:
    """Return True if a value is a 0-d array that represents a scalar: its block is a scalar."""
    is_single = isinstance(value, Base) and not value.layout.shape
    return is_single and isinstance(value.block, np.generic)


def sequence_like(model: Any, items: Sequence[Any]) -> Any:
    """Put items into a list or tuple of the type of `model`, which may be a named tuple."""
    return type(model)(*items) if hasattr(model, "_fields") else type(model)(items)


@lru_cache(maxsize=256)
def is_subclass(kind: Hashable) -> bool:
    """Return True for a program's own subclass of NumPy arrays, which results must have, too."""
    plain = (np.ndarray, np.memmap)
    return isinstance(kind, type) and issubclass(kind, np.ndarray) and kind not in plain


def check_out(out: Any) -> None:
    """Raise NumPy's error if `out` is not an array, or is a scalar."""
    if out is Ellipsis:
        raise TypeError("must use `...` as `out=...` and not per-operand/in a tuple")
    is_array = isinstance(out, (Base, np.ndarray))
    if not is_array or isinstance(getattr(out, "block", out), np.generic):
        raise TypeError("return arrays must be of ArrayType")
