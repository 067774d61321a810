"""Conversion of distributed arrays for libraries that accept only NumPy's own arrays.

Most libraries accept any object with ``__array__``. Some check the type, and would refuse a
distributed array or treat it as a sequence of objects. When the program has imported one of these,
some of its functions and methods are replaced. The replacements convert each argument to the object
that NumPy would pass: a sharded array to a gathered copy, a replicated array to its own memory, so
that writes to it take effect.
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import numpy.ctypeslib

from distarray.array import DistArray
from distarray.array.handing import handing
from distarray.runner.imports import belongs_to_program, when_imported

__all__ = ["install"]

#: Library -> the modules to cover, with names in them: "*" for the functions of the module, a class
#: for the methods of it and of its bases, else a function or a method.
_COVERED: dict[str, dict[str, tuple[str, ...]]] = {
    "pandas": {
        "pandas": ("*", "DataFrame", "Series", "Index", "RangeIndex", "DatetimeIndex"),
        "pandas.core.indexing": ("_LocIndexer", "_iLocIndexer", "_AtIndexer", "_iAtIndexer"),
        "pandas.core.groupby.generic": ("DataFrameGroupBy", "SeriesGroupBy"),
        "pandas.core.arrays.categorical": ("Categorical",),
        "pandas.core.indexes.multi": ("MultiIndex",),
        "pandas.core.window.rolling": ("Rolling",),
    },
    "scipy.sparse": {"scipy.sparse": ("diags", "diags_array")},
    "PIL.Image": {"PIL.Image": ("*", "Image")},
    "networkx": {
        "networkx": ("Graph", "DiGraph", "MultiGraph", "MultiDiGraph"),
    },
    "numba": {
        "numba.core.registry": ("CPUDispatcher.__call__",),
        "numba.np.ufunc.dufunc": ("DUFunc.__call__",),
        "numba.np.ufunc.gufunc": ("GUFunc.__call__",),
    },
    "joblib.hashing": {"joblib.hashing": ("Hasher.save", "NumpyHasher.save")},
    "joblib.numpy_pickle": {"joblib.numpy_pickle": ("NumpyPickler.save",)},
}
#: Special methods that receive no arrays.
_OTHERS = frozenset({"__class_getitem__", "__getattr__", "__init_subclass__", "__setstate__"})
#: Flags of code that takes any number of arguments.
_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def install() -> None:
    """Cover the libraries when the program imports them, and NumPy's conversion for ctypes."""
    pointer: Any = numpy.ctypeslib._ctypeslib._ndptr
    pointer.from_param = classmethod(_pointing(pointer.from_param.__func__))
    for library in _COVERED:
        when_imported(library, partial(_cover, library))
    when_imported("unittest.mock", _patch_ours)


def _patch_ours(mock: ModuleType) -> None:
    """Make ``mock.patch("numpy.sum")`` in the program patch the NumPy that the program imports."""
    real = vars(mock).get("_get_target")
    if real is None:
        return

    def _get_target(target: Any) -> Any:
        ours = isinstance(target, str) and belongs_to_program(sys._getframe(2))
        if ours and target.partition(".")[0] == "numpy":
            target = f"distarray.{target}"
        return real(target)

    vars(mock)["_get_target"] = _get_target


def _pointing(real: Callable[[type, Any], Any]) -> Callable[[type, Any], Any]:
    def from_param(cls: type, obj: Any) -> Any:
        if isinstance(obj, DistArray):
            if not obj.layout.is_whole:
                raise TypeError(
                    f"{obj.summary()} has no address, since it is spread over the ranks; hand C "
                    "code a copy, x.full(), or this rank's block, x.to_local()"
                )
            obj = np.asarray(obj)
        return real(cls, obj)

    return from_param


def _cover(library: str, _: ModuleType) -> None:
    for name, members in _COVERED[library].items():
        module = sys.modules.get(name)
        if module is not None:
            for member in members:
                _cover_member(module, member)


def _cover_member(module: ModuleType, member: str) -> None:
    top = module.__name__.partition(".")[0]
    if member == "*":
        for name in [name for name in vars(module) if not name.startswith("_")]:
            _replace(module, name, f"{top}.{name}")
        return
    name, _, method = member.partition(".")
    cls = getattr(module, name, None)
    if method and cls is not None:
        setattr(cls, method, handing(getattr(cls, method), f"{top}.{name}"))
    elif isinstance(cls, FunctionType):
        _replace(module, name, f"{top}.{name}")
    elif isinstance(cls, type):
        for owner, found in _methods(cls, top):
            _replace(owner, found, f"{top}.{name}.{found}")


def _methods(cls: type, top: str) -> Iterator[tuple[type, str]]:
    """Yield the methods of a class and of its bases in the same library that may receive arrays."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == top:
            for name in list(vars(base)):
                special = name.startswith("__") and name not in _OTHERS
                if special or not name.startswith("_"):
                    yield base, name


def _replace(owner: type | ModuleType, name: str, whom: str) -> None:
    """Replace a function of a module or a class, once."""
    found = vars(owner)[name]
    bare = found.__func__ if isinstance(found, (classmethod, staticmethod)) else found
    if type(bare) is not FunctionType or bare.__globals__.get("__name__") == __name__:
        return
    code = bare.__code__
    takes = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & _VARIADIC)
    if takes < 1 + (isinstance(owner, type) and not isinstance(found, staticmethod)):
        return  # only `self`
    call = handing(bare, whom)
    setattr(owner, name, call if bare is found else type(found)(call))
