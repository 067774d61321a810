"""Values for indexed elements: shape checks, and redistribution to the elements' ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, movement
from distarray.array.assigning import fitted
from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.plan import restrict, shape_text
from distarray.typing import Array, ArrayLike, DType, Shape

__all__ = [
    "MISMATCH",
    "Values",
    "as_values",
    "check_array",
    "is_scalar",
    "plain",
    "without_surplus",
]

#: NumPy's error text for values that do not broadcast onto the indexed elements.
MISMATCH = (
    "shape mismatch: value array of shape {0} could not be broadcast to indexing result of shape "
    "{1}"
)


def plain(x: Any) -> Any:
    """Bring an operand to a plain layout if it is distributed."""
    return x.plain() if isinstance(x, DistArray) else x


def is_scalar(value: object) -> bool:
    """Return True if a value is a NumPy scalar, or an operation's distributed scalar result."""
    return isinstance(getattr(value, "block", value), np.generic)


def check_array(a: object, name: str) -> None:
    """Raise NumPy's error if the target of a function that writes is not an array."""
    if is_scalar(a) or not isinstance(a, (DistArray, np.ndarray)):
        kind = type(getattr(a, "block", a)).__name__
        raise TypeError(f"{name}() argument 1 must be a numpy.ndarray, not {kind}")


def as_values(value: ArrayLike, dtype: DType) -> Any:
    """Check values for an array of a data type; convert lists and numbers to it."""
    if isinstance(value, (DistArray, np.ndarray, np.generic)):
        return fitted(plain(value), dtype)
    return np.asarray(value, dtype)


class Values:
    """Values to write, and their broadcast onto the indexed elements.

    Parameters
    ----------
    value : array_like or DistArray or None
        The values; None for a unary operation in place, which takes no values.
    shape : tuple of int
        Shape of the indexed elements.
    at, ndim : int
        Position and number of the dimensions that come from the index.
    text : str
        The error text if `value` does not broadcast; ``{0}`` and ``{1}`` are replaced by the
        shapes. With any text but :data:`MISMATCH`, surplus dimensions of length 1 are errors, too.

    Raises
    ------
    ValueError
        If `value` does not broadcast; from metadata, on every rank.
    """

    def __init__(
        self, value: ArrayLike | None, shape: Shape, at: int, ndim: int, text: str = MISMATCH
    ) -> None:
        self.shape = shape
        self.index_dims = range(at, at + ndim)
        self.value: DistArray | Array | None = None
        if value is None:
            return
        array = plain(value if isinstance(value, (DistArray, np.ndarray)) else np.asarray(value))
        given = array.shape
        if text is MISMATCH:
            array = without_surplus(array, len(shape), shape if 0 in shape else None)
        pairs = zip(reversed(array.shape), reversed(shape), strict=False)
        if array.ndim > len(shape) or any(have not in (want, 1) for have, want in pairs):
            raise ValueError(text.format(shape_text(given), shape_text(shape)))
        self.value = array

    @property
    def known(self) -> bool:
        """True if every rank has all values."""
        return not isinstance(self.value, DistArray) or self.value.layout.is_replicated

    @property
    def is_constant(self) -> bool:
        """True if the values are the same for all positions of the index."""
        if self.value is None:
            return True
        lead = len(self.shape) - self.value.ndim
        return all(self.value.shape[d - lead] == 1 for d in self.index_dims if d >= lead)

    def rows(self, layout: Layout, mesh: DeviceMesh) -> Array | None:
        """Return this rank's values, with the dimensions of the indexed elements, index first.

        Each dimension has extent 1 or the extent of this rank's part. `layout` is the layout of the
        indexed elements. Values in another layout are redistributed.
        """
        if self.value is None:
            return None
        value = as_distarray(self.value, mesh)
        target = restrict(layout, value.shape)
        block = movement.moved(mesh.asarray(value.block), value.layout, target, mesh)
        block = block.reshape((1,) * (len(self.shape) - block.ndim) + block.shape)
        return np.moveaxis(block, list(self.index_dims), list(range(len(self.index_dims))))


def without_surplus(value: Any, ndim: int, empty: Shape | None = None) -> Any:
    """Remove surplus leading dimensions of length 1 from values.

    For an empty target of shape `empty`, equal to the remaining dimensions, NumPy accepts surplus
    dimensions of any length.
    """
    surplus = value.ndim - ndim
    if empty is not None and surplus > 0 and value.shape[surplus:] == empty:
        return np.empty(empty, value.dtype)
    while value.ndim > ndim and value.shape[0] == 1:
        value = value[0, ...]
    return value
