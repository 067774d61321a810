"""``x.flat``: the elements in C order, for reading, writing and iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from distarray.array import DistArray, Objects, as_distarray, call, implements
from distarray.array.items import fetched
from distarray.array.keys import as_index, plain_key
from distarray.array.ladder import watched
from distarray.array.portable import refuse_read_only
from distarray.array.sharing import writing
from distarray.engines.indexing.values import as_values
from distarray.engines.reshaping import reshaped
from distarray.ops.indexing.take import put
from distarray.ops.rearranging import resize
from distarray.ops.reshape import ravel
from distarray.typing import Array, ArrayLike, DTypeLike, Key, Shape

__all__ = ["FlatIterator", "flat"]


#: Types of key entries that need no conversion.
_PLAIN = (DistArray, np.ndarray, slice, EllipsisType)
#: Maximum number of dimensions that NumPy's flat iterators support.
_MOST = 32


def _elements(base: DistArray) -> Iterator[Any]:
    """Iterate over the elements in C order; each is read on demand."""
    if base.mesh.coords is None or not base.layout.is_whole or base.mesh.device_type != "cpu":
        return fetched(lambda: ravel(base), base.size)
    block: Any = base.block
    return iter(np.asarray(block).flat)


class FlatIterator(NDArrayOperatorsMixin):
    """Counterpart of :attr:`numpy.ndarray.flat`, with the same rules.

    Indexing returns copies; assignment changes the array, and repeats values if there are too
    few. NumPy functions treat the iterator as the flattened array.

    Parameters
    ----------
    base : DistArray
        The array.

    Notes
    -----
    If the flattened array is a view (see :func:`~distarray.ops.reshape.ravel`), the view is
    read and written. Otherwise reading redistributes the array once. Writing redistributes it a
    second time, back.
    """

    __slots__ = ("_index", "_values", "base")

    def __init__(self, base: DistArray) -> None:
        if base.ndim > _MOST:
            raise RuntimeError(
                f"this function only supports up to {_MOST} dimensions but the array has "
                f"{base.ndim}."
            )
        self.base = base
        self._index = 0
        self._values: Iterator[Any] | None = None

    @property
    def index(self) -> int:
        """Number of elements that iteration has passed."""
        return self._index

    @property
    def coords(self) -> Shape:
        """Index of the next element in the array."""
        return tuple([int(n) for n in np.unravel_index(self.index, self.base.shape)])

    def copy(self) -> DistArray:
        """Return the flattened array, with memory of its own."""
        return reshaped(self.base, (self.base.size,), copy=True)

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> FlatIterator:
        return self

    def __next__(self) -> Any:
        if self._values is None:
            self._values = _elements(self.base)
        value = next(self._values)
        self._index += 1
        return value

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> Array:
        return np.asarray(self.copy(), dtype)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: ArrayLike, **kwargs: Any
    ) -> Any:
        return getattr(ufunc, method)(*[_flattened(x) for x in inputs], **kwargs)

    def __array_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        named = {name: _flattened(value) for name, value in kwargs.items()}
        return call(func, *[_flattened(x) for x in args], **named)

    def __getitem__(self, key: Key) -> Any:
        entry = _single(plain_key(key), self.base.size)
        _check_number(as_index(entry), self.base.size)
        found = ravel(self.base)[entry]
        return found.copy() if isinstance(found, DistArray) else found

    def __setitem__(self, key: Key, value: ArrayLike) -> None:
        base, key = self.base, plain_key(key)
        if type(key) is tuple and not key:
            raise IndexError("Assigning to a flat iterator with a 0-D index is not supported")
        refuse_read_only(base, "underlying array is read-only")
        entry = _single(_positions(key), base.size)
        if base.dtype.kind == "O" and as_index(entry) is not None:
            value = _one_object(value)
        value = np.asarray(value) if isinstance(value, np.generic) else value  # cast like an array
        values = as_distarray(as_values(value, base.dtype), base.mesh).plain()
        number = as_index(entry)
        if number is not None:
            _check_number(number, base.size)
            if values.ndim:
                raise ValueError("Error setting single item of array.")
            call(np.put, base, [number], values)
        elif values.size and getattr(entry, "dtype", np.dtype(bool)).kind != "b":
            if base.layout.partials:
                base.settle()
            # On one rank NumPy's own put is not used: for an array with gaps it writes to a copy,
            # which is lost if it raises.
            with writing(base):
                watched(np.put, (base, entry, values), {}, put, (base, entry, values))
        elif values.size:
            self._set_many(entry, _repeated(values, _selected(entry, base.size)))

    def __delitem__(self, key: Key) -> None:
        raise TypeError("Cannot delete iterator elements")

    def _set_many(self, entry: slice | EllipsisType | ArrayLike, values: DistArray) -> None:
        """Assign to a slice, or to the elements that a mask selects."""
        base = self.base
        try:
            line = reshaped(base, (base.size,), copy=False)
        except ValueError:  # elements have to move to other ranks
            line = reshaped(base, (base.size,), copy=True)
            line[entry] = values
            base[...] = reshaped(line, base.shape)
        else:
            line[entry] = values


def _flattened(x: ArrayLike) -> Any:
    if isinstance(x, FlatIterator):
        return ravel(x.base)
    if isinstance(x, (list, tuple)):
        return type(x)([_flattened(item) for item in x])
    return x


def _one_object(value: Any) -> Any:
    """Return an object, which may be a list, as the single element of an array."""
    one = np.empty((), object)
    one.flat[0] = value
    return one


def _single(key: Key, size: int) -> Any:
    """Return the only entry of a key; a list becomes the array of its positions."""
    entry: Any = key
    if isinstance(key, tuple):
        if len(key) > 1:
            _ask(key, size)
        entry = key[0] if key else slice(None)
    if isinstance(entry, FlatIterator):
        entry = ravel(entry.base)
        if not entry.size:
            return np.zeros(0, np.intp)
    is_plain = isinstance(entry, _PLAIN) or as_index(entry) is not None
    if not is_plain or isinstance(entry, (bool, np.bool_)):
        return _converted(key, entry, size)
    kind = getattr(entry, "dtype", np.dtype(np.intp)).kind
    if kind == "b" and entry.shape != (size,):
        raise IndexError(
            "boolean index did not match indexed flat iterator along axis 0; size of axis is "
            f"{size} but size of corresponding boolean axis is {len(entry)}"
        )
    return entry


def _positions(key: Key) -> Key:
    """Return a list of integers as an array, so that positions before an error are written."""
    found = np.asarray(key) if isinstance(key, list) else np.empty(0)
    return found if found.dtype.kind in "iu" else key


def _ask(key: Any, size: int) -> None:
    """Let NumPy check the key of a flat iterator, for its exceptions and warnings."""
    np.broadcast_to(np.zeros(()), (size,)).flat[key]


def _check_number(number: int | None, size: int) -> None:
    if number is not None and not -size <= number < size:
        _ask(number, size)


def _converted(key: Any, entry: Any, size: int) -> Any:
    """Return the positions in a list, a truth value or a number; or raise NumPy's error."""
    _ask(key, size)
    if isinstance(entry, list):
        return np.asarray(entry).astype(np.intp)
    if isinstance(entry, (bool, np.bool_)):
        return 0 if entry else slice(0, 0)
    return int(entry)


def _selected(entry: slice | EllipsisType | Array, size: int) -> Shape:
    """Return the shape of the elements that an entry selects."""
    if entry is Ellipsis:
        return (size,)
    if isinstance(entry, slice):
        return (len(range(*entry.indices(size))),)
    if entry.dtype == bool:
        return (int(np.count_nonzero(entry)),)
    return tuple(entry.shape)


def _repeated(values: DistArray, shape: Shape) -> DistArray:
    return values if values.size == 1 else resize(values, shape)


@implements(np.flatiter, at=True, computes=False, objects=Objects.ENGINE)
def flat(x: DistArray) -> FlatIterator:
    """Return the flat iterator of an array."""
    return FlatIterator(x)
