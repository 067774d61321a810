"""Buffer protocol: `memoryview`, `hashlib`, `bytearray` and files accept arrays as NumPy's.

From Python 3.12 on a class supports the protocol by its method ``__buffer__``. In earlier versions
only C can provide the protocol, so this module sets the slot of the class to a function of this
library. The function cannot give a reason when it refuses: Python then raises a SystemError. NumPy
requests a buffer first, and calls ``__array__`` only if the request fails.
"""

import ctypes
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from distarray.array.exporting import CONVERSION, given_out, is_told, lent, while_in_lists
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.array.core import DistArray

__all__ = ["export", "give_buffer", "view_of"]

#: Kinds of data types that the format of a buffer describes completely.
_KINDS = "?biufcSU"
#: The flag that requests the format of the elements.
_FORMAT = 4
#: The flags with which NumPy requests the buffer of `x` for ``ndarray(buffer=x)``: it releases the
#: buffer at once, and keeps `x` alive for the memory.
_ANY_CONTIGUOUS = 0x98
#: Offset of the pointer to the buffer functions in a class of CPython 3.11, in words.
_TP_AS_BUFFER = 20
#: References to the functions in the slots of classes: C holds no reference to them.
_kept: list[Any] = []
_WORD = ctypes.sizeof(ctypes.c_void_p)
_RELEASE = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


def _release_nothing(x: int, view: int) -> None:
    """Fill the slot for the release of a buffer; there is nothing to release.

    If the slot is empty, `numpy.frombuffer` keeps the object and not the buffer, and a gathered
    copy would be freed while it is read.
    """


def export(x: "DistArray", flags: int) -> Array:
    """Return the NumPy array whose buffer a distributed array exports; collective if it is cut.

    A caller whose flags do not request the elements' format knows the format of the bytes.

    Raises
    ------
    BufferError
        If a buffer cannot describe the elements' data type.
    """
    while_in_lists()
    if not x.has_buffer:
        raise BufferError(f"{type(x).__name__} has more than a buffer of elements")
    dtype = x.dtype
    if flags & _FORMAT and (dtype.metadata or not (dtype.kind in _KINDS or is_told(dtype))):
        raise BufferError(f"a buffer cannot describe the data type {dtype}: use numpy.asarray(x)")
    if x.layout.is_whole:
        return np.asarray(x.mesh.to_host(x.to_local()))
    whole = lent(x, CONVERSION)
    if flags & _ANY_CONTIGUOUS == _ANY_CONTIGUOUS:
        given_out(x, whole)
    return whole


def view_of(values: Array) -> memoryview:
    """Return the memory of an array; as bytes if NumPy cannot describe its elements (dates)."""
    try:
        return memoryview(values)  # type: ignore[arg-type]
    except ValueError:
        return memoryview(values.view(f"V{values.itemsize}"))  # type: ignore[arg-type]


def give_buffer(cls: type) -> None:
    """Add the buffer protocol to a class if Python ignores its method ``__buffer__``."""
    if sys.version_info >= (3, 12) or sys.implementation.name != "cpython":
        return
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
    fill = kind(("PyObject_GetBuffer", ctypes.pythonapi))

    def get_buffer(x: "DistArray", view: int, flags: int) -> int:
        try:
            return int(fill(export(x, flags), view, flags))
        except BaseException:
            return -1

    slots = kind(get_buffer), _RELEASE(_release_nothing)
    _kept.append(slots)
    place = id(cls) + _TP_AS_BUFFER * _WORD
    functions = ctypes.c_void_p.from_address(place).value
    # A class made in Python contains the functions; otherwise this build of CPython differs.
    if functions and 0 < functions - id(cls) < sys.getsizeof(cls):
        for slot, place in zip(slots, (functions, functions + _WORD), strict=True):
            ctypes.c_void_p.from_address(place).value = ctypes.cast(slot, ctypes.c_void_p).value
