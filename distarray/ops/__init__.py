"""The operations, one file a family; importing a file registers what it implements."""

from distarray.ops import ufuncs

__all__ = ["ufuncs"]
