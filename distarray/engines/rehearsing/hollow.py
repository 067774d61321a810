"""Blocks without values, by which an operation is rehearsed: they have a shape and a data type.

A :class:`Hollow` array takes next to no memory. NumPy's functions give hollow results for it, as
large as they would be, and what would read a value of it raises :class:`Unknown`.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NoReturn

import numpy as np
from numpy.lib.stride_tricks import as_strided

from distarray.typing import Array, ArrayLike, DTypeLike

__all__ = [
    "METHODS",
    "RULES",
    "Hollow",
    "Unknown",
    "hollow",
    "host_empty",
    "is_hollow",
    "ordinary",
    "probe",
    "tried",
]

#: Hollow results of NumPy's functions, and of the methods of ufuncs; the functions of which NumPy's
#: own code calls methods alone. All by :mod:`distarray.engines.rehearsing.results`.
RULES: dict[Any, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
VIEWS: set[Any] = set()
#: Bytes up to which a function without a rule is called with zeros, to see what it returns.
_SMALL = 1 << 22


class Unknown(BaseException):
    """A value is asked for, and there is none; no ``except Exception`` takes it for an error."""


def hollow(shape: Sequence[int] | int, dtype: DTypeLike = float) -> "Hollow":
    """A hollow array."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return as_strided(np.zeros(1, dtype), shape, (0,) * len(shape)).view(Hollow)


def is_hollow(x: object) -> bool:
    """Whether an array, or one in a list, has no values."""
    if isinstance(x, (list, tuple)):
        return any(map(is_hollow, x))
    return isinstance(x, Hollow)


def ordinary(x: Any, usual: Any) -> Any:
    """A value that the engines decide by; what it is for usual data, in a rehearsal."""
    return usual if isinstance(x, Hollow) else x


def host_empty(shape: Sequence[int], like: Array) -> Array:
    """New memory of the host, for what goes with a block: hollow, if that is."""
    return (hollow if isinstance(like, Hollow) else np.empty)(shape, like.dtype)


def probe(x: Any) -> Any:
    """No elements of the same data type."""
    return np.zeros(0, x.dtype) if isinstance(x, np.ndarray) else x


def _as_hollow(value: Any) -> Any:
    """A result without its values."""
    if isinstance(value, (np.ndarray, np.generic)):
        return hollow(value.shape, value.dtype)
    if isinstance(value, (list, tuple)):
        items = [_as_hollow(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _zeros(value: Any) -> Any:
    """An argument with zeros for values; matrices that have to be regular are the identity."""
    if isinstance(value, Hollow):
        zeros = np.zeros(value.shape, value.dtype)
        if value.dtype.kind in "fc" and value.ndim > 1 and value.shape[-1] == value.shape[-2]:
            zeros += np.eye(value.shape[-1])
        return zeros
    if isinstance(value, (list, tuple)):
        return type(value)([_zeros(item) for item in value])
    return value


def _bytes(value: object) -> int:
    if isinstance(value, (list, tuple)):
        return sum(map(_bytes, value))
    return value.nbytes if isinstance(value, np.ndarray) else 0


def tried(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A function's result for blocks of zeros, as a hollow one; refused if they are large."""
    if _bytes(args) + _bytes(list(kwargs.values())) > _SMALL:
        raise Unknown(f"what {function.__name__} gives for a block")
    value = function(*_zeros(args), **{name: _zeros(x) for name, x in kwargs.items()})
    return _as_hollow(value)


class Hollow(np.ndarray):
    """An array of which only shape and data type are known.

    Attributes
    ----------
    sure : bool or None
        The value of all elements, where they are taken to be numbers and none is NaN.
    """

    sure: bool | None = None

    def __array_finalize__(self, of: object) -> None:
        """A view has the value of what it is a view of."""
        self.sure = getattr(of, "sure", None)

    def __array_ufunc__(
        self,
        ufunc: np.ufunc,
        method: str,
        *inputs: ArrayLike,
        out: Array | None = None,
        **kwargs: object,
    ) -> Any:
        """Hollow results, or the arrays given for them."""
        kwargs.pop("where", None)
        if method == "at":
            return None
        if out is not None:
            return out if len(out) > 1 else out[0]
        return METHODS[method](ufunc, *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """A hollow result: by a rule, by NumPy where it makes views, or by a trial with zeros."""
        rule = RULES.get(function)
        if rule is not None:
            return rule(*args, **kwargs)
        if function in VIEWS:
            return super().__array_function__(function, types, args, kwargs)
        return tried(function, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        """A view, or a hollow selection."""
        key = tuple([_index(k) for k in key]) if isinstance(key, tuple) else _index(key)
        found = super().__getitem__(key)
        is_view = isinstance(found, Hollow) and not any(found.strides)
        return found if is_view else hollow(np.shape(found), self.dtype)

    def __setitem__(self, key: Any, value: object) -> None:
        """Nothing: there are no values."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise Unknown("the values")

    def __bool__(self) -> bool:
        """The value of all elements, if it is known; else a refusal."""
        return self._refuse() if self.sure is None else self.sure

    __int__ = __float__ = __complex__ = __index__ = __contains__ = _refuse
    item = tolist = tobytes = nonzero = __str__ = __repr__ = __format__ = _refuse

    def copy(self, order: Any = "C") -> "Hollow":
        """Another."""
        return hollow(self.shape, self.dtype)

    def astype(self, dtype: DTypeLike, *_: object, copy: bool = True, **__: object) -> "Hollow":  # type: ignore[override]
        """As NumPy's."""
        same = not copy and np.dtype(dtype) == self.dtype
        return self if same else hollow(self.shape, dtype)

    def reshape(self, *shape: Any, **_: object) -> "Hollow":
        """As NumPy's."""
        wanted = shape[0] if len(shape) == 1 and np.ndim(shape[0]) else shape
        known = prod([n for n in wanted if n >= 0])
        return hollow([self.size // max(known, 1) if n < 0 else n for n in wanted], self.dtype)

    def ravel(self, *_: object, **__: object) -> "Hollow":
        """As NumPy's."""
        return hollow(self.size, self.dtype)

    flatten = ravel

    def view(self, dtype: DTypeLike = None, kind: Any = None) -> Any:  # type: ignore[override]
        """As NumPy's."""
        if dtype is None or (isinstance(dtype, type) and issubclass(dtype, np.ndarray)):
            return super().view(dtype or type(self))
        bytes_in_a_row = self.shape[-1] * self.itemsize if self.ndim else self.itemsize
        itemsize = np.dtype(dtype).itemsize
        return hollow([*self.shape[:-1], bytes_in_a_row // itemsize][: self.ndim], dtype)

    def sort(self, *_: object, **__: object) -> None:
        """Nothing."""

    fill = partition = sort

    def argsort(self, axis: int = -1, *_: object, **__: object) -> "Hollow":  # type: ignore[override]
        """As NumPy's."""
        return hollow(self.shape, np.intp)

    def repeat(self, *args: Any, **kwargs: Any) -> Any:
        """As NumPy's function, and so the others."""
        return np.repeat(self, *args, **kwargs)

    def take(self, *args: Any, **kwargs: Any) -> Any:
        """As NumPy's function."""
        return np.take(self, *args, **kwargs)

    def dot(self, other: ArrayLike) -> Any:  # type: ignore[override]
        """As NumPy's function."""
        return np.dot(self, other)

    def argmax(self, *args: Any, **kwargs: Any) -> Any:
        """As NumPy's function."""
        return np.argmax(self, *args, **kwargs)

    def argmin(self, *args: Any, **kwargs: Any) -> Any:
        """As NumPy's function."""
        return np.argmin(self, *args, **kwargs)


def _index(key: Any) -> Any:
    """An entry of a key that NumPy can use."""
    if not isinstance(key, Hollow):
        return key
    if key.dtype.kind == "b":
        raise Unknown("how many elements a mask selects")
    return np.zeros(key.shape, key.dtype)
