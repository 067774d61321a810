"""Library functions and modules whose side effects are known."""

import builtins
from typing import Any

__all__ = [
    "PURE_BUILTINS",
    "effect_of_builtin",
    "is_pure_import",
    "is_pure_library",
    "pure_name",
]

#: Python builtins that change at most their arguments, and return the same on every rank.
PURE_BUILTINS = frozenset(
    {
        "abs", "all", "any", "ascii", "bin", "callable", "chr", "divmod", "format", "getattr",
        "hasattr", "hash", "hex", "isinstance", "issubclass", "iter", "len", "max", "min", "next",
        "oct", "ord", "pow", "repr", "round", "sorted", "sum",
        *[name for name, value in vars(builtins).items() if isinstance(value, type)],
    }
)  # fmt: skip
#: Modules that only compute: a function may call its arguments, and has no other side effect.
_MODULES = frozenset(
    {
        "_bisect", "_collections", "_decimal", "_functools", "_operator", "_statistics", "_struct",
        "abc", "base64", "binascii", "bisect", "builtins", "calendar", "cmath", "collections",
        "collections.abc", "colorsys", "dataclasses", "datetime", "decimal", "difflib", "enum",
        "fractions", "functools", "hashlib", "heapq", "html", "ipaddress", "itertools", "json",
        "keyword", "math", "numbers", "operator", "re", "statistics", "string", "struct",
        "textwrap", "typing", "unicodedata", "urllib.parse", "zlib",
    }
)  # fmt: skip
#: Packages that only compute, with all their modules.
_PACKAGES = (
    "numpy.", "distarray.numpy.", "distarray.ops.", "distarray.array.", "distarray.random.",
    "scipy.constants.", "scipy.fft.", "scipy.integrate.", "scipy.interpolate.", "scipy.linalg.",
    "scipy.ndimage.", "scipy.optimize.", "scipy.signal.", "scipy.spatial.", "scipy.special.",
    "scipy.stats.", "distarray.creation.", "distarray.scipy.", "json.", "collections.",
)  # fmt: skip
#: Functions of these libraries that use files, or state shared between calls. If each rank calls a
#: function independently, it may read a file before rank 0 has written it.
_EFFECTIVE = frozenset(
    {
        "dump", "fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap", "open_memmap",
        "printoptions", "save", "savetxt", "savez", "savez_compressed", "set_printoptions",
        "set_string_function", "setbufsize", "seterr", "seterrcall", "tofile",
    }
)  # fmt: skip
#: Names in modules of random numbers that only create generators.
_GENERATORS = frozenset(
    {
        "BitGenerator",
        "Generator",
        "MT19937",
        "PCG64",
        "PCG64DXSM",
        "Philox",
        "RandomState",
        "SFC64",
        "SeedSequence",
        "default_rng",
    }
)


def is_pure_library(module: Any) -> bool:
    """Return True if a module belongs to a library that only computes."""
    return isinstance(module, str) and (
        module in _MODULES or f"{module}.".startswith(_PACKAGES) or module == "numpy"
    )


def pure_name(module: str, name: str) -> bool:
    """Return True if a function of such a library changes at most its arguments."""
    if "random" in module.split("."):
        return name in _GENERATORS
    return name not in _EFFECTIVE


def is_pure_import(module: str) -> bool:
    """Return True if a pure function may import a module: the module has no side effects."""
    return module in _MODULES or module == "scipy.special"


def effect_of_builtin(function: Any, name: str) -> str | None:
    """Return the side effect of a function written in C, or None."""
    module, own = function.__module__, function.__name__
    if module == "builtins" or module is None:
        pure = own in PURE_BUILTINS or module is None
    else:
        pure = is_pure_library(module) and pure_name(module, own)
    return None if pure else f"it calls {name}"
