"""Sorting and searching."""

from distarray.ops.sorting import partition, search, sort

__all__ = ["partition", "search", "sort"]
