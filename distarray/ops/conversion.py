"""Arrays from other arrays, lists, buffers and iterables.

What is not distributed counts as equal on every rank; each rank keeps its part of it, and nothing
is sent.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, distribute, wrap
from distarray.array.exporting import converted
from distarray.array.placing import Placements, creates, place, plain
from distarray.array.storage import owns_memory, suits
from distarray.comm import DeviceMesh
from distarray.layout import Layout

__all__ = [
    "array",
    "asanyarray",
    "asarray",
    "asarray_chkfinite",
    "ascontiguousarray",
    "asfortranarray",
    "from_dlpack",
    "frombuffer",
    "fromiter",
    "fromstring",
    "require",
]


@creates(np.array, at=True, lists=True)
def array(
    object: Any,
    dtype: Any = None,
    *,
    copy: bool | None = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = 0,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of anything that NumPy makes one of; see :func:`numpy.array`.

    Parameters
    ----------
    object : array_like
        Lists may contain DistArrays, which are then stacked. A DistArray is copied in its layout.
    copy : bool or None
        Of a NumPy array, None copies this rank's part unless that is the whole (as on one rank),
        which is shared as NumPy shares it; False makes a view of the part.
    mesh, placements
        As :func:`distarray.distribute` takes them.

    Cost
    ----
    No message, unless a DistArray is to be placed otherwise or several are to be stacked; or is not
    to be copied if it is stored in some order, see :func:`ascontiguousarray`.
    """
    return _made(object, dtype, copy, order, like, mesh, placements, ndmin, ndmax)


def _made(
    source: Any,
    dtype: Any,
    copy: bool | None,
    order: Any,
    like: Any,
    mesh: DeviceMesh | None,
    placements: Placements | None,
    ndmin: int = 0,
    ndmax: int = 0,
) -> DistArray:
    keywords: dict[str, Any] = {"order": order, "ndmin": ndmin, "copy": None if copy else copy}
    if ndmax:
        keywords["ndmax"] = ndmax
    values = None
    if isinstance(source, (list, tuple)):
        values = converted(source, np.array, dtype, **keywords)
        source = _joined(source) if values is None else source
    if isinstance(source, DistArray):
        return _from_distarray(source, dtype, copy, order, ndmin, mesh, placements)
    values = np.array(source, dtype, **keywords) if values is None else values
    layout, mesh = place(values.shape, values.dtype, mesh, placements, None, like)
    return _part(values, layout, mesh, order or "K", _is_copied(copy, values, source, layout))


def _from_distarray(
    x: DistArray,
    dtype: Any,
    copy: bool | None,
    order: Any,
    ndmin: int,
    mesh: DeviceMesh | None,
    placements: Placements | None,
) -> DistArray:
    np.array((), order=order)  # raises what NumPy raises
    order = (order or "K").upper()
    result = x if copy is not True and suits(x, dtype, order) else None
    if result is None:
        if copy is False:
            np.array([0], copy=False)  # raises what NumPy raises
        array = x.like(x.mesh.asarray(x.block))  # a scalar becomes one of no dimensions
        result = array.astype(x.dtype if dtype is None else dtype, order)
    if result.ndim < ndmin:
        result = result[(None,) * (ndmin - result.ndim) + (...,)]
    moves = placements is not None or mesh not in (None, x.mesh)
    return distribute(result, mesh, placements) if moves else result


def _is_copied(copy: bool | None, values: Any, source: Any, layout: Layout) -> bool:
    """Whether the ranks' parts have to be copied: on demand, or to let go of the whole."""
    if copy is False:
        return False
    if copy is True and (values is source or values.base is not None):  # somebody else has them
        return True
    return not layout.is_whole


def _part(values: Any, layout: Layout, mesh: DeviceMesh, order: Any, copied: bool) -> DistArray:
    if layout.local_shape(mesh.coords) != values.shape:
        values = values[tuple([slice(*interval) for interval in layout.section(mesh.coords)])]
    block = mesh.asarray(values)
    return wrap(block.copy(order) if copied else block, layout, mesh)


def _joined(value: Any) -> Any:
    """Nested lists that contain DistArrays, stacked; other input as it is.

    Lists of 0-d arrays (results of reductions) become lists of NumPy's scalars.
    """
    if isinstance(value, DistArray):
        return plain(value.plain())
    if not isinstance(value, (list, tuple)) or not _mentions(value):
        return value
    items = [_joined(item) for item in value]
    if not any(isinstance(item, DistArray) for item in items):
        return items
    mesh = common_mesh(*items)
    return np.stack([as_distarray(item, mesh) for item in items])


def _mentions(value: Any) -> bool:
    """Whether there is a DistArray in nested lists."""
    kinds = set(map(type, value))
    if DistArray in kinds:
        return True
    if kinds.isdisjoint((list, tuple)):
        return False
    return any(_mentions(item) for item in value if isinstance(item, (list, tuple)))


@creates(np.asarray, at=True, lists=True)
def asarray(
    a: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    device: str | None = None,
    copy: bool | None = None,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of anything, itself if it is one; see :func:`numpy.asarray`.

    Cost
    ----
    As :func:`array`.
    """
    _check_device(a, device, mesh)
    return _made(a, dtype, copy, order, like, mesh, placements)


@creates(np.asanyarray, at=True, lists=True)
def asanyarray(
    a: Any,
    dtype: Any = None,
    order: Any = None,
    *,
    device: str | None = None,
    copy: bool | None = None,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of anything, itself if it is one; see :func:`numpy.asanyarray`.

    Cost
    ----
    As :func:`array`.
    """
    _check_device(a, device, mesh)
    return _made(a, dtype, copy, order, like, mesh, placements)


def _check_device(a: Any, device: str | None, mesh: DeviceMesh | None) -> None:
    if device is not None:
        mesh = common_mesh(a) if mesh is None else mesh
        place((), float, mesh, device=device)


def asarray_chkfinite(a: Any, dtype: Any = None, order: Any = None) -> DistArray:
    """An array without NaN and infinities; see :func:`numpy.asarray_chkfinite`.

    Cost
    ----
    As :func:`array`, and one allreduce of a truth value.

    Raises
    ------
    ValueError
        If any element on any rank is not finite; on every rank.
    """
    x = asarray(a, dtype, order)
    if x.dtype.char in np.typecodes["AllFloat"] and not bool(np.all(np.isfinite(x))):
        raise ValueError("array must not contain infs or NaNs")
    return x


@creates(np.ascontiguousarray, at=True, lists=True)
def ascontiguousarray(
    a: Any,
    dtype: Any = None,
    *,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array with blocks contiguous in C order; see :func:`numpy.ascontiguousarray`.

    Cost
    ----
    As :func:`array`, and one allreduce of an integer where a rank alone cannot say whether it is.
    """
    return array(
        a, dtype, copy=None, order="C", ndmin=1, like=like, mesh=mesh, placements=placements
    )


@creates(np.asfortranarray, at=True, lists=True)
def asfortranarray(
    a: Any,
    dtype: Any = None,
    *,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array with blocks contiguous in Fortran order; see :func:`numpy.asfortranarray`.

    Cost
    ----
    As :func:`ascontiguousarray`.
    """
    return array(
        a, dtype, copy=None, order="F", ndmin=1, like=like, mesh=mesh, placements=placements
    )


@creates(np.require, at=True, lists=True)
def require(
    a: Any,
    dtype: Any = None,
    requirements: Any = None,
    *,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array whose blocks have the properties asked for; see :func:`numpy.require`.

    Cost
    ----
    As :func:`ascontiguousarray`; for "O" the ranks agree by an allreduce of an integer.
    """
    order, wanted = _required(requirements)
    x = asarray(a, dtype, order, like=like, mesh=mesh, placements=placements)
    return x if all(_HAS[name](x) for name in wanted) else x.copy(order)


#: What an array can be required to be beside its order, and whether it is; the ranks agree.
_HAS: dict[str, Callable[[DistArray], bool]] = {
    "A": lambda x: bool(x.flags.aligned),
    "W": lambda x: bool(x.flags.writeable),
    "O": owns_memory,
}


def _required(requirements: Any) -> tuple[str, list[str]]:
    """The order that requirements name, and what else they do, in one letter each."""
    np.require(0, None, requirements)  # raises what NumPy raises
    letters = {str(name).upper()[0] for name in requirements or ()}
    order = "F" if "F" in letters else "C" if "C" in letters else "A"
    return order, [name for name in sorted(_HAS) if name in letters]


# -- from buffers and iterables, which are equal on every rank -----------------------------------


def _distributed(
    values: Any, like: Any, mesh: DeviceMesh | None, placements: Placements | None
) -> DistArray:
    layout, mesh = place(values.shape, values.dtype, mesh, placements, None, like)
    return _part(values, layout, mesh, "K", _is_copied(None, values, values, layout))


@creates(np.frombuffer)
def frombuffer(
    buffer: Any,
    dtype: Any = None,
    count: int = -1,
    offset: int = 0,
    *,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """The bytes of a buffer as a 1-d array; see :func:`numpy.frombuffer`.

    Cost
    ----
    No message, and no copy: the block is this rank's part of the buffer.

    Notes
    -----
    What is written to the buffer later is seen in the array, if every rank writes it, and the array
    is read-only where the buffer is. What is written to the array reaches the buffer of a rank only
    where its block is: on one rank, or with `Replicate`, all of it. The array keeps the whole
    buffer in memory; ``copy()`` of it lets go of that.
    """
    values = np.frombuffer(buffer, float if dtype is None else dtype, count, offset)
    layout, mesh = place(values.shape, values.dtype, mesh, placements, None, like)
    return _part(values, layout, mesh, "K", copied=False)


@creates(np.fromiter, lists=True)
def fromiter(
    iter: Any,
    dtype: Any,
    count: int = -1,
    *,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """The items of an iterable as a 1-d array; see :func:`numpy.fromiter`.

    Cost
    ----
    No message; every rank runs through the whole iterable.
    """
    return _distributed(np.fromiter(iter, dtype, count), like, mesh, placements)


@creates(np.fromstring)
def fromstring(
    string: Any,
    dtype: Any = float,
    count: int = -1,
    *,
    sep: str,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """The numbers in a text as a 1-d array; see :func:`numpy.fromstring`.

    Cost
    ----
    No message; every rank reads the whole text.
    """
    return _distributed(np.fromstring(string, dtype, count, sep=sep), like, mesh, placements)


def from_dlpack(
    x: Any,
    /,
    *,
    device: Any = None,
    copy: bool | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of another library, equal on every rank; see :func:`numpy.from_dlpack`.

    Cost
    ----
    No message. A rank that keeps all of `x` shares its memory where the libraries allow it.
    """
    if isinstance(x, DistArray):
        return asarray(x, copy=copy, device=device, mesh=mesh, placements=placements)
    return _distributed(np.from_dlpack(x, device=device, copy=copy), None, mesh, placements)
