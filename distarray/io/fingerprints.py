"""What is read and written together: the same on all ranks, in one exchange, for all formats."""

import os
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np

from distarray.array import DistArray
from distarray.comm.alike import Said
from distarray.layout import Placement

__all__ = [
    "array_words",
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
#: Kinds of numbers whose bytes all mean something: of others two may be equal and differ in bytes.
_EXACT = frozenset("?bBhHiIlLqQpPefdFDSUmM")


def array_words(x: DistArray) -> str:
    """What an array is like, as far as all ranks know it."""
    return f"{x.dtype} {x.layout} on {x.mesh.ranks}"


def value_words(value: Any) -> str:
    """What is written as an array: of what is not distributed the values count, too."""
    if isinstance(value, DistArray):
        return array_words(value)
    found = np.asarray(value)
    return f"{found.dtype} {found.shape}, {_values(found)}"


def has_exact_bytes(dtype: np.dtype[Any]) -> bool:
    """Whether equal values of a type have equal bytes."""
    return dtype.char in _EXACT


def _values(found: np.ndarray[Any, Any]) -> str:
    """The values, by a checksum where there are many."""
    if not found.ndim and has_exact_bytes(found.dtype):
        return repr(found[()])
    if not found.nbytes or not has_exact_bytes(found.dtype):
        return "not distributed"
    whole: Any = np.ascontiguousarray(found).reshape(-1).view(np.uint8)
    return f"not distributed, CRC-32 {crc32(whole):08x}"


def path_said(path: str) -> Said:
    """The path: a part of another file would be no part of this one."""
    return Said(
        "the ranks name different files",
        repr(os.path.abspath(path) if "://" not in path else path),
        "they do together what is done with one; give the same path on all ranks, or a mesh of one "
        "rank for a file of its own",
    )


def options_said(options: Mapping[str, Any]) -> list[Said]:
    """Arguments of a call by name."""
    return [
        Said(f"{name} on rank {{rank}} differs from that on rank 0", described(value))
        for name, value in sorted(options.items())
    ]


def described(value: Any) -> str:
    """An argument in words that are the same wherever it is equal; of objects their type."""
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
