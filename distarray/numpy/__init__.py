"""NumPy's names, for programs whose arrays are distributed: ``import distarray.numpy as np``.

Functions that take arrays are NumPy's own; with a DistArray among their arguments they run on all
ranks. Functions that create arrays are distarray's, and create DistArrays on the default mesh (or
on the mesh ``mesh=``, with the placements ``placements=``). Data types and constants are NumPy's.
The names are those of the installed NumPy; ``__init__.pyi`` lists for type checkers the names that
every supported NumPy has.

NumPy modules without support for distributed arrays (`polynomial`, `char`, ...) are NumPy's own;
they gather a DistArray argument, and every rank must make the call.
"""

import sys
from importlib import import_module
from typing import Any

import numpy

# fmt: off
# isort: off
from distarray.array.handing import handing_module, standing_in
from distarray.ops.buffers import frombuffer
from distarray.ops.conversion import (
    array, asanyarray, asarray, asarray_chkfinite, ascontiguousarray, asfortranarray,
    from_dlpack, fromiter, fromstring, require,
)
from distarray.ops.creation import (
    empty, empty_like, eye, full, full_like, identity, ones, ones_like, tri, zeros, zeros_like,
)
from distarray.ops.grids import (
    diag_indices, fromfunction, indices, mask_indices, meshgrid, mgrid, ogrid, tril_indices,
    triu_indices, vander,
)
from distarray.ops.vectorize import vectorize
from distarray.ops.iterating import ndenumerate, nditer
from distarray.ops.metadata import isscalar
from distarray.ops.ndarray import ndarray
from distarray.ops.polynomials import poly, roots
from distarray.ops.ranges import arange, geomspace, linspace, logspace
from distarray.ops.standard import API_VERSION as __array_api_version__
from distarray.ops.standard import NamespaceInfo as __array_namespace_info__
from distarray.ops.standard import argsort, sort
from distarray.ops.index_tricks import c_, r_
from distarray.ops.strided import as_strided as _as_strided
from distarray.masked import namespace as _namespace
from distarray.ops.windows import bartlett, blackman, hamming, hanning, kaiser

# isort: on
# fmt: on
from distarray.lazy import load_operations

load_operations()
_namespace[:] = [sys.modules[__name__]]
#: distarray's own submodules, imported on first use.
_ROOMS = ("fft", "linalg", "ma", "matrixlib", "random", "rec", "testing")
#: Classes whose NumPy source is executed again for distributed arrays -> the submodule.
_CLASSES = {
    "asmatrix": "matrixlib", "bmat": "matrixlib", "matrix": "matrixlib", "recarray": "rec",
}  # fmt: skip
#: Functions that read arrays from files -> their module, imported on first use.
_FILES = {
    "fromfile": "distarray.io.raw_binary", "fromregex": "distarray.io.text",
    "genfromtxt": "distarray.io.text", "load": "distarray.io.numpy_load",
    "loadtxt": "distarray.io.text", "memmap": "distarray.io.memmap",
}  # fmt: skip
#: NumPy's own modules and names outside `__all__`: available, but not exported.
_NUMPY_MODULES = (
    "char", "ctypeslib", "dtypes", "emath", "exceptions", "lib", "polynomial",
    "strings", "typing", "version",
)  # fmt: skip
_NUMPY_NAMES = (
    "__version__", "complex256", "float128", "get_include", "info", "record", "show_config",
    "show_runtime",
)  # fmt: skip
#: Functions of NumPy's modules that need NumPy arrays: they gather DistArray arguments.
_HANDED = {"char": ("array", "asarray")}
_LEFT_OUT = {
    *_NUMPY_MODULES,
    "ma",
    "rec",
    *_CLASSES,
    *_NUMPY_NAMES,
    "core",
    "f2py",
    "test",
    "testing",
}

__all__ = [name for name in numpy.__all__ if name not in _LEFT_OUT]
__all__ += ["__array_api_version__"]
globals().update(
    {name: getattr(numpy, name) for name in {*__all__} - {*globals(), *_ROOMS, *_FILES}}
)


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"distarray.numpy.{name}")
    if name in _CLASSES:
        value = globals()[name] = getattr(__getattr__(_CLASSES[name]), name)
        return value
    if name in _FILES:
        value = globals()[name] = getattr(import_module(_FILES[name]), name)
        return value
    if name in _HANDED:
        value = globals()[name] = handing_module(getattr(numpy, name), *_HANDED[name])
        return value
    if name == "lib":
        tricks = standing_in(numpy.lib.stride_tricks, as_strided=_as_strided)
        value = globals()[name] = standing_in(numpy.lib, stride_tricks=tricks)
        return value
    if name in _NUMPY_MODULES or (name in _NUMPY_NAMES and hasattr(numpy, name)):
        return getattr(numpy, name)
    raise AttributeError(f"module 'distarray.numpy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_NUMPY_MODULES, *_NUMPY_NAMES, *_CLASSES, *_ROOMS])
