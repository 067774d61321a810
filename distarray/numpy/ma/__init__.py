"""NumPy's names for masked arrays: ``distarray.numpy.ma``.

The data and the mask of a masked array are distributed arrays, and share memory as in NumPy.
"""

import sys
from importlib import import_module
from typing import Any

import numpy.ma

from distarray.masked.arrays import adapt
from distarray.masked.executing import executed

core = sys.modules[f"{__name__}.core"] = executed("numpy.ma.core")
adapt(core)
extras = sys.modules[f"{__name__}.extras"] = executed("numpy.ma.extras")

__all__ = list(numpy.ma.__all__)
globals().update({name: getattr(core, name) for name in core.__all__})
globals().update({name: getattr(extras, name) for name in extras.__all__})


def __getattr__(name: str) -> Any:
    if name in ("mrecords", "testutils"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
