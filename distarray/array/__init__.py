"""The distributed array, the registry of operations, and how arrays are made and moved."""

from distarray.array.core import DistArray, single, wrap
from distarray.array.creation import (
    as_distarray,
    common_mesh,
    default_layout,
    distribute,
    empty,
    from_section,
    placed_layout,
    to_layout,
)
from distarray.array.fallback import NEAREST, fall_back
from distarray.array.local import from_blocks, from_local
from distarray.array.registry import (
    FUNCTIONS,
    UFUNC_METHODS,
    call,
    implements,
    register_function,
    register_ufunc,
    set_fallback,
)

__all__ = [
    "FUNCTIONS",
    "NEAREST",
    "UFUNC_METHODS",
    "DistArray",
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
    "implements",
    "placed_layout",
    "register_function",
    "register_ufunc",
    "set_fallback",
    "single",
    "to_layout",
    "wrap",
]
