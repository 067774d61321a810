"""Testing distributed programs: ranks as threads, drawn layouts, comparison with NumPy.

Needs `hypothesis` (extra ``test``) for the strategies.
"""

import distarray.ops  # noqa: F401 (an array without its operations is of no use)
from distarray.testing.compare import assert_matches, assert_same_error
from distarray.testing.strategies import (
    DTYPES,
    Recipe,
    array_values,
    mesh_shapes,
    recipes,
    shapes,
)

__all__ = [
    "DTYPES",
    "Recipe",
    "array_values",
    "assert_matches",
    "assert_same_error",
    "mesh_shapes",
    "recipes",
    "shapes",
]
