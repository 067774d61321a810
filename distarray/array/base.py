"""The base of a distributed array: its state, and the methods that other modules use."""

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

    It is a plain class, since every path checks for it, and for an abstract class such checks cost
    several times as much. Others only read the state: the array itself changes it.

    Attributes
    ----------
    block : array or numpy.generic
        This rank's block as stored: an array, or NumPy's scalar for the 0-d result of an
        operation. :meth:`DistArray.to_local` always gives an array.
    layout : Layout
        Where every element is.
    mesh : DeviceMesh
        The ranks that hold the array.
    """

    __slots__ = ("__weakref__", "_lent", "_mirror", "_natural", "block", "layout", "mesh")

    block: Any
    layout: Layout
    mesh: DeviceMesh
    #: The class of results, whatever the operands' class: :class:`DistArray`, which sets this.
    plain_type: ClassVar[Any]
    #: Whether it has deferred operations, or they need it; see :mod:`distarray.array.deferred`.
    waits: ClassVar[bool] = False
    #: The block, if the array was made with blocks in C order on all ranks; unset if that is not
    #: known. See :mod:`distarray.array.storage`.
    _natural: Any
    #: Blocks whose addresses have been given out; they live as long as the array. Often unset.
    _lent: list[Any]

    #: What is kept of an array of which loops read elements; see :mod:`distarray.array.mirrors`.
    #: Often unset.
    _mirror: Any

    #: Carries out pending folds and replicates what lives at one coordinate, in place.
    settle: Callable[[], None]
    #: The array with that done: itself, or a copy if it lives at one coordinate, since it may then
    #: be a view of another array and has to stay where it is.
    plain: Callable[[], Any]
    #: An array laid out as this one, with another block.
    like: Callable[[Any], Any]
    #: The same for the result of an operation: a 0-d one becomes a number.
    computed: Callable[[Any], Any]
    #: The 0-d result of an operation as NumPy's scalar.
    number: Callable[[], Any]
    #: This rank's block as an array, not copied.
    to_local: Callable[[], Array]
    #: The global array as a NumPy array on every rank.
    full: Callable[[], Array]
    #: An array over the same memory, perhaps with another data type.
    view: Callable[..., Any]
    #: The view that entries of :mod:`distarray.layout.views` describe.
    sliced: Callable[[Any], Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the global array."""
        return self.layout.shape

    @shape.setter
    def shape(self, shape: ShapeLike) -> None:
        """Give the same memory another shape; refused if elements would change rank."""
        np.empty(0).shape = 0  # warns if NumPy does
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
        """Interpret the same memory as another data type; see :meth:`view`."""
        found = self.view(dtype)
        self.block, self.layout = found.block, found.layout

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.block.dtype.itemsize  # type: ignore[no-any-return]

    @property
    def nbytes(self) -> int:
        """Bytes of the global array."""
        return self.layout.size * self.itemsize


def operands_in(values: Iterable[Any]) -> Iterator[Base]:
    """The distributed arrays among arguments and in lists among them."""
    for value in values:
        if isinstance(value, Base):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from operands_in(value)


def is_number(value: Any) -> bool:
    """Whether a value is a 0-d array that stands for a scalar: its block is a scalar."""
    return isinstance(value, Base) and not value.waits and isinstance(value.block, np.generic)


def sequence_like(model: Any, items: Sequence[Any]) -> Any:
    """Items in a list or tuple of the type of another one; a named tuple takes them one by one."""
    return type(model)(*items) if hasattr(model, "_fields") else type(model)(items)


@lru_cache(maxsize=256)
def is_subclass(kind: Hashable) -> bool:
    """Whether a type is a program's own kind of NumPy array, which results must have, too."""
    plain = (np.ndarray, np.memmap)
    return isinstance(kind, type) and issubclass(kind, np.ndarray) and kind not in plain


def check_out(out: Any) -> None:
    """Raise NumPy's error if `out` is not an array, or is a scalar."""
    if out is Ellipsis:
        raise TypeError("must use `...` as `out=...` and not per-operand/in a tuple")
    is_array = isinstance(out, (Base, np.ndarray))
    if not is_array or isinstance(getattr(out, "block", out), np.generic):
        raise TypeError("return arrays must be of ArrayType")
