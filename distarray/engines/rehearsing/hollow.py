"""Hollow blocks for rehearsals of operations: arrays with a shape and a data type, without values.

A :class:`Hollow` array takes memory for one element only. NumPy's functions return hollow results
for it, in the shape of the real results. An access to a value raises :class:`Unknown`.
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

#: Rules for hollow results of NumPy's functions, rules for the methods of ufuncs, and the functions
#: whose own code in NumPy only calls methods. :mod:`distarray.engines.rehearsing.results` and
#: :mod:`distarray.engines.rehearsing.families` register them.
RULES: dict[Any, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {}
VIEWS: set[Any] = set()
#: Maximum bytes of the arguments for which a function without a rule is called on zeros.
_SMALL = 1 << 22


class Unknown(BaseException):
    """Access to a value of a hollow block; no ``except Exception`` catches it as an error."""


def hollow(shape: Sequence[int] | int, dtype: DTypeLike = float) -> "Hollow":
    """Return a hollow array."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    return as_strided(np.zeros(1, dtype), shape, (0,) * len(shape)).view(Hollow)


def is_hollow(x: object) -> bool:
    """Return True for a hollow array, and for a list or tuple that contains one."""
    if isinstance(x, (list, tuple)):
        return any(map(is_hollow, x))
    return isinstance(x, Hollow)


def ordinary(x: Any, usual: Any) -> Any:
    """Return a value that the engines branch on; `usual`, its value for usual data, if hollow."""
    return usual if isinstance(x, Hollow) else x


def host_empty(shape: Sequence[int], like: Array) -> Array:
    """Allocate host memory with the data type of a block; hollow if the block is hollow."""
    return (hollow if isinstance(like, Hollow) else np.empty)(shape, like.dtype)


def probe(x: Any) -> Any:
    """Return an empty array of the same data type; other arguments unchanged."""
    return np.zeros(0, x.dtype) if isinstance(x, np.ndarray) else x


def _as_hollow(value: Any) -> Any:
    """Return a result with hollow arrays in place of arrays and scalars."""
    if isinstance(value, (np.ndarray, np.generic)):
        return hollow(value.shape, value.dtype)
    if isinstance(value, (list, tuple)):
        items = [_as_hollow(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _zeros(value: Any) -> Any:
    """Replace hollow arrays in an argument by zeros, and inexact square matrices by identities.

    The function may need regular matrices.
    """
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
    """Call a function on zeros and return its result hollow; raise Unknown for large arguments."""
    if _bytes(args) + _bytes(list(kwargs.values())) > _SMALL:
        raise Unknown(f"what {function.__name__} gives for a block")
    value = function(*_zeros(args), **{name: _zeros(x) for name, x in kwargs.items()})
    return _as_hollow(value)


class Hollow(np.ndarray):
    """Array with a shape and a data type, without values.

    Attributes
    ----------
    sure : bool or None
        The value of all elements of a boolean result, if operands are assumed to be finite; None
        if unknown.
    """

    sure: bool | None = None

    def __array_finalize__(self, of: object) -> None:
        """Copy `sure` from the array that this is a view of."""
        self.sure = getattr(of, "sure", None)

    def __array_ufunc__(
        self,
        ufunc: np.ufunc,
        method: str,
        *inputs: ArrayLike,
        out: Array | None = None,
        **kwargs: object,
    ) -> Any:
        """Return hollow results, or the arrays given as `out`."""
        kwargs.pop("where", None)
        if method == "at":
            return None
        if out is not None:
            return out if len(out) > 1 else out[0]
        return METHODS[method](ufunc, *inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Return a hollow result: from a rule, from NumPy for views, or from a call on zeros."""
        rule = RULES.get(function)
        if rule is not None:
            return rule(*args, **kwargs)
        if function in VIEWS:
            return super().__array_function__(function, types, args, kwargs)
        return tried(function, args, kwargs)

    def __getitem__(self, key: Any) -> Any:
        """Return a view, or a hollow array of the selection's shape."""
        key = tuple([_index(k) for k in key]) if isinstance(key, tuple) else _index(key)
        found = super().__getitem__(key)
        is_view = isinstance(found, Hollow) and not any(found.strides)
        return found if is_view else hollow(np.shape(found), self.dtype)

    def __setitem__(self, key: Any, value: object) -> None:
        """Do nothing: there are no values."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise Unknown("the values")

    def __bool__(self) -> bool:
        """Return the value of all elements if it is known; otherwise raise Unknown."""
        return self._refuse() if self.sure is None else self.sure

    __int__ = __float__ = __complex__ = __index__ = __contains__ = _refuse
    item = tolist = tobytes = nonzero = __str__ = __repr__ = __format__ = _refuse

    def copy(self, order: Any = "C") -> "Hollow":
        """Return a hollow array of equal shape and data type."""
        return hollow(self.shape, self.dtype)

    def astype(self, dtype: DTypeLike, *_: object, copy: bool = True, **__: object) -> "Hollow":  # type: ignore[override]
        """Return a hollow array of another data type, as :meth:`numpy.ndarray.astype`."""
        same = not copy and np.dtype(dtype) == self.dtype
        return self if same else hollow(self.shape, dtype)

    def reshape(self, *shape: Any, **_: object) -> "Hollow":
        """Return a hollow array of another shape, as :meth:`numpy.ndarray.reshape`."""
        wanted = shape[0] if len(shape) == 1 and np.ndim(shape[0]) else shape
        known = prod([n for n in wanted if n >= 0])
        return hollow([self.size // max(known, 1) if n < 0 else n for n in wanted], self.dtype)

    def ravel(self, *_: object, **__: object) -> "Hollow":
        """Return a hollow array of one dimension, as :meth:`numpy.ndarray.ravel`."""
        return hollow(self.size, self.dtype)

    flatten = ravel

    def view(self, dtype: DTypeLike = None, kind: Any = None) -> Any:  # type: ignore[override]
        """Return a view, or a hollow array of another data type, as :meth:`numpy.ndarray.view`."""
        if dtype is None or (isinstance(dtype, type) and issubclass(dtype, np.ndarray)):
            return super().view(dtype or type(self))
        bytes_in_a_row = self.shape[-1] * self.itemsize if self.ndim else self.itemsize
        itemsize = np.dtype(dtype).itemsize
        return hollow([*self.shape[:-1], bytes_in_a_row // itemsize][: self.ndim], dtype)

    def sort(self, *_: object, **__: object) -> None:
        """Do nothing: there are no values."""

    fill = partition = sort

    def argsort(self, axis: int = -1, *_: object, **__: object) -> "Hollow":  # type: ignore[override]
        """Return hollow indices, as :meth:`numpy.ndarray.argsort`."""
        return hollow(self.shape, np.intp)

    def repeat(self, *args: Any, **kwargs: Any) -> Any:
        """Call :func:`numpy.repeat`, which has a rule for hollow arrays."""
        return np.repeat(self, *args, **kwargs)

    def take(self, *args: Any, **kwargs: Any) -> Any:
        """Call :func:`numpy.take`, which has a rule for hollow arrays."""
        return np.take(self, *args, **kwargs)

    def dot(self, other: ArrayLike) -> Any:  # type: ignore[override]
        """Call :func:`numpy.dot`."""
        return np.dot(self, other)

    def argmax(self, *args: Any, **kwargs: Any) -> Any:
        """Call :func:`numpy.argmax`, which has a rule for hollow arrays."""
        return np.argmax(self, *args, **kwargs)

    def argmin(self, *args: Any, **kwargs: Any) -> Any:
        """Call :func:`numpy.argmin`, which has a rule for hollow arrays."""
        return np.argmin(self, *args, **kwargs)


def _index(key: Any) -> Any:
    """Return an entry of a key that NumPy can use; a hollow mask raises Unknown."""
    if not isinstance(key, Hollow):
        return key
    if key.dtype.kind == "b":
        raise Unknown("how many elements a mask selects")
    return np.zeros(key.shape, key.dtype)
