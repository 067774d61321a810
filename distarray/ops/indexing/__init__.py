"""Indexing and selection under NumPy's names; :mod:`distarray.engines.indexing` does the work."""

from distarray.ops.indexing import (
    along,
    conditions,
    diagonals,
    getset,
    nonzeros,
    positions,
    selection,
    take,
    triangles,
)

__all__ = [
    "along",
    "conditions",
    "diagonals",
    "getset",
    "nonzeros",
    "positions",
    "selection",
    "take",
    "triangles",
]
