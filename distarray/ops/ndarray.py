"""The type that programs name in ``isinstance(x, np.ndarray)`` and in annotations."""

from typing import Any

import numpy as np

from distarray.array import DistArray
from distarray.ops.conversion import array
from distarray.ops.creation import empty

__all__ = ["ndarray"]


class _EitherArray(type):
    """Distributed arrays and NumPy's are instances; attributes are those of DistArray."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (DistArray, np.ndarray)) and cls.__name__ == "ndarray"

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (DistArray, np.ndarray)) or super().__subclasscheck__(subclass)

    def __getattr__(cls, name: str) -> Any:
        return getattr(DistArray, name)


class ndarray(metaclass=_EitherArray):
    """An array, distributed or NumPy's; called, it makes one as :class:`numpy.ndarray` does.

    Use :func:`distarray.numpy.zeros` and its kin instead, as NumPy's manual says too.
    """

    def __new__(
        cls,
        shape: Any,
        dtype: Any = float,
        buffer: Any = None,
        offset: int = 0,
        strides: Any = None,
        order: Any = None,
    ) -> Any:
        """An uninitialized array, or one of what a buffer holds."""
        if buffer is None and strides is None:
            return empty(shape, dtype, order or "C")
        return array(np.ndarray(shape, dtype, buffer, offset, strides, order), copy=None)

    def __class_getitem__(cls, item: Any) -> Any:
        """As in annotations: ``np.ndarray[shape, dtype]``."""
        return np.ndarray[item]
