"""Ledger of NumPy's functions and ufuncs: implementations, classes, and a table of counts.

Every dispatchable function is in exactly one class. It is *implemented* if the registry has a row
for it. It is *composed* if, in addition, its code calls only distributed functions: the function
itself reads no block and sends no message. This is determined from its code. Otherwise it *falls
back*, for the reason listed in `REASONS`: its operands are gathered, and NumPy's result is
distributed, within the limits of `config.fallback` and `config.fallback_limit`.
"""

import importlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from inspect import unwrap
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.char
import numpy.fft
import numpy.lib.recfunctions
import numpy.polynomial
import numpy.strings
from numpy.testing import overrides

import distarray.io.numpy_functions
import distarray.ops  # noqa: F401 (both register rows)
from distarray.array import FUNCTIONS
from distarray.ops.random import Generator

__all__ = [
    "CLASSES",
    "REASONS",
    "Entry",
    "class_of",
    "counts",
    "dispatchable",
    "entries",
    "is_composed",
    "summary",
    "ufuncs",
]

Function = Callable[..., object]

CLASSES = ("implemented", "composed", "falls back")

#: Reason for falling back -> names of its functions, each with its module.
REASONS: dict[str, str] = {
    "Structured arrays are taken apart by fields, one field at a time: x['name'].": """
        numpy.lib.recfunctions.append_fields numpy.lib.recfunctions.apply_along_fields
        numpy.lib.recfunctions.assign_fields_by_name numpy.lib.recfunctions.drop_fields
        numpy.lib.recfunctions.find_duplicates numpy.lib.recfunctions.join_by
        numpy.lib.recfunctions.merge_arrays numpy.lib.recfunctions.rec_append_fields
        numpy.lib.recfunctions.rec_drop_fields numpy.lib.recfunctions.rec_join
        numpy.lib.recfunctions.recursive_fill_fields numpy.lib.recfunctions.rename_fields
        numpy.lib.recfunctions.repack_fields numpy.lib.recfunctions.require_fields
        numpy.lib.recfunctions.stack_arrays numpy.lib.recfunctions.structured_to_unstructured
        numpy.lib.recfunctions.unstructured_to_structured
    """,
    "NumPy makes arrays of its own of the points: call polyval for x, then for y.": """
        numpy.polynomial.polynomial.polygrid2d numpy.polynomial.polynomial.polyval2d
    """,
}

#: Attribute names that only code working on blocks reads.
_LOWER = frozenset({"block", "to_local", "layout", "group", "subgroup", "xp"})
#: Functions of `distarray.array` that composed functions may call.
_READING = frozenset({"as_distarray", "call", "check_out", "common_mesh", "implements"})
#: Modules with helper functions; the code of a helper shows whether it works on blocks.
_HELPERS = (
    "distarray.ops.",
    "distarray.engines.",
    "distarray.array.probes",
    "distarray.array.views",
)

#: Namespaces of the table, each with the prefix of its functions' names.
_SPACES = {"linalg": "numpy.linalg.", "fft": "numpy.fft."}
#: NumPy's modules outside the four namespaces of the table.
_OTHERS = ("numpy.char.", "numpy.strings.", "numpy.lib.")


# -- the ledger -----------------------------------------------------------------------------------


class Entry(NamedTuple):
    """Entry for one NumPy function: its implementation or the reason why it falls back.

    Attributes
    ----------
    name : str
        The function's name with its module.
    implementation : callable or None
        The function of this package that is called instead.
    reason : str or None
        The reason why the NumPy function falls back.
    """

    name: str
    implementation: Function | None
    reason: str | None


def dispatchable() -> dict[str, Function]:
    """Return by name the functions that NumPy dispatches on the type of an array."""
    found = {}
    for function in overrides.get_overridable_numpy_array_functions():
        module, name = function.__module__, function.__name__
        public = getattr(importlib.import_module(module), name, None)
        if public is not function:  # the module's function may be a wrapper
            public = getattr(public, "__wrapped__", None)
        if public is function and not name.startswith("_"):
            found[f"{module}.{name}"] = function
    return dict(sorted(found.items()))


def ufuncs() -> dict[str, np.ufunc]:
    """Return NumPy's ufuncs by name."""
    named = {f"numpy.{name}": value for name, value in vars(np).items()}
    found = {name: value for name, value in named.items() if isinstance(value, np.ufunc)}
    return dict(sorted(found.items()))


def entries() -> list[Entry]:
    """Return the ledger of the dispatchable functions, ordered by name."""
    reasons = {name: reason for reason, names in REASONS.items() for name in names.split()}
    ledger = []
    for name, function in dispatchable().items():
        row = FUNCTIONS.get(function)
        ledger.append(Entry(name, None if row is None else row.function, reasons.get(name)))
    return ledger


# -- composed functions ---------------------------------------------------------------------------


def class_of(implementation: Callable[..., Any] | None) -> str:
    """Return the class of a function with this implementation: one of `CLASSES`."""
    if implementation is None:
        return "falls back"
    return "composed" if is_composed(implementation) else "implemented"


@cache
def _implementations() -> frozenset[Any]:
    return frozenset([unwrap(row.function) for row in FUNCTIONS.values()])


@lru_cache(maxsize=1024)
def is_composed(function: Callable[..., Any]) -> bool:
    """Return True if an implementation calls only other distributed functions."""
    function = unwrap(function)
    return isinstance(function, FunctionType) and not _works_on_blocks(function, set())


def _works_on_blocks(function: FunctionType, seen: set[FunctionType]) -> bool:
    """Return True if a function, or a helper that it calls, reads a block or sends a message."""
    seen.add(function)
    for code in _codes(function.__code__):
        if _LOWER.intersection(code.co_names):
            return True
        for found in _used(code, function.__globals__):
            module = getattr(found, "__module__", None) or ""
            if found in seen or not module.startswith("distarray."):
                continue
            if not module.startswith(_HELPERS):
                if getattr(found, "__name__", "") not in _READING:
                    return True
            elif found not in _implementations() and _works_on_blocks(found, seen):
                return True
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code objects of a function and of its nested functions."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _used(code: CodeType, names: dict[str, Any]) -> Iterator[FunctionType]:
    """Yield the functions that a code object refers to, also as ``module.function``."""
    modules = []
    for name in code.co_names:
        named: Any = names.get(name)
        found = unwrap(named)
        if isinstance(found, FunctionType):
            yield found
        elif isinstance(found, ModuleType) and found.__name__.startswith("distarray."):
            modules.append(found)
    for module in modules:
        for name in code.co_names:
            named = getattr(module, name, None)
            found = unwrap(named)
            if isinstance(found, FunctionType):
                yield found


# -- the table ------------------------------------------------------------------------------------


def counts() -> dict[str, Counter[str]]:
    """Count functions by namespace ("main", "linalg", "fft", "random", "other") and class."""
    found = {name: Counter[str]() for name in ("main", "linalg", "fft", "random", "other")}
    for entry in entries():
        found[_space(entry.name)][class_of(entry.implementation)] += 1
    for method in _generator_methods().values():
        found["random"]["implemented" if method is not None else "falls back"] += 1
    return found


def _space(name: str) -> str:
    for space, prefix in _SPACES.items():
        if name.startswith(prefix):
            return space
    return "other" if name.startswith(_OTHERS) else "main"


def _generator_methods() -> dict[str, Any]:
    """Return NumPy's Generator methods by name, each with this package's method or None."""
    names = [name for name in dir(np.random.Generator) if not name.startswith("_")]
    return {name: vars(Generator).get(name, getattr(Generator, name, None)) for name in names}


def summary() -> str:
    """Return the counts as the text of a table."""
    head = f"{'namespace':<18}" + "".join([f"{name:>13}" for name in CLASSES]) + f"{'total':>8}"
    lines = [head]
    names = {
        "main": "numpy",
        "linalg": "numpy.linalg",
        "fft": "numpy.fft",
        "random": "random.Generator",
        "other": "strings, records",
    }
    for space, found in counts().items():
        row = "".join([f"{found[name]:>13}" for name in CLASSES])
        lines.append(f"{names[space]:<18}{row}{found.total():>8}")
    lines.append(f"ufuncs, with their methods: {len(ufuncs())}")
    return "\n".join(lines)
