"""The operations, one file a family; importing a file registers what it implements."""

from distarray.ops import (
    contractions,
    conversion,
    creation,
    elementwise,
    extremes,
    grids,
    indexing,
    metadata,
    nanfunctions,
    ranges,
    reductions,
    scans,
    statistics,
    ufunc_methods,
    ufuncs,
)

__all__ = [
    "contractions",
    "conversion",
    "creation",
    "elementwise",
    "extremes",
    "grids",
    "indexing",
    "metadata",
    "nanfunctions",
    "ranges",
    "reductions",
    "scans",
    "statistics",
    "ufunc_methods",
    "ufuncs",
]
