"""The operations, one file a family; importing a file registers what it implements."""

from distarray.ops import (
    contractions,
    conversion,
    creation,
    elementwise,
    grids,
    metadata,
    ranges,
    ufuncs,
)

__all__ = [
    "contractions",
    "conversion",
    "creation",
    "elementwise",
    "grids",
    "metadata",
    "ranges",
    "ufuncs",
]
