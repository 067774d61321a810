"""Layout of new arrays, and the decorator of all creation functions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from operator import index
from threading import Lock
from types import BuiltinFunctionType
from typing import Any, cast

import numpy as np

from distarray.array.at_hand import ELEMENTS, OURS, PLAIN
from distarray.array.base import Base, is_subclass
from distarray.array.core import DistArray, wrap
from distarray.array.creation import common_mesh, placed_layout
from distarray.array.ladder import call, unwatched
from distarray.array.like import obeys_like
from distarray.array.one_rank import is_alone
from distarray.array.registry import Objects, Row, implements
from distarray.comm import DeviceMesh, default_mesh
from distarray.config import in_force
from distarray.layout import Fold, Layout, Placement
from distarray.typing import Array, ArrayLike, DType, DTypeLike, Function, ShapeLike

__all__ = [
    "MadeAlone",
    "Placements",
    "as_dtype",
    "as_shape",
    "creates",
    "follow",
    "place",
    "plain",
    "unfolded",
]

Placements = Sequence[Placement] | Placement

#: Bytes per element of the largest numeric data type.
_LARGEST = np.dtype("G").itemsize


def creates(
    numpy_function: Callable[..., Any],
    through: Iterable[Fold] = (),
    at: bool = False,
    lists: bool = False,
    computes: bool = True,
    alone: "MadeAlone | None" = None,
    small: bool | Callable[..., Any] = False,
    elements: Callable[..., int] | None = None,
    keeps: bool = False,
) -> Callable[[Function], Function]:
    """Register a creation function, and return the public function that programs call.

    The public function uses the dispatcher, too, so that pending folds among its arguments are
    settled as if NumPy's function of that name were called.

    Parameters
    ----------
    numpy_function : callable
        The NumPy function that it implements.
    through, at, lists, computes, alone, small
        Traits; see :class:`~distarray.array.registry.Row`.
    elements : callable, optional
        Function that returns the number of elements of the result for the arguments, or -1 if
        finding the number takes longer. If given, NumPy's function makes small arrays.
    keeps : bool
        True if the result has the class of the first argument, where that class is a program's own
        subclass of NumPy's array.
    """

    def register(function: Function) -> Function:
        like = "like" in signature(function).parameters
        implements(
            numpy_function,
            through=through,
            at=at,
            like=like,
            lists=lists,
            computes=computes,
            objects=Objects.ENGINE if like else Objects.NUMPY,
            alone=alone,
            small=small,
        )(function)

        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if elements is not None and args and unwatched[0]:
                found = _made_small(numpy_function, elements, args, kwargs)
                if found is not NotImplemented:
                    return found
            found = _kept(numpy_function, args, kwargs) if keeps else None
            return call(numpy_function, *args, **kwargs) if found is None else found

        public: Any = obeys_like(numpy_function)(called) if like else called
        if not isinstance(numpy_function, BuiltinFunctionType):
            return cast(Function, public)
        unbound = Unbound(public)
        if like:
            public.own[0] = unbound
        return cast(Function, unbound)

    return register


def _made_small(
    numpy_function: Callable[..., Any],
    elements: Callable[..., int],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Make a small array by NumPy on every rank; NotImplemented if it may not be small."""
    limit = in_force().replicate_below
    if not _is_small(elements, args, kwargs, limit):
        return NotImplemented
    mesh = default_mesh()
    if mesh.coords is None or mesh.device_type != "cpu":
        return NotImplemented
    block = numpy_function(*args, **kwargs)
    if type(block) is not np.ndarray or block.nbytes >= limit or block.dtype.char not in ELEMENTS:
        return NotImplemented
    return wrap(block, Layout.replicated(block.shape, mesh.shape), mesh)


def _is_small(
    elements: Callable[..., int], args: tuple[Any, ...], kwargs: dict[str, Any], limit: int
) -> bool:
    """Return True if arguments are NumPy's, and known to request few elements."""
    try:
        if len(args) > 1 and not PLAIN.issuperset(map(type, args[1:])):
            return False
        given = kwargs.values()
        if kwargs and not (OURS.isdisjoint(kwargs) and PLAIN.issuperset(map(type, given))):
            return False
        return 0 <= elements(*args, **kwargs) * _LARGEST < limit
    except TypeError:  # wrong arguments, or types that cannot be hashed
        return False


def _kept(numpy_function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make an array of a program's own subclass, as NumPy does; None if there is no subclass."""
    if not args or not (_is_kept(args[0]) and OURS.isdisjoint(kwargs)):
        return None
    found = numpy_function(*args, **kwargs)
    return found if _is_kept(found) or isinstance(found, Base) else None


def _is_kept(x: Any) -> bool:
    kind: Any = type(x)
    return x.is_dressed if isinstance(x, Base) else is_subclass(kind)


class Unbound(staticmethod):  # type: ignore[type-arg]
    """Function that does not become a method as a class attribute, like NumPy's own in C."""

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return repr(self.__func__)


@dataclass(frozen=True, slots=True)
class MadeAlone:
    """Trait of a row: NumPy's function makes the array if there is only one rank.

    NumPy's function gets the arguments except `mesh` and `placements`; if it returns a tuple, the
    first item is placed. Not used if `like` or `device` is given, or an argument is distributed.
    """

    def answer(self, row: Row, key: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call, or NotImplemented if the implementation must be called."""
        mesh, placements = kwargs.get("mesh"), kwargs.get("placements")
        at = default_mesh() if mesh is None else mesh
        if not is_alone(at) or _is_bound(args, kwargs):
            return NotImplemented
        named = {name: v for name, v in kwargs.items() if name not in ("mesh", "placements")}
        value = key(*args, **named)
        if type(value) is tuple:
            return (_placed(value[0], at, placements), *value[1:])
        kind: Any = type(value)
        return value if is_subclass(kind) else _placed(value, at, placements)


def _is_bound(args: Iterable[Any], kwargs: dict[str, Any]) -> bool:
    """Return True if arguments are distributed, or determine where the array is placed."""
    if kwargs.get("device") is not None or kwargs.get("like") is not None:
        return True
    return any(isinstance(value, DistArray) for value in (*args, *kwargs.values()))


def _placed(value: Array, mesh: DeviceMesh, placements: Placements | None) -> DistArray:
    return wrap(value, placed_layout(value.shape, value.dtype, mesh, placements), mesh)


#: Lock for data types such as "(2,4)i4": NumPy parses them with a module of Python that fails in
#: two threads at a time (3.11).
_one_at_a_time = Lock()


def as_dtype(dtype: DTypeLike) -> DType:
    """Return the data type of a new array; a class of string types means strings of length 1."""
    if isinstance(dtype, type) and issubclass(dtype, np.dtype):
        return np.empty((), dtype).dtype
    if isinstance(dtype, str):
        with _one_at_a_time:
            return np.dtype(dtype)
    return np.dtype(dtype)


def unfolded(shape: tuple[int, ...], dtype: DType) -> tuple[tuple[int, ...], DType]:
    """Unfold subarray elements such as ``"(2,4)i4"``; return the array's shape and data type."""
    return ((*shape, *dtype.shape), dtype.base) if dtype.shape else (shape, dtype)


def as_shape(shape: ShapeLike | None) -> tuple[int, ...]:
    """Return a shape as a tuple of int, checked as in NumPy."""
    given: Sequence[int] = shape if type(shape) is tuple else _sequence(shape)
    dims = tuple([index(extent) for extent in given])
    if dims and min(dims) < 0:
        raise ValueError("negative dimensions are not allowed")
    return dims


def _sequence(shape: Any) -> Any:
    try:
        if not isinstance(shape, bool):
            return (index(shape),)
    except TypeError:
        if hasattr(shape, "__getitem__") and not isinstance(shape, dict | np.generic):
            return shape
    raise TypeError(f"expected a sequence of integers or a single integer, got '{shape!r}'")


def place(
    shape: Sequence[int],
    dtype: DTypeLike,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
    device: str | None = None,
    like: ArrayLike | None = None,
) -> tuple[Layout, DeviceMesh]:
    """Return the layout and mesh of a new array.

    Parameters
    ----------
    shape : tuple of int
        Shape of the array.
    dtype : dtype
        Data type of the array.
    mesh, placements
        The caller's arguments; by default the default mesh, and its default layout.
    device : str, optional
        "cpu", "cuda" or a value of ``x.device``; must be the mesh's device.
    like : DistArray or ndarray, optional
        If no mesh is given, the mesh of a DistArray is used.
    """
    if like is not None and not isinstance(like, (DistArray, np.ndarray)):
        raise TypeError(
            f"like= takes a DistArray or a NumPy array here, not {type(like).__name__}; call "
            "NumPy's own function for arrays of another library"
        )
    if mesh is None:
        mesh = default_mesh() if like is None else common_mesh(like)
    if device is not None and device not in (mesh.device_type, mesh.device):
        raise ValueError(
            f'Device not understood. Only "{mesh.device}" is allowed, but received: {device}'
        )
    return placed_layout(tuple(shape), np.dtype(dtype), mesh, placements), mesh


def follow(x: DistArray) -> Layout:
    """Return the layout of a new array that is placed like `x`; settles nothing.

    Along mesh dimensions where `x` is stored at one coordinate or has a pending fold, the new array
    is replicated.
    """
    return x.layout if x.layout.is_plain else x.layout.settled()


def plain(value: ArrayLike) -> Any:
    """Convert a 0-d distributed array to NumPy's scalar or 0-d array; other values unchanged.

    Communicates only for an element that only one rank holds, or a pending fold.
    """
    if not isinstance(value, DistArray) or value.ndim:
        return value
    return value.mesh.to_host(value.block) if value.layout.is_replicated else value.full()
