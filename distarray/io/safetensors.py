"""Safetensors files, and Hugging Face models of several such files with an index.

A file consists of eight bytes with the length of the header, the header in JSON, and the tensors in
C order. Nothing in a file can run code. Every offset is checked against the shapes and the size of
the file before a tensor is read.
"""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from distarray.array import DistArray
from distarray.comm import DeviceMesh
from distarray.comm.files import STRETCH
from distarray.comm.progress import advance
from distarray.errors import DamagedFileError
from distarray.io.contents import Contents, Lazy
from distarray.io.contiguous import runs
from distarray.io.ordinary_files import check_ordinary
from distarray.io.output_files import Target, store
from distarray.layout import Box
from distarray.lazy import needs
from distarray.typing import Array, DType, Shape

__all__ = ["open_file", "write_file"]

#: Largest header that the format allows, in bytes.
_HEADER = 100_000_000
#: Maximum size of rows that are read whole, in bytes: many small reads cost more than an exchange.
_ROW = 1 << 16
_NUMPY = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1", "C64": "<c8",
}  # fmt: skip
#: Data types of ml_dtypes, which NumPy itself does not have.
_ML = {
    "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip
_ALIGNMENT = 8


class _Entry(NamedTuple):
    """Entry for one tensor in a header."""

    dtype: DType
    shape: Shape
    #: Offset of the first byte in the file.
    offset: int


class _Stored:
    """Tensor that is read."""

    def __init__(self, file: BinaryIO, path: str, entry: _Entry) -> None:
        self._file, self._path, self._offset = file, path, entry.offset
        self.dtype, self.shape = entry.dtype, entry.shape
        row = entry.dtype.itemsize * (entry.shape[-1] if entry.shape else 1)
        small = len(entry.shape) > 1 and row <= _ROW
        self.chunks = (*(1,) * (len(entry.shape) - 1), entry.shape[-1]) if small else None

    def read(self, section: Box, out: Array) -> None:
        """Read a box: one stretch of bytes for each piece that is contiguous in the file."""
        if not section:
            self._fill(self._offset, out)
            return
        for offset, key in runs(section, self.shape, self.dtype.itemsize, STRETCH):
            part = out[key]
            if part.flags.c_contiguous:
                self._fill(self._offset + offset, part)
            else:
                found: Array = np.empty(part.shape, part.dtype)
                self._fill(self._offset + offset, found)
                part[...] = found
            advance(part.nbytes)

    def _fill(self, offset: int, part: Array) -> None:
        """Read bytes into a C-contiguous array."""
        view = part.reshape(-1).view(np.uint8).data
        while view:
            count = os.preadv(self._file.fileno(), [view], offset)
            if not count:
                raise _damaged(f"{self._path} ends at byte {offset}, within a tensor")
            view, offset = view[count:], offset + count


def open_file(path: str, mesh: DeviceMesh) -> Contents:
    """Return the tensors of a file, or of all files that an index names.

    Parameters
    ----------
    path : str
        ``*.safetensors``, or ``*.safetensors.index.json``.
    mesh : DeviceMesh
        Not used: each rank opens the files by itself.

    Raises
    ------
    ValueError
        If the file is not a safetensors file, or its header is wrong.
    """
    with ExitStack() as stack:
        if path.endswith(".json"):
            arrays, attrs = _indexed(path, stack)
        else:
            arrays, attrs = _single(path, stack)
        return Contents(arrays, attrs, close=stack.pop_all().close)


def _single(path: str, stack: ExitStack) -> tuple[Mapping[str, _Stored], dict[str, Any]]:
    check_ordinary(path)  # an index may name any entry of its directory, also a pipe
    file = stack.enter_context(Path(path).open("rb"))  # noqa: SIM115
    entries, attrs = _header(file, path)
    return Lazy(entries, lambda name: _Stored(file, path, entries[name])), attrs


def _indexed(path: str, stack: ExitStack) -> tuple[Mapping[str, _Stored], dict[str, Any]]:
    """Open the files of a model that an index lists; return tensors and attributes."""
    with Path(path).open("rb") as file:
        index = _json(file.read(_HEADER + 1), path)
    places = index.get("weight_map")
    if not isinstance(places, dict) or not all(map(_is_file_name, places.values())):
        raise _damaged(f"{path}: weight_map must give each tensor a file of this directory")
    files = {
        name: _single(str(Path(path).parent / name), stack)[0]
        for name in dict.fromkeys(places.values())
    }
    for tensor, name in places.items():
        if tensor not in files[name]:
            raise _damaged(f"{path}: {name} has no tensor {tensor!r}, which the index says it has")
    attrs = index.get("metadata")
    return Lazy(places, lambda tensor: files[places[tensor]][tensor]), (
        attrs if isinstance(attrs, dict) else {}
    )


def _is_file_name(name: object) -> bool:
    """Return True if an object is a text that names a file in the same directory."""
    return isinstance(name, str) and name == os.path.basename(name) and name.strip(".") != ""


def _json(data: bytes, path: str) -> dict[str, Any]:
    try:
        found = json.loads(data, object_pairs_hook=lambda pairs: _distinct(pairs, path))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise _damaged(f"{path} is no safetensors file or index: {error}") from None
    if not isinstance(found, dict):
        raise _damaged(f"{path} is no safetensors file or index: its JSON is no object")
    return found


def _damaged(words: str) -> DamagedFileError:
    return DamagedFileError(f"{words}; write it again, or read a copy")


def _distinct(pairs: list[tuple[str, Any]], path: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _damaged(f"{path}: a name occurs twice in its header")
    return found


def _header(file: BinaryIO, path: str) -> tuple[dict[str, _Entry], dict[str, Any]]:
    """Read a header; return the tensors, checked against the file's size, and the attributes."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = int.from_bytes(start, "little")
    if len(start) < 8 or length > min(_HEADER, size - 8):
        raise _damaged(
            f"{path} is no safetensors file, or is truncated: it has {size} bytes and begins with "
            f"the length of its header, {length}"
        )
    described = _json(file.read(length), path)
    attrs = described.pop("__metadata__", {})
    entries, spans = {}, []
    for name, about in described.items():
        entries[name], span = _entry(name, about, 8 + length, path)
        spans.append(span)
    _check_spans(spans, size - 8 - length, path)
    return entries, attrs if isinstance(attrs, dict) else {}


def _entry(
    name: str, about: Mapping[str, Any], body: int, path: str
) -> tuple[_Entry, tuple[int, int]]:
    """Parse one tensor of a header; return it with its first and last byte in the body."""
    try:
        kind, shape = about["dtype"], tuple(about["shape"])
        first, last = about["data_offsets"]
        counts = (*shape, first, last)
    except (TypeError, KeyError, ValueError):
        raise _damaged(f"{path}: the header says nothing sensible of {name!r}") from None
    if not all(type(count) is int and count >= 0 for count in counts):
        raise _damaged(f"{path}: {name!r} has shape {shape}, offsets {first} and {last}")
    dtype = _dtype(kind, name, path)
    if last - first != dtype.itemsize * prod(shape):
        raise _damaged(
            f"{path}: {name!r} of shape {shape} and type {kind} does not have {last - first} bytes"
        )
    return _Entry(dtype, shape, body + first), (first, last)


def _dtype(kind: object, name: str, path: str) -> DType:
    if isinstance(kind, str) and kind in _NUMPY:
        return np.dtype(_NUMPY[kind])
    if isinstance(kind, str) and kind in _ML:
        found: DType = np.dtype(getattr(needs("ml_dtypes"), _ML[kind]))
        return found
    raise ValueError(f"{path}: {name!r} has type {kind!r}; known are {', '.join([*_NUMPY, *_ML])}")


def _check_spans(spans: list[tuple[int, int]], size: int, path: str) -> None:
    """Raise if tensors overlap or leave holes in the body, which could contain hidden data."""
    at = 0
    for first, last in sorted(spans):
        if first != at:
            raise _damaged(f"{path}: tensors overlap or leave a hole at byte {at} of the body")
        at = last
    if at != size:
        raise _damaged(
            f"{path} is truncated, or not what its header says: the tensors take {at} bytes, and "
            f"the file has {size} for them"
        )


def write_file(
    path: str,
    arrays: Mapping[str, DistArray],
    mesh: DeviceMesh,
    *,
    attrs: Mapping[str, str] | None = None,
) -> None:
    """Write a file of tensors, completely or not at all; each rank writes its blocks; collective.

    Parameters
    ----------
    path : str
        The file, replaced if it exists.
    arrays : mapping of str to DistArray
        The arrays by name.
    mesh : DeviceMesh
        The mesh whose ranks write.
    attrs : mapping of str to str, optional
        Attributes of the file.

    Raises
    ------
    TypeError
        If the format does not support the data type of an array, or an attribute is not a text.
    """
    if "" in arrays or "__metadata__" in arrays:
        raise TypeError(
            f"{path}: tensors have names, other than '__metadata__'; write {{'name': array}}"
        )
    header, order = _described(arrays, attrs or {})
    if mesh.coords is not None:
        store(Target(path), [header, *[_native(arrays[name].plain()) for name in order]], mesh)


def _native(x: DistArray) -> DistArray:
    """Convert an array to the byte order of the format."""
    return x.astype(x.dtype.newbyteorder("<")) if x.dtype.byteorder == ">" else x


def _described(
    arrays: Mapping[str, DistArray], attrs: Mapping[str, str]
) -> tuple[bytes, list[str]]:
    """Return the header, preceded by its length, and the array names in the order of the file."""
    if not all(isinstance(text, str) for item in attrs.items() for text in item):
        raise TypeError(f"attributes of a safetensors file are text, not {dict(attrs)}")
    about: dict[str, Any] = {"__metadata__": dict(attrs)} if attrs else {}
    at = 0
    # The widest types first, as in the reference library, so that all tensors are aligned.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    for name in order:
        x = arrays[name]
        end = at + x.nbytes
        about[name] = {"dtype": _kind(name, x), "shape": x.shape, "data_offsets": (at, end)}
        at = end
    text = json.dumps(about, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, order


def _kind(name: str, x: DistArray) -> str:
    """Return the format's name of an array's data type."""
    for kind, text in _NUMPY.items():
        if x.dtype.newbyteorder("<") == np.dtype(text):
            return kind
    for kind, known in _ML.items():
        if x.dtype.name == known:
            return kind
    raise TypeError(
        f"{name} has dtype {x.dtype}, which safetensors has no type for; convert it with "
        "x.astype(...)"
    )
