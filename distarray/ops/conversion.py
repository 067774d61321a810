"""Arrays from other arrays, lists, buffers and iterables.

Input that is not distributed is assumed to be equal on every rank. Each rank keeps its section of
the input, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from distarray.array import DistArray, common_mesh, distribute
from distarray.array.creation import given_by
from distarray.array.dressing import bare, finished, is_dressed, taken
from distarray.array.geometry import owns_memory
from distarray.array.placing import Placements, creates, place
from distarray.array.storage import suits
from distarray.comm import DeviceMesh
from distarray.layout import Layout
from distarray.ops.buffers import is_shared, over, part
from distarray.ops.listed import of_lists
from distarray.typing import Array, ArrayLike, DTypeLike, Order

__all__ = [
    "array",
    "asanyarray",
    "asarray",
    "asarray_chkfinite",
    "ascontiguousarray",
    "asfortranarray",
    "from_dlpack",
    "fromiter",
    "fromstring",
    "require",
]


#: The most dimensions that NumPy allows.
MOST_DIMENSIONS = 64

_LISTS = frozenset({list, tuple})
_NUMBERS = frozenset({int, float, complex, bool, np.float64, np.int64, np.bool_})


def _of_list(values: Any, *_: object, **__: object) -> int:
    """Count the elements of a list of numbers, or of lists of them; -1 for anything else."""
    if type(values) not in _LISTS:
        return -1
    kinds = set(map(type, values))
    if kinds <= _NUMBERS:
        return len(values)
    if kinds <= _LISTS and all(_NUMBERS.issuperset(map(type, row)) for row in values):
        return sum(map(len, values))
    return -1


@creates(np.array, at=True, lists=True, elements=_of_list)
def array(
    object: ArrayLike,
    dtype: DTypeLike = None,
    *,
    copy: bool | None = True,
    order: Order = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = MOST_DIMENSIONS,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create an array from anything that NumPy accepts; see :func:`numpy.array`.

    Parameters
    ----------
    object : array_like
        Lists may contain DistArrays, which are then stacked. A DistArray is copied in its layout.
    copy : bool or None
        For a NumPy array: None copies this rank's section, unless this is the whole array (as on
        one rank); its memory is then shared as in NumPy. False gives a view of the section.
    mesh, placements
        As in :func:`distarray.distribute`.

    Cost
    ----
    No message, unless a DistArray gets another placement or several are stacked. Unless
    `copy` is True, the check whether a DistArray has a given order costs as
    :func:`ascontiguousarray`.
    """

    def made(x: Any) -> DistArray:
        return _made(x, dtype, copy, order, like, mesh, placements, ndmin, ndmax)

    return made(object) if type(object) in _LISTS else _as_class(object, subok, made)


def _made(
    source: ArrayLike,
    dtype: DTypeLike,
    copy: bool | None,
    order: Order | None,
    like: ArrayLike | None,
    mesh: DeviceMesh | None,
    placements: Placements | None,
    ndmin: int = 0,
    ndmax: int = MOST_DIMENSIONS,
) -> DistArray:
    copy = copy if copy is True else _as_copied(copy)
    keywords: dict[str, Any] = {"order": order, "ndmin": ndmin, "copy": None if copy else copy}
    if ndmax != MOST_DIMENSIONS:
        keywords["ndmax"] = ndmax
    values = None
    if isinstance(source, (list, tuple)):
        values, source = of_lists(source, dtype, keywords)
        order = order if order in ("F", "f") or values is not None else "C"  # lists have no order
    if isinstance(source, DistArray):
        if source.ndim > ndmax:
            np.array(np.empty((0,) * source.ndim), dtype, **keywords)  # NumPy's error
        return _from_distarray(source, dtype, copy, order, ndmin, mesh, placements)
    if values is None:
        values = _by_protocol(source, dtype, keywords)
        if isinstance(values, DistArray):
            return _from_distarray(values, dtype, copy, order, ndmin, mesh, placements)
    return _of_values(values, source, copy, order or "K", like, mesh, placements)


def _as_class(source: Any, subok: bool, make: Callable[[Any], DistArray]) -> DistArray:
    """Make an array from another one, of the same class if `subok` is true."""
    if subok:
        source = taken(source)
    if not is_dressed(source):
        return make(source)
    x = bare(source)
    found = make(x)
    if not subok:
        return found.view() if found is x else found
    kept: DistArray = finished(source, found)
    return kept


def _of_values(
    values: Array,
    source: ArrayLike,
    copy: bool | None,
    order: Order,
    like: ArrayLike | None,
    mesh: DeviceMesh | None,
    placements: Placements | None,
) -> DistArray:
    """Distribute values, shared or copied; keep them whole if other objects read and write them."""
    if copy is not True and placements is None and is_shared(values, source):
        return over(values, source, like, mesh)
    layout, mesh = place(values.shape, values.dtype, mesh, placements, None, like)
    return part(values, layout, mesh, order, _is_copied(copy, values, source, layout))


def _as_copied(copy: Any) -> bool | None:
    """Return `copy` as True, False or None; NumPy also has an enumeration for it."""
    mode = getattr(copy, "name", None)
    if mode in _COPY_MODES:
        return _COPY_MODES[mode]
    if isinstance(copy, str):
        np.array((), copy=copy)  # type: ignore[call-overload] # NumPy's error
    return copy if copy is None else bool(copy)


_COPY_MODES = {"ALWAYS": True, "IF_NEEDED": None, "NEVER": False}


def _by_protocol(source: Any, dtype: DTypeLike, keywords: dict[str, Any]) -> Any:
    """Return NumPy's array of a value, or the DistArray that its ``__array__`` returns."""
    try:
        return np.array(source, dtype, **keywords)
    except ValueError:
        found = given_by(source)
        if found is None:
            raise
        return found


def _from_distarray(
    x: DistArray,
    dtype: DTypeLike,
    copy: bool | None,
    order: Order | None,
    ndmin: int,
    mesh: DeviceMesh | None,
    placements: Placements | None,
) -> DistArray:
    np.array((), order=order)  # raises NumPy's exception
    letter = (order or "K").upper()
    result = x
    if copy is True or not suits(x, dtype, letter):
        if copy is False:
            np.array([0], copy=False)  # raises NumPy's exception
        array = x.like(x.mesh.asarray(x.block))  # a scalar becomes a 0-d array
        result = array.astype(x.dtype if dtype is None else dtype, letter)
    if result.ndim < ndmin:
        result = result[(None,) * (ndmin - result.ndim) + (...,)]
    moves = placements is not None or mesh not in (None, x.mesh)
    return distribute(result, mesh, placements) if moves else result


def _is_copied(copy: bool | None, values: Array, source: ArrayLike, layout: Layout) -> bool:
    """Return True if a rank's section must be copied: on demand, or to free the whole array."""
    if copy is False:
        return False
    if copy is True and (values is source or values.base is not None):  # others share the memory
        return True
    return not layout.is_whole


@creates(np.asarray, at=True, lists=True, elements=_of_list)
def asarray(
    a: ArrayLike,
    dtype: DTypeLike = None,
    order: Order | None = None,
    *,
    device: str | None = None,
    copy: bool | None = None,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Convert anything to an array; a DistArray is returned itself; see :func:`numpy.asarray`.

    Cost
    ----
    The cost of :func:`array`.
    """
    _check_device(a, device, mesh)
    return _as_class(a, False, lambda x: _made(x, dtype, copy, order, like, mesh, placements))


@creates(np.asanyarray, at=True, lists=True)
def asanyarray(
    a: ArrayLike,
    dtype: DTypeLike = None,
    order: Order | None = None,
    *,
    device: str | None = None,
    copy: bool | None = None,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Convert anything to an array; arrays are returned themselves; see :func:`numpy.asanyarray`.

    Cost
    ----
    The cost of :func:`array`.
    """
    _check_device(a, device, mesh)
    return _as_class(a, True, lambda x: _made(x, dtype, copy, order, like, mesh, placements))


def _check_device(a: ArrayLike, device: str | None, mesh: DeviceMesh | None) -> None:
    if device is not None:
        mesh = common_mesh(a) if mesh is None else mesh
        place((), float, mesh, device=device)


def asarray_chkfinite(
    a: ArrayLike, dtype: DTypeLike = None, order: Order | None = None
) -> DistArray:
    """Convert to an array, without NaN and infinities; see :func:`numpy.asarray_chkfinite`.

    Cost
    ----
    The cost of :func:`array`, and one allreduce of a truth value.

    Raises
    ------
    ValueError
        On every rank, if any element on any rank is not finite.
    """
    x = asarray(a, dtype, order)
    if x.dtype.char in np.typecodes["AllFloat"] and not bool(np.all(np.isfinite(x))):
        raise ValueError("array must not contain infs or NaNs")
    return x


@creates(np.ascontiguousarray, at=True, lists=True)
def ascontiguousarray(
    a: ArrayLike,
    dtype: DTypeLike = None,
    *,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Return an array with blocks contiguous in C order; see :func:`numpy.ascontiguousarray`.

    Cost
    ----
    The cost of :func:`array`, and one allreduce of an integer if a rank alone cannot decide
    whether the array is contiguous.
    """
    return array(
        a, dtype, copy=None, order="C", ndmin=1, like=like, mesh=mesh, placements=placements
    )


@creates(np.asfortranarray, at=True, lists=True)
def asfortranarray(
    a: ArrayLike,
    dtype: DTypeLike = None,
    *,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Return an array with blocks contiguous in Fortran order; see :func:`numpy.asfortranarray`.

    Cost
    ----
    The cost of :func:`ascontiguousarray`.
    """
    return array(
        a, dtype, copy=None, order="F", ndmin=1, like=like, mesh=mesh, placements=placements
    )


@creates(np.require, at=True, lists=True)
def require(
    a: ArrayLike,
    dtype: DTypeLike = None,
    requirements: str | Sequence[str] | None = None,
    *,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Return an array whose blocks have the required properties; see :func:`numpy.require`.

    Cost
    ----
    The cost of :func:`ascontiguousarray`; for "O" the ranks agree by an allreduce of an integer.
    """
    order, wanted = _required(requirements)
    x = asarray(a, dtype, order, like=like, mesh=mesh, placements=placements)
    return x if all(_HAS[name](x) for name in wanted) else x.copy(order)


#: Properties besides the order that can be required, and a check of each on all ranks.
_HAS: dict[str, Callable[[DistArray], bool]] = {
    "A": lambda x: bool(x.flags.aligned),
    "W": lambda x: bool(x.flags.writeable),
    "O": owns_memory,
}


def _required(requirements: str | Sequence[str] | None) -> tuple[Order, list[str]]:
    """Return the required order, and the letters of the other requirements."""
    np.require(0, None, requirements)  # type: ignore[arg-type] # raises what NumPy raises
    letters = {str(name).upper()[0] for name in requirements or ()}
    order: Order = "F" if "F" in letters else "C" if "C" in letters else "A"
    return order, [name for name in sorted(_HAS) if name in letters]


# -- from buffers and iterables, which are equal on every rank -----------------------------------


def _distributed(
    values: Array, like: ArrayLike | None, mesh: DeviceMesh | None, placements: Placements | None
) -> DistArray:
    layout, mesh = place(values.shape, values.dtype, mesh, placements, None, like)
    return part(values, layout, mesh, "K", _is_copied(None, values, values, layout))


@creates(np.fromiter, lists=True)
def fromiter(
    iter: Iterable[Any],
    dtype: DTypeLike,
    count: int = -1,
    *,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create a 1-d array from the items of an iterable; see :func:`numpy.fromiter`.

    Cost
    ----
    No message; every rank iterates over the whole iterable.
    """
    return _distributed(np.fromiter(iter, dtype, count), like, mesh, placements)


@creates(np.fromstring)
def fromstring(
    string: str | bytes,
    dtype: DTypeLike = float,
    count: int = -1,
    *,
    sep: str = "",
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create a 1-d array from the numbers in a text; see :func:`numpy.fromstring`.

    Cost
    ----
    No message; every rank reads the whole text.
    """
    return _distributed(np.fromstring(string, dtype, count, sep=sep), like, mesh, placements)


class SupportsDLPack(Protocol):
    """Array of any library that supports the DLPack protocol."""

    def __dlpack__(self, *, stream: None = None) -> Any:
        """Return the array's capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the array's device."""


def from_dlpack(
    x: DistArray | SupportsDLPack,
    /,
    *,
    device: str | None = None,
    copy: bool | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Convert another library's array, equal on every rank; see :func:`numpy.from_dlpack`.

    Cost
    ----
    No message. Writable memory is shared, and therefore whole on every rank, unless `copy` or
    `placements` are given.
    """
    if isinstance(x, DistArray):
        if x.mesh.device_type == "cpu":
            lent: Any = x.to_local() if x.layout.is_whole else np.empty(1, x.dtype)
            lent.__dlpack__(max_version=(1, 0))  # NumPy's error for unsupported arrays
        return asarray(x, copy=copy, device=device, mesh=mesh, placements=placements)
    read: Any = np.from_dlpack
    values = read(x, device=device, copy=copy)
    return (
        _distributed(values, None, mesh, placements)
        if copy
        else over(values, x, None, mesh, placements)
    )
