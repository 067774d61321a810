"""`ndarray`: the type for ``isinstance(x, np.ndarray)`` and for annotations."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from distarray.array import DistArray
from distarray.array.dressing import dressed, plain_array, plain_kind
from distarray.array.subclasses import Subclass
from distarray.ops.buffers import is_lent, over
from distarray.ops.conversion import array
from distarray.ops.creation import empty
from distarray.ops.strided import over_memory
from distarray.typing import DTypeLike, ShapeLike

__all__ = ["ndarray"]


class _EitherArray(type):
    """Metaclass whose instances are distributed and NumPy arrays; attributes are DistArray's.

    A class that a program derives from `ndarray` becomes a subclass of distributed arrays.
    """

    def __new__(
        cls, name: str, bases: tuple[type, ...], members: dict[str, Any], **kwargs: Any
    ) -> Any:
        if not any(isinstance(base, _EitherArray) for base in bases):
            return super().__new__(cls, name, bases, members, **kwargs)
        real = [Subclass if isinstance(base, _EitherArray) else base for base in bases]
        derived = max(map(type, real), key=lambda kind: len(kind.__mro__))
        return derived(name, tuple(real), members, **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (DistArray, np.ndarray)) and cls.__name__ == "ndarray"

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (DistArray, np.ndarray)) or super().__subclasscheck__(subclass)

    def __eq__(cls, other: object) -> bool:
        """Compare for ``type(x) == np.ndarray``; ``is`` holds for one class only."""
        ours = cls.__name__ == "ndarray" and (other == DistArray or other is np.ndarray)
        return ours or cls is other

    def __hash__(cls) -> int:
        """Return the hash of the arrays' class, so that a table keyed by types finds them."""
        return hash(DistArray) if cls.__name__ == "ndarray" else super().__hash__()

    def __getattr__(cls, name: str) -> Any:
        return getattr(Subclass, name)


class ndarray(metaclass=_EitherArray):
    """Array, distributed or NumPy's; a call creates an array as :class:`numpy.ndarray` does.

    Use :func:`distarray.numpy.zeros` or :func:`~distarray.numpy.array` instead, as in NumPy.
    """

    def __new__(
        cls,
        shape: ShapeLike,
        dtype: DTypeLike = float,
        buffer: Any = None,
        offset: int = 0,
        strides: Sequence[int] | None = None,
        order: Literal["C", "F"] | None = None,
    ) -> Any:
        """Create an uninitialized array, or an array of a buffer's elements."""
        if cls is not ndarray and issubclass(cls, Subclass):
            return dressed(ndarray(shape, dtype, buffer, offset, strides, order), cls, None)
        if buffer is None and strides is None and np.dtype(dtype).itemsize:
            return empty(shape, dtype, order or "C")
        if isinstance(buffer, DistArray) and not buffer.layout.is_whole:
            return over_memory(buffer, shape, dtype, offset, strides, order)
        values: Any = np.ndarray(shape, dtype, buffer, offset, strides, order)
        if buffer is not None and is_lent(values, buffer):
            return over(values, buffer)
        return array(values, copy=None)

    def __class_getitem__(cls, item: Any) -> Any:
        """Return NumPy's generic alias, for annotations: ``np.ndarray[shape, dtype]``."""
        return np.ndarray[item]


plain_kind[:], plain_array[:] = [ndarray], [array]
