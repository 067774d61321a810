"""Sets: distinct elements, and comparisons of the elements of two arrays."""

from distarray.ops.sets import algebra, unique

__all__ = ["algebra", "unique"]
