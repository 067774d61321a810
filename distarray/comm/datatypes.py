"""MPI datatypes for NumPy views, strided or not, so that MPI sends and receives them in place.

A contiguous view needs no datatype of its own. A view of long runs becomes one element of a derived
datatype that starts at the view's first element: vectors of vectors, as many as the strides need.
The datatypes are cached, and the least recently used are freed, because MPI has a limited number of
them. NumPy packs views of short runs, which is several times faster for them
(`benchmarks/exchange_methods.py`). It also packs views with negative strides, which Open MPI 5.0.11
sends wrongly. Counts that do not fit into an int become one element of a large datatype, because
not every MPI has the calls with large counts.
"""

from collections import OrderedDict
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from mpi4py import MPI

from distarray.typing import Array

if TYPE_CHECKING:
    from numpy._core.multiarray import flagsobj

__all__ = [
    "cached_datatypes",
    "carrier",
    "clear_datatypes",
    "contiguous",
    "in_place",
    "message",
    "message_parts",
    "strided_datatype",
]

Dims = list[tuple[int, int]]

#: Number of derived datatypes that are kept.
CACHE_SIZE = 512
#: Views whose contiguous runs are shorter than this many bytes are packed.
PACK_BELOW = 2048
#: The largest count that an int holds.
LARGE = 2**31 - 1

_PLAIN = {
    "?": MPI.C_BOOL,
    "f": MPI.FLOAT,
    "d": MPI.DOUBLE,
    "g": MPI.LONG_DOUBLE,
    "F": MPI.C_FLOAT_COMPLEX,
    "D": MPI.C_DOUBLE_COMPLEX,
    "G": MPI.C_LONG_DOUBLE_COMPLEX,
}
_INTEGERS = {
    "i1": MPI.INT8_T,
    "i2": MPI.INT16_T,
    "i4": MPI.INT32_T,
    "i8": MPI.INT64_T,
    "u1": MPI.UINT8_T,
    "u2": MPI.UINT16_T,
    "u4": MPI.UINT32_T,
    "u8": MPI.UINT64_T,
}


class _Carrier(NamedTuple):
    """MPI representation of the elements of one dtype."""

    mpi_type: MPI.Datatype
    #: Number of MPI elements in one element.
    elements: int
    #: The dtype as which the view is reinterpreted; None if mpi4py knows the view's own dtype.
    alias: np.dtype[Any] | None


_carriers: dict[np.dtype[Any], _Carrier] = {}
_strided: OrderedDict[tuple[Any, ...], MPI.Datatype | None] = OrderedDict()
_remembering = Lock()


def carrier(dtype: np.dtype[Any]) -> _Carrier:
    """Return the MPI representation of a dtype: an MPI number type if there is one, or bytes."""
    found = _carriers.get(dtype)
    if found is None:
        if dtype.hasobject:
            raise TypeError(
                f"elements of dtype {dtype} are references and cannot leave the process"
            )
        found = _carriers[dtype] = _new_carrier(dtype)
    return found


def _new_carrier(dtype: np.dtype[Any]) -> _Carrier:
    if dtype.isnative and dtype.char in _PLAIN:
        return _Carrier(_PLAIN[dtype.char], 1, None)
    if dtype.isnative and dtype.kind in "iu":
        return _Carrier(_INTEGERS[dtype.str[1:]], 1, None)
    name = f"u{dtype.itemsize}"
    if dtype.kind in "iufmM" and name in _INTEGERS:
        return _Carrier(_INTEGERS[name], 1, np.dtype(name))
    return _Carrier(MPI.BYTE, dtype.itemsize, np.dtype(np.uint8))


def message(view: Array) -> Any:
    """Return the argument of mpi4py's sends for a view; a packed copy where packing is faster."""
    kind, flags = _carriers.get(view.dtype) or carrier(view.dtype), view.flags
    if not flags.c_contiguous:
        derived = strided_datatype(view)
        if derived is not None:
            return _start(view, kind), 1, derived
        view = view.copy()
        flags = view.flags
    return view if _is_read(view, flags, kind) else message_parts(view)


def in_place(view: Array) -> Any:
    """Return the argument of mpi4py's receives for a view; None where packing is faster."""
    kind, flags = _carriers.get(view.dtype) or carrier(view.dtype), view.flags
    if flags.c_contiguous:
        return view if _is_read(view, flags, kind) else message_parts(view)
    derived = strided_datatype(view)
    return None if derived is None else (_start(view, kind), 1, derived)


def _is_read(view: Array, flags: "flagsobj", kind: _Carrier) -> bool:
    """Return True if mpi4py can take a C-contiguous view itself.

    mpi4py has no type for the elements of an unaligned view, such as a field of a record.
    """
    return kind.alias is None and flags.aligned and view.size <= LARGE


def message_parts(view: Array) -> tuple[Any, int, MPI.Datatype]:
    """Return buffer, count and type of a C-contiguous view."""
    kind = carrier(view.dtype)
    buffer = view if kind.alias is None else view.reshape(-1).view(kind.alias)
    count = view.size * kind.elements
    if count <= LARGE:
        return buffer, count, kind.mpi_type
    return buffer.reshape(-1)[:1], 1, _large_datatype(kind.mpi_type, count, view.dtype)


def _large_datatype(base: MPI.Datatype, count: int, dtype: np.dtype[Any]) -> MPI.Datatype:
    key = (count, None, dtype)
    found = _strided.get(key)
    if found is None:
        found = contiguous(base, count).Commit()
        _remember(key, found)
    return found


def contiguous(base: MPI.Datatype, count: int) -> MPI.Datatype:
    """Return a new datatype of `count` elements; `count` may be too large for an int."""
    if count <= LARGE:
        return base.Create_contiguous(count)
    pieces, rest = divmod(count, LARGE)
    piece = base.Create_contiguous(LARGE)
    size = base.Get_size()
    made = MPI.Datatype.Create_struct([pieces, rest], [0, pieces * LARGE * size], [piece, base])
    piece.Free()
    return made


def _start(view: Array, kind: _Carrier) -> Array:
    """Return a contiguous array at the view's first element, for its address."""
    corner = view[(slice(0, 1),) * view.ndim].reshape(-1)
    return corner if kind.alias is None else corner.view(kind.alias)


def strided_datatype(view: Array) -> MPI.Datatype | None:
    """Return the committed datatype that takes the view's elements in C order, from the cache.

    Return None if packing the view is faster.
    """
    key = (view.shape, view.strides, view.dtype)
    try:
        found = _strided[key]
    except KeyError:
        return _remember(key, _build(view))
    with suppress(KeyError):  # another thread has just removed it
        _strided.move_to_end(key)
    return found


def _remember(key: tuple[Any, ...], made: MPI.Datatype | None) -> MPI.Datatype | None:
    with _remembering:
        if key in _strided:  # another thread was faster
            _free(made)
            return _strided[key]
        while len(_strided) >= CACHE_SIZE:
            _free(_strided.popitem(last=False)[1])
        _strided[key] = made
        return made


def _build(view: Array) -> MPI.Datatype | None:
    kind = carrier(view.dtype)
    itemsize = view.dtype.itemsize
    dims = merged_dims(view.shape, view.strides)
    run = dims.pop()[0] if dims and dims[-1][1] == itemsize else 1
    if run * itemsize < PACK_BELOW or any(stride <= 0 for _, stride in dims):
        return None
    made = contiguous(kind.mpi_type, run * kind.elements)
    for count, stride in reversed(dims):
        outer = made.Create_hvector(count, 1, stride)
        made.Free()
        made = outer
    return made.Commit()


def merged_dims(shape: tuple[int, ...], strides: tuple[int, ...]) -> Dims:
    """Return (length, stride) of dimensions longer than 1, with neighbors merged where possible."""
    dims: Dims = []
    for length, stride in zip(shape, strides, strict=True):
        if length == 1:
            continue
        if dims and dims[-1][1] == length * stride:
            dims[-1] = (dims[-1][0] * length, stride)
        else:
            dims.append((length, stride))
    return dims


def cached_datatypes() -> int:
    """Return the number of derived datatypes in the cache."""
    return sum(made is not None for made in _strided.values())


def clear_datatypes() -> None:
    """Free all cached datatypes."""
    while _strided:
        _free(_strided.popitem()[1])


def _free(made: MPI.Datatype | None) -> None:
    if made is not None:
        made.Free()
