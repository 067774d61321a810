"""Tools for testing distributed programs: strategies for layouts, comparison with NumPy.

The strategies need `hypothesis` (extra ``test``).
"""

from typing import Any

from distarray.lazy import lazy_names, needs

_DRAWN = "distarray.testing.strategies"
_WHERE = {
    "DTYPES": _DRAWN,
    "Recipe": _DRAWN,
    "array_values": _DRAWN,
    "assert_matches": "distarray.testing.compare",
    "assert_same_error": "distarray.testing.compare",
    "mesh_shapes": _DRAWN,
    "recipes": _DRAWN,
    "shapes": _DRAWN,
}

__all__ = list(_WHERE)
_load, __dir__ = lazy_names(__name__, _WHERE)


def __getattr__(name: str) -> Any:
    if _WHERE.get(name) == _DRAWN:
        needs("hypothesis", "test")
    return _load(name)
