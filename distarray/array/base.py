"""What the machinery around a distributed array needs to know about it."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from distarray.comm import DeviceMesh
from distarray.layout import Layout

__all__ = ["Base", "operands_in"]


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

    __slots__ = ("__weakref__", "_natural", "block", "layout", "mesh")

    block: Any
    layout: Layout
    mesh: DeviceMesh
    #: The block, if the array was made with blocks in C order on all ranks; unset where that is not
    #: known. See :mod:`distarray.array.storage`.
    _natural: Any

    #: Carries out pending folds and replicates what lives at one coordinate, in place.
    settle: Callable[[], None]
    #: The array with that carried out: itself, or a copy of what lives at one coordinate, which
    #: may be a view of another array and so has to stay where it is.
    plain: Callable[[], Any]
    #: An array laid out as this one, with another block.
    like: Callable[[Any], Any]
    #: The same for the result of an operation, of which a 0-d one is a scalar.
    computed: Callable[[Any], Any]


def operands_in(values: Iterable[Any]) -> Iterator[Base]:
    """The distributed arrays among arguments and in their lists."""
    for value in values:
        if isinstance(value, Base):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from operands_in(value)
