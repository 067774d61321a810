"""Headers of ``.npy`` files: reading, and writing with the same bytes as NumPy."""

import struct
import warnings
from io import BytesIO
from math import prod
from threading import RLock
from typing import IO, Any, NamedTuple

from numpy.lib import format as npy_format

from distarray.typing import DType, Shape

__all__ = ["PARSING", "Header", "header_bytes", "read_header"]

_VERSIONS = ((1, 0), (2, 0), (3, 0))
_MAX_HEADER_SIZE = 10_000
#: Lock that is held while a header is parsed. Older Pythons (3.11.7, for example) count the depth
#: of the parser for all threads together, and raise SystemError if two threads parse at once. Ranks
#: may be threads.
PARSING = RLock()


class Header(NamedTuple):
    """Header of an array.

    Attributes
    ----------
    shape : tuple of int
    fortran : bool
        True if the elements are in Fortran order.
    dtype : numpy.dtype
    start : int
        First byte of the elements.
    """

    shape: Shape
    fortran: bool
    dtype: DType
    start: int

    @property
    def nbytes(self) -> int:
        """Size of the elements in bytes."""
        return self.dtype.itemsize * prod(self.shape)

    @property
    def stored_shape(self) -> Shape:
        """Shape whose C order is the order of the elements in the file."""
        return self.shape[::-1] if self.fortran else self.shape

    def check_size(self, size: int) -> None:
        """Raise NumPy's error if a file of `size` bytes ends before the last element."""
        if size - self.start < self.nbytes:
            found = max(0, size - self.start) // self.dtype.itemsize
            raise ValueError(
                "Failed to read all data for array. "
                f"Expected {self.shape} = {prod(self.shape)} elements, "
                f"could only read {found} elements. "
                "(file seems not fully written?)"
            )


def read_header(file: IO[bytes], max_header_size: int = _MAX_HEADER_SIZE) -> Header:
    """Read the header at a file's position; the file is then positioned at the first element.

    Parameters
    ----------
    file : file object
        A readable binary file that reports its position.
    max_header_size : int
        As for :func:`numpy.load`.

    Raises
    ------
    ValueError
        If there is no header.
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


def _in_ascii(file: IO[bytes]) -> BytesIO:
    """Convert a header of version 3, whose names are in UTF-8, to version 2."""
    lead = file.read(4)
    length = struct.unpack("<I", lead)[0] if len(lead) == 4 else 0
    text = file.read(length).decode("utf-8").encode("ascii", "backslashreplace")
    return BytesIO(struct.pack("<I", len(text)) + text)


def header_bytes(shape: Shape, fortran: bool, dtype: DType) -> bytes:
    """Return the header that NumPy writes, in the lowest format version that can represent it."""
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
            stacklevel=1,
        )
        return _third_version(words)
    warnings.warn(
        "Stored array in format 2.0. It can only be read by NumPy >= 1.9",
        UserWarning,
        stacklevel=1,
    )
    return made.getvalue()


def _third_version(words: dict[str, Any]) -> bytes:
    """Return a header in UTF-8; NumPy has no function for it without writing an array."""
    text = "{" + "".join([f"'{key}': {value!r}, " for key, value in sorted(words.items())]) + "}"
    shape = words["shape"]
    if shape:
        text += " " * (21 - len(repr(shape[-1 if words["fortran_order"] else 0])))
    body = text.encode("utf-8")
    lead = len(npy_format.MAGIC_PREFIX) + 2 + 4
    padding = npy_format.ARRAY_ALIGN - (lead + len(body) + 1) % npy_format.ARRAY_ALIGN
    body += b" " * padding + b"\n"
    return npy_format.magic(3, 0) + struct.pack("<I", len(body)) + body
