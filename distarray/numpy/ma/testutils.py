"""NumPy's test functions for masked arrays: ``distarray.numpy.ma.testutils``."""

from typing import Any

from distarray.masked.executing import executed

_module: Any = executed("numpy.ma.testutils")
__all__ = list(_module.__all__)
globals().update({name: getattr(_module, name) for name in __all__})
