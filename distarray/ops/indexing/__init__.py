"""Indexing and selection under NumPy's names, implemented in :mod:`distarray.engines.indexing`."""

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
