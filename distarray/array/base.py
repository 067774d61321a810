"""The base of a distributed array: the state and the methods that the machinery around it uses."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, cast

import numpy as np

from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.typing import Array, DTypeLike, ShapeLike

__all__ = ["Base", "check_out", "is_number", "is_subclass", "operands_in", "sequence_like"]


class Base:
    """The state of a distributed array, and what :class:`DistArray` adds that other modules call.

    It is a plain class, since the checks for it are on every path and those of an abstract class
    cost several times as much. The state is for reading: only the array itself changes it.

    Attributes
    ----------
    block : array or numpy.generic
        This rank's block as it is kept: an array, or NumPy's scalar for the 0-d result of an
        operation. :meth:`DistArray.to_local` always gives an array.
    layout : Layout
        Where every element is.
    mesh : DeviceMesh
        The ranks that hold the array.
    """

    __slots__ = ("__weakref__", "_lent", "_natural", "block", "layout", "mesh")

    block: Any
    layout: Layout
    mesh: DeviceMesh
    #: What operations make of any kind of array: :class:`DistArray`, which puts itself here.
    plain_type: ClassVar[Any]
    #: Whether it waits for operations, or they for it; see :mod:`distarray.array.deferred`.
    waits: ClassVar[bool] = False
    #: The block, if the array was made with blocks in C order on all ranks; unset where that is not
    #: known. See :mod:`distarray.array.storage`.
    _natural: Any
    #: Blocks whose addresses others have been told; they live as long as the array. Often unset.
    _lent: list[Any]

    #: Carries out pending folds and replicates what lives at one coordinate, in place.
    settle: Callable[[], None]
    #: The array with that carried out: itself, or a copy of what lives at one coordinate, which
    #: may be a view of another array and so has to stay where it is.
    plain: Callable[[], Any]
    #: An array laid out as this one, with another block.
    like: Callable[[Any], Any]
    #: The same for the result of an operation, of which a 0-d one is a number.
    computed: Callable[[Any], Any]
    #: The 0-d result of an operation as NumPy's scalar.
    number: Callable[[], Any]
    #: This rank's block as an array, not copied.
    to_local: Callable[[], Array]
    #: The global array as a NumPy array on every rank.
    full: Callable[[], Array]
    #: The same memory, also as another data type.
    view: Callable[..., Any]
    #: The view that entries of :mod:`distarray.layout.views` describe.
    sliced: Callable[[Any], Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the global array."""
        return self.layout.shape

    @shape.setter
    def shape(self, shape: ShapeLike) -> None:
        """Give the same memory another shape; refused where elements would change rank."""
        np.empty(0).shape = 0  # warns where NumPy does
        try:
            found: Any = np.reshape(cast("Any", self), shape, copy=False)
        except ValueError as error:
            if not str(error).startswith("Unable to avoid"):
                raise
            text = "Incompatible shape for in-place modification. Use `.reshape()` to make a copy"
            raise AttributeError(f"{text} with the desired shape.") from None
        self.block, self.layout = found.block, found.layout

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.layout.ndim

    @property
    def size(self) -> int:
        """Number of elements of the global array."""
        return self.layout.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Data type of the elements."""
        return self.block.dtype  # type: ignore[no-any-return]

    @dtype.setter
    def dtype(self, dtype: DTypeLike) -> None:
        """Read the same memory as another data type; see :meth:`view`."""
        found = self.view(dtype)
        self.block, self.layout = found.block, found.layout

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.block.dtype.itemsize  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        """Bytes of the global array."""
        return self.layout.size * self.itemsize


def operands_in(values: Iterable[Any]) -> Iterator[Base]:
    """The distributed arrays among arguments and in their lists."""
    for value in values:
        if isinstance(value, Base):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from operands_in(value)


def is_number(value: Any) -> bool:
    """Whether something is a 0-d array that stands for a scalar, with a scalar as its block."""
    return isinstance(value, Base) and not value.waits and isinstance(value.block, np.generic)


def sequence_like(model: Any, items: Sequence[Any]) -> Any:
    """Items in a list or tuple of the type of another one; a named tuple takes them one by one."""
    return type(model)(*items) if hasattr(model, "_fields") else type(model)(items)


@lru_cache(maxsize=256)
def is_subclass(kind: Hashable) -> bool:
    """Whether a type is a program's own kind of NumPy array, and results are to be of it, too."""
    plain = (np.ndarray, np.memmap)
    return isinstance(kind, type) and issubclass(kind, np.ndarray) and kind not in plain


def check_out(out: Any) -> None:
    """Raise what NumPy raises if something else than an array, or a scalar, is given as `out`."""
    is_array = isinstance(out, (Base, np.ndarray))
    if not is_array or isinstance(getattr(out, "block", out), np.generic):
        raise TypeError("return arrays must be of ArrayType")
