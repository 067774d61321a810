"""Files in NumPy's own format, ``.npy``: headers, saving and loading."""

import struct
import warnings
from collections.abc import Callable
from io import BytesIO
from itertools import accumulate
from math import prod
from operator import mul
from threading import RLock
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.lib import format as npy_format

from distarray.array import DistArray, as_distarray, common_mesh
from distarray.array.creation import reversed_dims
from distarray.comm import DeviceMesh
from distarray.io.atomic_file import on_first
from distarray.io.output_files import Part, store, target_for
from distarray.layout import Fold

__all__ = [
    "PARSING",
    "Header",
    "found_on_rank_0",
    "header_bytes",
    "is_fortran",
    "parts_of",
    "read_header",
    "save",
]

Value = TypeVar("Value")
_VERSIONS = ((1, 0), (2, 0), (3, 0))
_MAX_HEADER_SIZE = 10_000
#: Held while a header is parsed. Older Pythons (3.11.7 does) count how deep the parser is for all
#: threads together, and raise SystemError where two threads, which are ranks here, parse at once.
PARSING = RLock()


class Header(NamedTuple):
    """What an array's header says.

    Attributes
    ----------
    shape : tuple of int
    fortran : bool
        Whether elements are in Fortran order.
    dtype : numpy.dtype
    start : int
        Byte at which the elements begin.
    """

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    start: int

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.dtype.itemsize * prod(self.shape)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """The shape whose C order is the order of the elements in the file."""
        return self.shape[::-1] if self.fortran else self.shape

    def check_size(self, size: int) -> None:
        """Raise NumPy's error if a file of `size` bytes ends before the elements do."""
        if size - self.start < self.nbytes:
            found = max(0, size - self.start) // self.dtype.itemsize
            raise ValueError(
                "Failed to read all data for array. "
                f"Expected {self.shape} = {prod(self.shape)} elements, "
                f"could only read {found} elements. "
                "(file seems not fully written?)"
            )


def read_header(file: Any, max_header_size: int = _MAX_HEADER_SIZE) -> Header:
    """The header at which a file stands; the file then stands at the elements.

    Parameters
    ----------
    file : file object
        Has ``read`` and ``tell``.
    max_header_size : int
        As for :func:`numpy.load`.

    Raises
    ------
    ValueError
        If it is none.
    """
    version = npy_format.read_magic(file)
    if version not in _VERSIONS:
        raise ValueError(f"we only support format version (1,0), (2,0), and (3,0), not {version}")
    size = {"max_header_size": max_header_size}
    with PARSING:
        if version == (1, 0):
            shape, fortran, dtype = npy_format.read_array_header_1_0(file, **size)
        elif version == (2, 0):
            shape, fortran, dtype = npy_format.read_array_header_2_0(file, **size)
        else:
            shape, fortran, dtype = npy_format.read_array_header_2_0(_in_ascii(file), **size)
    if any(isinstance(extent, bool) or extent < 0 for extent in shape):
        raise ValueError(f"shape is not valid: {shape!r}")
    return Header(tuple(shape), bool(fortran), dtype, file.tell())


def _in_ascii(file: Any) -> BytesIO:
    """A header of version 3, whose names are in UTF-8, as one of version 2."""
    lead = file.read(4)
    length = struct.unpack("<I", lead)[0] if len(lead) == 4 else 0
    text = file.read(length).decode("utf-8").encode("ascii", "backslashreplace")
    return BytesIO(struct.pack("<I", len(text)) + text)


def header_bytes(shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]) -> bytes:
    """The header that NumPy writes, in the first version of the format that can hold it."""
    descr = npy_format.dtype_to_descr(dtype)
    words: dict[str, Any] = {"descr": descr, "fortran_order": fortran, "shape": shape}
    made = BytesIO()
    try:
        npy_format.write_array_header_1_0(made, words)
        return made.getvalue()
    except ValueError:
        pass
    made = BytesIO()
    try:
        npy_format.write_array_header_2_0(made, words)
    except UnicodeEncodeError:
        warnings.warn(
            "Stored array in format 3.0. It can only be read by NumPy >= 1.17",
            UserWarning,
            stacklevel=4,
        )
        return _third_version(words)
    warnings.warn(
        "Stored array in format 2.0. It can only be read by NumPy >= 1.9",
        UserWarning,
        stacklevel=4,
    )
    return made.getvalue()


def _third_version(words: dict[str, Any]) -> bytes:
    """A header in UTF-8: NumPy writes this one only together with an array."""
    text = "{" + "".join([f"'{key}': {value!r}, " for key, value in sorted(words.items())]) + "}"
    shape = words["shape"]
    if shape:
        text += " " * (21 - len(repr(shape[-1 if words["fortran_order"] else 0])))
    body = text.encode("utf-8")
    lead = len(npy_format.MAGIC_PREFIX) + 2 + 4
    padding = npy_format.ARRAY_ALIGN - (lead + len(body) + 1) % npy_format.ARRAY_ALIGN
    body += b" " * padding + b"\n"
    return npy_format.magic(3, 0) + struct.pack("<I", len(body)) + body


def is_fortran(x: DistArray) -> bool:
    """Whether the whole array is in Fortran order in memory, and not in C order; collective.

    It is where the blocks are and the array is no slice of another one. Blocks of one row or one
    column have both orders; the distances between their elements tell which they come from.

    Cost
    ----
    An allreduce of four booleans, for arrays of two dimensions and more.
    """
    if sum(n > 1 for n in x.shape) < 2 or x.size == 0:
        return False  # both orders are one
    spread = [cut.base == cut.extent and cut.step == 1 for cut in x.layout.cuts[:-1]]
    flags = x.block.flags
    own = [flags.f_contiguous, flags.c_contiguous, *_strided_as_made(x.block)]
    columns, rows, by_columns, by_rows = x.mesh.group.allreduce(
        np.array(own), Fold.ALL, "order in memory"
    ).tolist()
    if rows:  # and perhaps columns
        columns = columns and by_columns and not by_rows
    return columns and all(spread) and x.layout.cuts[-1].step == 1


def _strided_as_made(block: Any) -> tuple[bool, bool]:
    """Whether the strides are those of a new array in Fortran order, and of one in C order."""
    if block.size == 0:
        return True, True  # nothing speaks against either
    columns = accumulate(block.shape[:-1], mul, initial=block.itemsize)
    rows = accumulate(block.shape[:0:-1], mul, initial=block.itemsize)
    return block.strides == tuple(columns), block.strides[::-1] == tuple(rows)


def parts_of(x: DistArray, allow_pickle: bool = True) -> list[Part]:
    """An array as an ``.npy`` file has it: the header and what follows; collective.

    Raises
    ------
    ValueError
        If the elements have to be pickled and must not be.
    """
    dtype = x.dtype
    if dtype.hasobject or not getattr(type(dtype), "_legacy", True):
        if not allow_pickle:
            kind = "Object arrays" if dtype.hasobject else "User-defined dtypes"
            raise ValueError(f"{kind} cannot be saved when allow_pickle=False")
        values = x.full()
        made = BytesIO()
        npy_format.write_array(made, values, allow_pickle=True)
        return [made.getvalue()]
    fortran = is_fortran(x)
    body = reversed_dims(x) if fortran else x
    return [header_bytes(x.shape, fortran, dtype), body]


def save(file: Any, arr: Any, allow_pickle: bool = True) -> None:
    """Save an array in an ``.npy`` file, byte for byte as NumPy does; see :func:`numpy.save`.

    Parameters
    ----------
    file : path-like or file object
        One path, equal on all ranks, is one file that all of them write together. Of files that
        every rank has opened, rank 0 writes into its own, and so does each rank whose object is
        not that very file (an :class:`io.BytesIO`): it gets the whole array.
    arr : DistArray
        Laid out anyhow. Fortran order is kept where the blocks are in it.
    allow_pickle : bool
        Whether an array of Python objects may be saved; they are pickled, as in NumPy.

    Raises
    ------
    OSError
        On all ranks, if one cannot write.

    Cost
    ----
    Up to 1 MiB rank 0 gathers and writes. A larger file is written by all ranks at once through
    MPI-IO; nothing is sent where blocks lie in long stretches (all layouts that cut the first
    dimension), and otherwise each element once, in rounds of 16 MiB a rank. Into file objects
    rank 0 writes what it gathers, 16 MiB at a time.
    """
    x = as_distarray(arr, common_mesh(arr))
    said = {"allow_pickle": allow_pickle}
    target = target_for("numpy.save", file, {"arr": arr}, x.mesh, said, ending=".npy")
    store(target, parts_of(x, allow_pickle), x.mesh)


def found_on_rank_0(
    look: Callable[[], Value], mesh: DeviceMesh, said: str = "", error: Exception | None = None
) -> Value:
    """What rank 0 finds on disk, on all ranks; its exception is everybody's. Collective.

    All ranks then go by the same facts, and none opens what rank 0 has not seen: under
    ``python -m distarray`` it is rank 0 that writes files. `said` and `error` are those of
    :func:`~distarray.io.atomic_file.on_first`.
    """
    if mesh.coords is None:
        return look()
    return on_first(mesh.group, look, said, error)
