"""Indexing and selection under NumPy's names; :mod:`distarray.engines.indexing` does the work."""

from distarray.ops.indexing import (
    conditions,
    diagonals,
    getitem,
    multi_index,
    nonzeros,
    take,
    take_along_axis,
    triangles,
    where,
)

__all__ = [
    "conditions",
    "diagonals",
    "getitem",
    "multi_index",
    "nonzeros",
    "take",
    "take_along_axis",
    "triangles",
    "where",
]
