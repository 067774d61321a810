"""``x.flat``: the elements in C order, to be read, written and iterated over."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from distarray.array import DistArray, as_distarray, call, implements
from distarray.array.blocks import refuse_read_only
from distarray.array.keys import as_index
from distarray.ops.indexing.take import put_in_turn
from distarray.ops.indexing.values import as_values
from distarray.ops.rearranging import resize
from distarray.ops.reshape import ravel, reshaped

__all__ = ["FlatIterator", "flat"]


class FlatIterator(NDArrayOperatorsMixin):
    """What :attr:`numpy.ndarray.flat` is for an array, with the same rules.

    Indexing gives copies; what is assigned reaches the array, and too few values are repeated. In
    a NumPy function it stands for the flattened array.

    Parameters
    ----------
    base : DistArray
        The array.

    Notes
    -----
    Where the flattened array is a view (see :func:`~distarray.ops.reshape.ravel`), that is what
    is read and written. Otherwise reading redistributes the array once, and writing once more to
    bring it back.
    """

    __slots__ = ("_values", "base", "index")

    def __init__(self, base: DistArray) -> None:
        self.base = base
        self.index = 0
        self._values: Iterator[Any] | None = None

    @property
    def coords(self) -> tuple[int, ...]:
        """The index, in the array, of the element that comes next."""
        return tuple([int(n) for n in np.unravel_index(self.index, self.base.shape)])

    def copy(self) -> DistArray:
        """The flattened array, with memory of its own."""
        return reshaped(self.base, (self.base.size,), copy=True)

    def __len__(self) -> int:
        return self.base.size

    def __iter__(self) -> "FlatIterator":
        return self

    def __next__(self) -> Any:
        if self._values is None:
            self._values = iter(ravel(self.base))
        value = next(self._values)
        self.index += 1
        return value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.asarray(self.copy(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*[_flattened(x) for x in inputs], **kwargs)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        named = {name: _flattened(value) for name, value in kwargs.items()}
        return call(func, *[_flattened(x) for x in args], **named)

    def __getitem__(self, key: Any) -> Any:
        found = ravel(self.base)[_single(key, self.base.size)]
        return found if isinstance(found._block, np.generic) else found.copy()

    def __setitem__(self, key: Any, value: Any) -> None:
        base = self.base
        if type(key) is tuple and not key:
            raise IndexError("Assigning to a flat iterator with a 0-D index is not supported")
        refuse_read_only(base._block, "underlying array is read-only")
        key = _single(key, base.size)
        value = np.asarray(value) if isinstance(value, np.generic) else value  # cast as arrays are
        values = as_distarray(as_values(value, base.dtype), base._mesh)._plain()
        number = as_index(key)
        if number is not None:
            if not -base.size <= number < base.size:
                raise IndexError(f"index {number} is out of bounds for size {base.size}")
            if values.ndim:
                raise ValueError("Error setting single item of array.")
            call(np.put, base, [number], values)
        elif values.size and getattr(key, "dtype", np.dtype(bool)).kind != "b":
            put_in_turn(base, key, values)
        elif values.size:
            self._set_many(key, _repeated(values, _selected(key, base.size)))

    def _set_many(self, key: Any, values: DistArray) -> None:
        """Assign to a stretch, or to what a mask selects."""
        base = self.base
        try:
            line = reshaped(base, (base.size,), copy=False)
        except ValueError:  # elements have to change rank
            line = reshaped(base, (base.size,), copy=True)
            line[key] = values
            base[...] = reshaped(line, base.shape)
        else:
            line[key] = values


def _flattened(x: Any) -> Any:
    if isinstance(x, FlatIterator):
        return ravel(x.base)
    if isinstance(x, (list, tuple)):
        return type(x)([_flattened(item) for item in x])
    return x


def _single(key: Any, size: int) -> Any:
    """The one entry of a key; a list as the array of positions, or mask, that it stands for."""
    if isinstance(key, tuple):
        if len(key) > 1:
            raise IndexError(
                "too many indices for flat iterator: flat iterator is 1-dimensional, but "
                f"{len(key)} were indexed"
            )
        key = key[0] if key else slice(None)
    if isinstance(key, list):
        key = np.asarray(key) if key else np.zeros(0, np.intp)
    kind = getattr(key, "dtype", np.dtype(np.intp)).kind
    if kind == "b" and key.shape != (size,):
        raise IndexError(
            "boolean index did not match indexed flat iterator along axis 0; size of axis is "
            f"{size} but size of corresponding boolean axis is {len(key)}"
        )
    return key


def _selected(key: Any, size: int) -> tuple[int, ...]:
    """The shape of what a key selects."""
    if key is Ellipsis:
        return (size,)
    if isinstance(key, slice):
        return (len(range(*key.indices(size))),)
    if key.dtype == bool:
        return (int(np.count_nonzero(key)),)
    return tuple(key.shape)


def _repeated(values: DistArray, shape: tuple[int, ...]) -> DistArray:
    return values if values.size == 1 else resize(values, shape)


@implements(np.flatiter, at=True)
def flat(x: DistArray) -> FlatIterator:
    """The flat iterator of an array."""
    return FlatIterator(x)
