"""Distributed array, registry of operations, and constructors and redistribution of arrays."""

from distarray.array.core import DistArray, single, wrap
from distarray.array.creation import (
    as_distarray,
    common_mesh,
    default_layout,
    distribute,
    empty,
    from_section,
    grown_layout,
    placed_layout,
    to_layout,
)
from distarray.array.fallback import NEAREST, fall_back
from distarray.array.from_blocks import from_blocks, from_local
from distarray.array.ladder import call
from distarray.array.registry import (
    FUNCTIONS,
    UFUNC_METHODS,
    Objects,
    implements,
    implements_method,
    register_function,
    register_ufunc,
)
from distarray.array.speedups import adopted
from distarray.comm import warned_lines

__all__ = [
    "FUNCTIONS",
    "NEAREST",
    "UFUNC_METHODS",
    "DistArray",
    "Objects",
    "as_distarray",
    "call",
    "common_mesh",
    "default_layout",
    "distribute",
    "empty",
    "fall_back",
    "from_blocks",
    "from_local",
    "from_section",
    "grown_layout",
    "implements",
    "implements_method",
    "placed_layout",
    "register_function",
    "register_ufunc",
    "single",
    "to_layout",
    "wrap",
]

adopted.adopt(DistArray)
warned_lines.install()
