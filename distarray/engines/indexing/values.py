"""Values for indexed elements: checked against their shape, brought to their ranks."""

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

#: NumPy's text for values that do not broadcast onto the indexed elements.
MISMATCH = (
    "shape mismatch: value array of shape {0} could not be broadcast to indexing result of shape "
    "{1}"
)


def plain(x: Any) -> Any:
    """An operand, a distributed one in a plain layout."""
    return x.plain() if isinstance(x, DistArray) else x


def is_scalar(value: object) -> bool:
    """Whether a value is a NumPy scalar, or the distributed scalar of an operation."""
    return isinstance(getattr(value, "block", value), np.generic)


def check_array(a: object, name: str) -> None:
    """Raise NumPy's error if a function that writes into an array is given something else."""
    if is_scalar(a) or not isinstance(a, (DistArray, np.ndarray)):
        kind = type(getattr(a, "block", a)).__name__
        raise TypeError(f"{name}() argument 1 must be a numpy.ndarray, not {kind}")


def as_values(value: ArrayLike, dtype: DType) -> Any:
    """Values for an array of a data type; lists and numbers are converted to it."""
    if isinstance(value, (DistArray, np.ndarray, np.generic)):
        return fitted(plain(value), dtype)
    return np.asarray(value, dtype)


class Values:
    """Values to write, and how they broadcast onto the indexed elements.

    Parameters
    ----------
    value : array_like or DistArray or None
        None for a unary operation in place, which takes no values.
    shape : tuple of int
        Of the indexed elements.
    at, ndim : int
        Position and number of the dimensions that come from the index.
    text : str
        The error if it does not broadcast; ``{0}`` and ``{1}`` stand for the shapes. With any text
        but assignment's, surplus dimensions of length 1 are an error, too.

    Raises
    ------
    ValueError
        If it does not broadcast; from metadata, on every rank.
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
        """Whether every rank has all values."""
        return not isinstance(self.value, DistArray) or self.value.layout.is_replicated

    @property
    def is_constant(self) -> bool:
        """Whether the values are the same for all positions of the index."""
        if self.value is None:
            return True
        lead = len(self.shape) - self.value.ndim
        return all(self.value.shape[d - lead] == 1 for d in self.index_dims if d >= lead)

    def rows(self, layout: Layout, mesh: DeviceMesh) -> Array | None:
        """This rank's values, of as many dimensions as the indexed elements, index in front.

        Each dimension has extent 1 or that of this rank's part. `layout` is that of the indexed
        elements. Communicates if the values lie otherwise.
        """
        if self.value is None:
            return None
        value = as_distarray(self.value, mesh)
        target = restrict(layout, value.shape)
        block = movement.moved(mesh.asarray(value.block), value.layout, target, mesh)
        block = block.reshape((1,) * (len(self.shape) - block.ndim) + block.shape)
        return np.moveaxis(block, list(self.index_dims), list(range(len(self.index_dims))))


def without_surplus(value: Any, ndim: int, empty: Shape | None = None) -> Any:
    """Values without surplus leading dimensions of length 1.

    For an `empty` target, whose shape the other dimensions make, NumPy takes those of any length.
    """
    surplus = value.ndim - ndim
    if empty is not None and surplus > 0 and value.shape[surplus:] == empty:
        return np.empty(empty, value.dtype)
    while value.ndim > ndim and value.shape[0] == 1:
        value = value[0, ...]
    return value
