"""Inventories of NumPy's and Python's manuals, for builds that cannot reach them."""

from __future__ import annotations

import builtins
import types
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

__all__ = ["mapping", "numpy_names", "python_names"]

NUMPY, PYTHON = "https://numpy.org/doc/stable/", "https://docs.python.org/3/"
#: Name, role and page of an object.
Found = tuple[str, str, str]
#: Types that have a section of their own among the standard types.
_STANDARD = ("bytes", "bytearray", "dict", "frozenset", "list", "memoryview", "range", "set")


def mapping(directory: Path) -> dict[str, tuple[str, tuple[None, str]]]:
    """What `intersphinx_mapping` is: each manual's own inventory first, then the one made here."""
    directory.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, place, names in (
        ("numpy", NUMPY, numpy_names()),
        ("python", PYTHON, python_names()),
    ):
        path = directory / f"{name}.inv"
        path.write_bytes(inventory(name, names))
        found[name] = (place, (None, str(path)))
    return found


def numpy_names() -> Iterator[Found]:
    """What NumPy's reference has a page of: the names of its main namespaces."""
    for space, folder in (
        (np, "generated"),
        (np.linalg, "generated"),
        (np.fft, "generated"),
        (np.strings, "generated"),
        (np.random, "random/generated"),
    ):
        for name in space.__all__:
            value = getattr(space, name)
            if isinstance(value, types.ModuleType):
                continue
            full = f"{space.__name__}.{name}"
            role = "class" if isinstance(value, type) else "function"
            yield full, role, f"reference/{folder}/{full}.html"
    for name in dir(np.ndarray):
        if not name.startswith("_"):
            full = f"numpy.ndarray.{name}"
            role = "method" if callable(getattr(np.ndarray, name)) else "attribute"
            yield full, role, f"reference/generated/{full}.html"
    for name in dir(np.random.Generator):
        if not name.startswith("_"):
            full = f"numpy.random.Generator.{name}"
            yield full, "method", f"reference/random/generated/{full}.html"


def python_names() -> Iterator[Found]:
    """Python's functions, types and exceptions that need no import."""
    for name, value in vars(builtins).items():
        if name.startswith("_") or not callable(value):
            continue
        if isinstance(value, type) and issubclass(value, BaseException):
            yield name, "exception", "library/exceptions.html"
        elif isinstance(value, type):
            page = "stdtypes" if name in (*_STANDARD, "str", "tuple") else "functions"
            yield name, "class", f"library/{page}.html"
        else:
            yield name, "function", "library/functions.html"


def inventory(project: str, names: Iterator[Found]) -> bytes:
    """An inventory as Sphinx reads it."""
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    lines = [f"{name} py:{role} 1 {page}#$ -\n" for name, role, page in sorted(set(names))]
    return head.encode() + zlib.compress("".join(lines).encode())
