"""Assignment to an array, ``x[...] = value``, broadcast and cast as in NumPy."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from distarray.array import movement
from distarray.array.base import Base, is_number
from distarray.array.portable import refuse_read_only
from distarray.array.sharing import writing
from distarray.comm import DeviceMesh, devices
from distarray.config import config
from distarray.layout import Shard
from distarray.plan import restrict, shape_text
from distarray.typing import Array, ArrayLike, Shape

if TYPE_CHECKING:
    from distarray.array.core import DistArray

__all__ = ["as_number", "assign", "brought", "fitted", "one_element"]

_ARRAYS = (Base, np.ndarray, np.generic)


def assign(target: Base, value: Any) -> None:
    """Copy a value into a distributed array, which has no fold pending.

    Parameters
    ----------
    target : DistArray
        Changed in place.
    value : array_like
        If it is not distributed, it is assumed to be equal on every rank.

    Raises
    ------
    ValueError, TypeError, OverflowError
        NumPy's errors, on every rank and before anything is written.

    Cost
    ----
    Nothing is sent for a value that every rank has. A DistArray is redistributed to the layout of
    the target, also from another mesh.
    """
    with writing(target, whole=True):
        _assign(target, _bare(value, target.mesh))


def _assign(target: Base, value: Any) -> None:
    refuse_read_only(target)
    if target.dtype == object and not isinstance(value, Base):
        _assign_objects(target, value)
        return
    value = _of_one_kind(value, target.dtype)
    _check_records(value, target.dtype)  # NumPy makes this check first
    shape = value.layout.shape if isinstance(value, Base) else np.shape(value)
    if isinstance(value, (list, tuple)) and len(shape) > target.ndim:
        np.empty((1,) * target.ndim, target.dtype)[...] = value  # NumPy's error: too deep a list
    if not _fits(shape, target.shape):
        raise ValueError(
            f"could not broadcast input array from shape {shape_text(shape)} into shape "
            f"{shape_text(target.shape)}"
        )
    is_array = isinstance(value, (Base, np.ndarray))
    if is_array and not target.size:
        np.empty(0, target.dtype)[:] = np.empty(0, value.dtype)  # no element is converted
    elif isinstance(value, Base):
        _assign_distributed(target, value)
    else:
        value = _own_part(target, fitted(value, target.dtype))
        if target.layout.holds(target.mesh.coords):
            target.block[...] = devices.with_sign(value, target.block)


def _of_one_kind(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a value to an array if its shape depends on the data type: records, characters."""
    is_record = dtype.names is not None and isinstance(value, (tuple, list))
    is_text = dtype.char == "c" and isinstance(value, (str, bytes))
    return np.array(value, dtype) if is_record or is_text else value


def _assign_objects(target: Base, value: Any) -> None:
    """Copy a value that every rank has; NumPy needs all of it, since a list may be one element."""
    layout = target.layout
    if layout.is_whole:
        target.block[...] = value
        return
    cells = np.empty(target.shape, object)
    cells[...] = value
    if layout.holds(target.mesh.coords):
        target.block[...] = _own_part(target, cells)


def _bare(value: Any, mesh: DeviceMesh) -> Any:
    """Replace a 0-d result by its scalar, and an object with ``__array__`` by its array."""
    if hasattr(type(value), "__array__") and not isinstance(value, _ARRAYS):
        given = value.__array__()  # NumPy would accept no DistArray from ``__array__``
        return given if isinstance(given, _ARRAYS) else value
    if isinstance(value, Base) and isinstance(value.block, np.generic) and value.mesh is mesh:
        return value.plain().block
    return value


def brought(value: "DistArray", mesh: DeviceMesh) -> "DistArray":
    """Move a distributed value to a mesh; cut along its longest dimension there unless small."""
    if value.mesh is mesh:
        return value
    if value.nbytes < config.replicate_below:
        return value.redistribute(mesh)
    longest = value.shape.index(max(value.shape))
    return value.redistribute(mesh, [Shard(longest)] * mesh.ndim)


def _assign_distributed(target: Base, value: Any) -> None:
    value = brought(value, target.mesh)
    if value.layout.partials:
        value.settle()
    value = fitted(value.plain() if value.layout.is_lone_element else value, target.dtype)
    while value.ndim > target.ndim:
        value = value[0, ...]
    layout, mesh = target.layout, target.mesh
    if value.shape == target.shape:
        movement.assign(target.block, layout, value.block, value.layout, mesh)
        return
    part = movement.moved(value.block, value.layout, restrict(layout, value.shape), mesh)
    if layout.holds(mesh.coords):
        target.block[...] = part


def as_number(constant: Any, dtype: np.dtype[Any] | None) -> Any:
    """Convert a constant such as ``numpy.ma.masked`` to a number, with NumPy's conversion."""
    kind = "f" if dtype is None else dtype.kind
    if kind == "O":
        return constant
    return int(constant) if kind in "iu" else bool(constant) if kind == "b" else float(constant)


def one_element(value: Any, dtype: np.dtype[Any], whole: bool = False) -> Any:
    """Convert a value for a single element, with NumPy; for objects a list is one element, too.

    In a `whole` array of objects an element can also be a distributed array: every rank has every
    object, and all ranks use an object together.

    Raises
    ------
    ValueError, TypeError
        If the value has dimensions, unless the elements are objects.
    """
    if isinstance(value, Base):
        if whole and dtype.kind == "O" and not is_number(value):
            cell = np.empty((), dtype)
            # NumPy recognizes the block of a 0-d array.
            cell[()] = value if value.layout.shape else value.plain().block
            return cell
        if value.layout.shape:
            np.empty((), dtype)[()] = np.zeros(value.layout.shape, value.block.dtype)
        return value
    cell = np.empty((), dtype)
    cell[()] = value
    return cell if dtype.hasobject else cell[()]  # a device accepts only scalars from the host


def _check_records(value: Any, dtype: np.dtype[Any]) -> None:
    """Raise NumPy's error for records that cannot be cast to a data type."""
    kind = getattr(value, "dtype", None)
    if isinstance(kind, np.dtype) and kind.kind == "V":
        np.zeros(1, kind).astype(dtype)


def fitted(value: Any, dtype: np.dtype[Any]) -> Any:
    """Return a value that can be cast to a data type; raise on all ranks if NumPy would raise.

    Otherwise only ranks that hold elements of the target would raise.
    """
    _check_records(value, dtype)
    if not isinstance(getattr(value, "dtype", None), np.dtype):
        if isinstance(value, (list, tuple)) or np.ndim(value):
            return np.asarray(value, dtype)
        np.empty((), dtype)[()] = value
    elif _may_be_refused(value.dtype.kind, dtype.kind):
        return value.astype(dtype)
    return value


def _may_be_refused(kind: str, other: str) -> bool:
    """Return True if casts may fail for single elements: text to numbers, dates to shorter text."""
    return (kind in "SUO" and other not in "SUO") or (kind in "mM" and other in "SU")


def _own_part(target: Base, value: ArrayLike) -> Any:
    """Return the section of a replicated, broadcast value that this rank assigns to its block."""
    if isinstance(value, np.ndarray) and not value.ndim:
        return value.astype(target.dtype)[()]  # a device accepts only scalars from the host
    if isinstance(value, np.generic):
        np.empty((), target.dtype)[()] = value  # raises on all ranks if it cannot be cast
    if not np.ndim(value):
        return value
    block: Array = target.mesh.asarray(value)
    block = block.reshape(block.shape[max(0, block.ndim - target.ndim) :])
    lead = target.ndim - block.ndim
    extents: Shape = block.shape
    section, shape = target.layout.section(target.mesh.coords)[lead:], target.shape[lead:]
    key = [
        slice(*interval) if extent == whole else slice(None)
        for interval, extent, whole in zip(section, extents, shape, strict=True)
    ]
    return block[tuple(key)]


def _fits(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Return True if `shape` broadcasts into `target`; surplus leading 1's are dropped."""
    surplus = len(shape) - len(target)
    if surplus > 0:
        if any(extent != 1 for extent in shape[:surplus]):
            return False
        shape = shape[surplus:]
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all(have in (want, 1) for have, want in pairs)
