"""What is assigned to indexed elements: checked against their shape, brought to where they are."""

from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, movement
from distarray.array.assigning import fitted
from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.plan import restrict, shape_text
from distarray.typing import Array

__all__ = [
    "MISMATCH",
    "Values",
    "as_values",
    "check_array",
    "is_scalar",
    "plain",
    "without_surplus",
]

#: NumPy's text for values that do not broadcast to what is indexed.
MISMATCH = (
    "shape mismatch: value array of shape {0} could not be broadcast to indexing result of shape "
    "{1}"
)


def plain(x: Any) -> Any:
    """An operand with its pending folds carried out, and held by more than one coordinate."""
    return x.plain() if isinstance(x, DistArray) else x


def is_scalar(value: Any) -> bool:
    """Whether a value is a scalar of NumPy's, also one that an operation has given."""
    return isinstance(getattr(value, "block", value), np.generic)


def check_array(a: Any, name: str) -> None:
    """Raise what NumPy's functions that write raise for what is no array, a scalar among it."""
    if is_scalar(a) or not isinstance(a, (DistArray, np.ndarray)):
        kind = type(getattr(a, "block", a)).__name__
        raise TypeError(f"{name}() argument 1 must be a numpy.ndarray, not {kind}")


def as_values(value: Any, dtype: Any) -> Any:
    """Values for an array of a data type; what has no data type of its own is converted to it."""
    if isinstance(value, (DistArray, np.ndarray, np.generic)):
        return fitted(plain(value), dtype)
    return np.asarray(value, dtype)


class Values:
    """What is written, and how it broadcasts onto the indexed elements.

    Parameters
    ----------
    value : array_like or DistArray or None
        None for a unary operation in place, which has no values.
    shape : tuple of int
        Of the indexed elements.
    at, ndim : int
        Position and number of the dimensions that come from the index.
    text : str
        The error if it does not broadcast; ``{0}`` and ``{1}`` stand for the shapes. With another
        text than assignment's, dimensions of length 1 in excess count as an error, too.

    Raises
    ------
    ValueError
        If it does not broadcast; from metadata, on every rank.
    """

    def __init__(
        self, value: Any, shape: tuple[int, ...], at: int, ndim: int, text: str = MISMATCH
    ) -> None:
        self.shape = shape
        self.index_dims = range(at, at + ndim)
        self.value = value
        if value is None:
            return
        if not isinstance(value, (DistArray, np.ndarray)):
            value = np.asarray(value)
        value = plain(value)
        given = value.shape
        if text is MISMATCH:
            value = without_surplus(value, len(shape), shape if 0 in shape else None)
        pairs = zip(reversed(value.shape), reversed(shape), strict=False)
        if value.ndim > len(shape) or any(have not in (want, 1) for have, want in pairs):
            raise ValueError(text.format(shape_text(given), shape_text(shape)))
        self.value = value

    @property
    def is_local(self) -> bool:
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
        elements. Communicates if the values are elsewhere.
        """
        if self.value is None:
            return None
        value = as_distarray(self.value, mesh)
        target = restrict(layout, value.shape)
        block = movement.moved(mesh.asarray(value.block), value.layout, target, mesh)
        block = block.reshape((1,) * (len(self.shape) - block.ndim) + block.shape)
        return np.moveaxis(block, list(self.index_dims), list(range(len(self.index_dims))))


def without_surplus(value: Any, ndim: int, empty: tuple[int, ...] | None = None) -> Any:
    """Values without leading dimensions in excess, of length 1.

    NumPy takes those of any length for an `empty` target of the shape that the others make.
    """
    surplus = value.ndim - ndim
    if empty is not None and surplus > 0 and value.shape[surplus:] == empty:
        return np.empty(empty, value.dtype)
    while value.ndim > ndim and value.shape[0] == 1:
        value = value[0]
    return value
