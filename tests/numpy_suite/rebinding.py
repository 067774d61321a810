"""Test files of NumPy's that get `distarray.numpy` where they say `numpy`.

A test file names NumPy's objects in many ways: ``np.array``, ``from numpy import array``,
``from numpy._core.multiarray import array``. All of them are the same object, so one table by
identity is enough: where an object has a counterpart in `distarray.numpy`, the file gets that.
"""

import builtins
import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy
import numpy.ma.mrecords
import numpy.ma.testutils
import numpy.matrixlib
import numpy.rec

import distarray
import distarray.numpy
import distarray.numpy.ma.mrecords
from distarray.masked.executing import facade

_real_import = builtins.__import__
HOME = Path(numpy.__file__).parent
_TESTS = re.compile(r"numpy\.([\w.]+\.)?tests\.test_\w+")
#: Assertions about calls.
_CALLING = re.compile("assert_(raises|warns|no_)")
_ROOMS = ("", ".fft", ".linalg", ".matrixlib", ".random", ".rec")


def gathered(value: Any) -> Any:
    """A value with NumPy's arrays where it has ours, inside containers, too."""
    if isinstance(value, distarray.DistArray):
        if isinstance(value, distarray.numpy.ma.MaskedArray):
            return value.full()
        whole = numpy.asarray(value)
        return whole if value.ndim else whole[()]
    if type(value) in (list, tuple):
        return type(value)([gathered(item) for item in value])
    if type(value) is dict:
        return {key: gathered(item) for key, item in value.items()}
    return value


def _of_gathered(compare: Callable[..., Any]) -> Callable[..., Any]:
    """A comparison of NumPy's that takes our arrays, wherever they stand in its arguments."""

    @functools.wraps(compare)
    def comparison(*args: Any, **kwargs: Any) -> Any:
        return compare(*gathered(args), **gathered(kwargs))

    return comparison


def _comparisons() -> Iterator[tuple[Any, Any]]:
    for module in (numpy.testing, numpy.ma.testutils):
        for name, function in vars(module).items():
            if name.startswith("assert_") and not _CALLING.match(name):
                yield function, _of_gathered(function)


def _pairs() -> Iterator[tuple[Any, Any]]:
    for room in _ROOMS:
        theirs = importlib.import_module(f"numpy{room}")
        ours = importlib.import_module(f"distarray.numpy{room}")
        for name in ours.__all__:
            real = getattr(theirs, name, None)
            mine = getattr(ours, name)
            if real is not None and real is not mine and not isinstance(real, (int, str)):
                yield real, mine


#: The counterpart by the number of NumPy's object, which is kept alive beside it.
COUNTERPARTS = {id(real): (real, mine) for real, mine in (*_comparisons(), *_pairs())}


class Facade(ModuleType):
    """A module of NumPy's as the test files see it."""

    def __init__(self, real: ModuleType, ours: ModuleType | None = None) -> None:
        own = object.__getattribute__(self, "__dict__")
        own.update(__name__=real.__name__, __doc__=real.__doc__, _real=real, _ours=ours or real)
        for name in ("__path__", "__file__"):
            if hasattr(real, name):
                own[name] = getattr(real, name)

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":  # some tests look through all ufuncs of a module
            return {name: getattr(self, name) for name in dir(self)}
        return super().__getattribute__(name)

    def __getattr__(self, name: str) -> Any:
        if name == "HAS_REFCOUNT":  # a file's own switch: how often our array is referred to
            return False
        own = object.__getattribute__(self, "__dict__")
        value = getattr(own["_ours"], name, own)
        if value is own:
            value = getattr(own["_real"], name)
        return translated(value)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._real, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._real, name)

    def __dir__(self) -> list[str]:
        return dir(self._real)


_facades: dict[str, Facade] = {}


def translated(value: Any) -> Any:
    """What stands for an object of NumPy's in a test file."""
    if not isinstance(value, ModuleType):
        return COUNTERPARTS.get(id(value), (None, value))[1]
    name = value.__name__.replace("distarray.numpy", "numpy", 1)
    if not f"{name}.".startswith("numpy.") or _TESTS.match(name):
        return value
    if name not in _facades:
        room = name.removeprefix("numpy")
        ours = importlib.import_module(f"distarray.numpy{room}") if room in _ROOMS else value
        if room.startswith(".ma") and room != ".ma.testutils":
            ours = facade(sys.modules[name])
        _facades[name] = Facade(sys.modules[name], ours)
    return _facades[name]


def rebound_import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """``__import__`` of the test files."""
    found = _real_import(name, globals, locals, fromlist or (), level)
    by_c_code = type(fromlist) is list and not fromlist
    return found if by_c_code else translated(found)


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = vars(builtins) | {"__import__": rebound_import}
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.rpartition(".")[2].startswith("test_"):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or not is_test(Path(spec.origin)):
            return None
        spec.loader = _Loader(fullname, spec.origin)
        return spec


def is_test(path: Path) -> bool:
    """Whether a file is one of NumPy's tests; some of their directories are no packages."""
    return HOME in path.parents and path.parent.name == "tests"


def is_rebound(module: ModuleType) -> bool:
    """Whether a test file has got its names from here."""
    return isinstance(module.__dict__["__builtins__"], dict) and (
        module.__dict__["__builtins__"].get("__import__") is rebound_import
    )


def install() -> None:
    """Rebind the test files that are imported from now on."""
    sys.meta_path.insert(0, _Finder())
