"""How many of NumPy's functions are implemented, composed of others, or fall back.

*Composed* is what touches no block and sends nothing by itself: its code, as far as it is its own,
calls distributed functions only. That is read off the code, so that nobody has to say it.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from distarray.array import FUNCTIONS
from distarray.coverage_ledger import entries, ufuncs
from distarray.ops.random import Generator

__all__ = ["CLASSES", "class_of", "counts", "is_composed", "summary"]

CLASSES = ("implemented", "composed", "falls back")
#: What is touched by code that works on blocks.
_LOWER = frozenset({"block", "to_local", "layout", "group", "subgroup", "xp", "mesh"})
#: What of the array floor is of use to any function.
_READING = frozenset({"as_distarray", "common_mesh", "call", "implements"})
_SPACES = {"linalg": "numpy.linalg.", "fft": "numpy.fft."}
#: Modules of NumPy's with functions of their own, none of the four namespaces.
_OTHERS = ("numpy.char.", "numpy.strings.", "numpy.lib.")


@cache
def _implementations() -> frozenset[Any]:
    return frozenset([_plain(row.function) for row in FUNCTIONS.values()])


def _plain(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


@lru_cache(maxsize=1024)
def is_composed(function: Callable[..., Any]) -> bool:
    """Whether an implementation is written with other distributed functions alone."""
    function = _plain(function)
    return isinstance(function, FunctionType) and not _works_on_blocks(function, set())


def _works_on_blocks(function: FunctionType, seen: set[Any]) -> bool:
    seen.add(function)
    for code in _codes(function.__code__):
        if _LOWER.intersection(code.co_names):
            return True
        for found in _used(code, function.__globals__):
            module = getattr(found, "__module__", None) or ""
            if found in seen or not module.startswith("distarray."):
                continue
            if not module.startswith("distarray.ops."):
                if getattr(found, "__name__", "") not in _READING:
                    return True
            elif found not in _implementations() and _works_on_blocks(found, seen):
                return True
    return False


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _used(code: CodeType, names: dict[str, Any]) -> Iterator[FunctionType]:
    """The functions that code names, also as ``module.function``."""
    modules = []
    for name in code.co_names:
        found = _plain(names.get(name))
        if isinstance(found, FunctionType):
            yield found
        elif isinstance(found, ModuleType) and found.__name__.startswith("distarray."):
            modules.append(found)
    for module in modules:
        for name in code.co_names:
            found = _plain(getattr(module, name, None))
            if isinstance(found, FunctionType):
                yield found


def counts() -> dict[str, Counter[str]]:
    """Functions by namespace and class; "main", "linalg", "fft", "random" and "other"."""
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


def class_of(implementation: Callable[..., Any] | None) -> str:
    """One of `CLASSES`."""
    if implementation is None:
        return "falls back"
    return "composed" if is_composed(implementation) else "implemented"


def _generator_methods() -> dict[str, Any]:
    """The methods of NumPy's Generator, and ours where we have one."""
    names = [name for name in dir(np.random.Generator) if not name.startswith("_")]
    return {name: vars(Generator).get(name, getattr(Generator, name, None)) for name in names}


def summary() -> str:
    """The counts as a table."""
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
