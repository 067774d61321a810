"""NumPy's functions for tests of masked arrays."""

from typing import Any

from distarray.masked.executing import executed

_module: Any = executed("numpy.ma.testutils")
__all__ = list(_module.__all__)
globals().update({name: getattr(_module, name) for name in __all__})
