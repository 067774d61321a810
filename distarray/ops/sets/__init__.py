"""Sets: distinct elements, and what two arrays have in common."""

from distarray.ops.sets import algebra, unique

__all__ = ["algebra", "unique"]
