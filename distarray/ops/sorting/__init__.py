"""Sorting and searching: one parallel sort, and what is made of it."""

from distarray.ops.sorting import arrangements, partitions, searching

__all__ = ["arrangements", "partitions", "searching"]
