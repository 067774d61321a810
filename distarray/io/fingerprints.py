"""Fingerprints of arguments: texts that are equal on two ranks if the arguments are equal."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from distarray.array import DistArray
from distarray.comm.same_call import Argument
from distarray.io.file_paths import absolute_path
from distarray.layout import Placement
from distarray.typing import Array, ArrayLike, DType

__all__ = [
    "described",
    "has_exact_bytes",
    "options_said",
    "path_said",
    "value_words",
]

_PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    slice,
    range,
    type(None),
    type(Ellipsis),
    Placement,
)
#: Type codes without padding or references, so that every byte belongs to the value.
_EXACT = frozenset("?bBhHiIlLqQpPefdFDSUmM")


def _array_words(x: DistArray) -> str:
    """Return the text of data type, layout and ranks of a distributed array."""
    return f"{x.dtype} {x.layout} on {x.mesh.ranks}"


def value_words(value: ArrayLike) -> str:
    """Return the fingerprint of an array; for an array that is not distributed, with its values."""
    if isinstance(value, DistArray):
        return _array_words(value)
    found = np.asarray(value)
    return f"{found.dtype} {found.shape}, {_values(found)}"


def has_exact_bytes(dtype: DType) -> bool:
    """Return True if equal values of a type have equal bytes."""
    return dtype.char in _EXACT


def _values(found: Array) -> str:
    """Return the text of the value of a 0-d array, or of a checksum of the values."""
    if not found.ndim and has_exact_bytes(found.dtype):
        return repr(found[()])
    if not found.nbytes or not has_exact_bytes(found.dtype):
        return "not distributed"
    whole = np.ascontiguousarray(found).reshape(-1).view(np.uint8)
    return f"not distributed, CRC-32 {crc32(whole.data):08x}"


def path_said(path: str) -> Argument:
    """Return the comparison of the path, which must be equal on all ranks."""
    return Argument(
        "the ranks name different files",
        repr(absolute_path(path)),
        "the ranks of a mesh read or write one file together; give the same path on all ranks, or "
        "a mesh of one rank for a file of its own",
    )


def options_said(options: Mapping[str, Any]) -> list[Argument]:
    """Return the comparisons of the arguments of a call, in the order of their names."""
    return [
        Argument(f"{name} on rank {{rank}} differs from that on rank 0", described(value))
        for name, value in sorted(options.items())
    ]


def described(value: object) -> str:
    """Return a text that is equal for equal arguments; for objects of other types the type."""
    if isinstance(value, (np.generic, np.ndarray, DistArray)):
        return value_words(value)
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, os.PathLike):
        return repr(os.fspath(value))
    if isinstance(value, Mapping):
        pairs = sorted(f"{described(key)}: {described(item)}" for key, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(map(described, value)))}}}"
    if isinstance(value, Sequence):
        return f"[{', '.join(map(described, value))}]"
    if isinstance(value, np.dtype):
        return f"dtype {value}"
    return getattr(value, "__qualname__", type(value).__qualname__)
