"""Modules of NumPy, executed a second time with distributed arrays in place of NumPy's."""

import builtins
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from importlib import import_module
from importlib.util import find_spec
from types import CodeType, FunctionType, ModuleType
from typing import Any, cast

import numpy

from distarray.array import DistArray, default_layout
from distarray.comm import default_mesh
from distarray.masked.converter import Converter, numpy_module
from distarray.typing import ArrayLike, DTypeLike, ShapeLike

__all__ = ["executed", "facade", "source_of"]

_real_import = builtins.__import__
_ROOMS = ("", ".fft", ".linalg", ".random")
#: Modules that are executed again; a `Facade` replaces the names in every other NumPy module.
_EXECUTED = frozenset(
    {
        "numpy._core.fromnumeric",
        "numpy._core.function_base",
        "numpy._core.numeric",
        "numpy._core.records",
        "numpy._core.shape_base",
        "numpy.lib._arraypad_impl",
        "numpy.lib._arraysetops_impl",
        "numpy.lib._function_base_impl",
        "numpy.lib._index_tricks_impl",
        "numpy.lib._nanfunctions_impl",
        "numpy.lib._shape_base_impl",
        "numpy.lib._twodim_base_impl",
        "numpy.lib._type_check_impl",
        "numpy.lib._ufunclike_impl",
        "numpy.ma.core",
        "numpy.ma.extras",
        "numpy.ma.mrecords",
        "numpy.ma.testutils",
        "numpy.matrixlib.defmatrix",
    }
)
#: Attributes that the source reads, and the attributes of our arrays to read instead. The source
#: only compares memory addresses for equality, and the result must not depend on the rank.
_RENAMED = {"__array_interface__": "_beginning"}
#: Replacements in some functions only, which view NumPy's scalars as masked arrays.
_RENAMED_IN = {
    "MaskedArray.all": {"filled": "_viewable"},
    "MaskedArray.any": {"filled": "_viewable"},
    "MaskedArray.dtype": {"ndarray": "_numpys_ndarray"},
    "MaskedArray.max": {"filled": "_viewable"},
    "MaskedArray.min": {"filled": "_viewable"},
    "MaskedArray.round": {"_data": "_viewable_data"},
    "MaskedArray.take": {"_data": "_viewable_data"},
    "MaskedArray.var": {"divide": "_viewable_quotient"},
    "MaskedIterator.__getitem__": {"dataiter": "_viewable_items"},
}
_modules: dict[str, ModuleType] = {}


class _TypeOf(type):
    """`type` of the executed modules: a plain distributed array has the type `ndarray`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) != 1:
            return type(*args, **kwargs)
        found = type(args[0])
        if found is numpy.ma.MaskedArray:
            return numpy_module().ma.MaskedArray
        plain = issubclass(found, DistArray) and not found.is_dressed
        return numpy_module().ndarray if plain else found

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, type)


class _Type(metaclass=_TypeOf):
    """`type` as the executed modules see it."""


@lru_cache(maxsize=1)
def _counterparts() -> dict[int, tuple[Any, Any]]:
    """Return pairs (NumPy's object, ours) by the ``id`` of NumPy's, which the pair keeps alive."""
    found = {}
    for room in _ROOMS:
        theirs = import_module(f"numpy{room}")
        ours = getattr(numpy_module(), room[1:]) if room else numpy_module()
        for name in ours.__all__:
            real, mine = getattr(theirs, name, None), getattr(ours, name)
            if real is not None and real is not mine and not isinstance(real, (int, str)):
                found[id(real)] = real, _documented(mine, real)
    for real in (numpy.empty, numpy.ones, numpy.zeros):
        found[id(real)] = real, _cut_like_numbers(found[id(real)][1])
    found[id(numpy.unique)] = numpy.unique, _of_distributed(numpy.unique)
    for real, mine in (
        (_known("_array_converter"), Converter),
        (_known("_unique_hash"), _not_here),
    ):
        found[id(real)] = real, mine
    return found


def _known(name: str) -> Any:
    """Return a private C function of NumPy; None if this NumPy version lacks it."""
    return getattr(import_module("numpy._core._multiarray_umath"), name, None)


def _not_here(*args: ArrayLike, **kwargs: ArrayLike) -> Any:
    """Return NotImplemented, in place of an optional C function of NumPy."""
    return NotImplemented


def _cut_like_numbers(make: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator of constructors: cut a mask where an array of floats of that shape would be cut."""

    @wraps(make)
    def call(shape: ShapeLike, dtype: DTypeLike = float, **kwargs: Any) -> Any:
        if numpy.dtype(dtype).char == "?" and "placements" not in kwargs:
            extents = (int(shape),) if hasattr(shape, "__index__") else tuple(shape)
            layout = default_layout(extents, numpy.dtype(float).itemsize, default_mesh())
            if not layout.is_replicated:
                kwargs["placements"] = layout.placements
        return make(shape, dtype, **kwargs)

    return call


def _of_distributed(function: Callable[..., Any]) -> Any:
    """Decorator: convert the first argument, such as a list, so that the result is distributed."""

    @wraps(function)
    def call(first: ArrayLike, *args: ArrayLike, **kwargs: ArrayLike) -> Any:
        if not isinstance(first, DistArray):
            first = numpy_module().asanyarray(first)
        return function(first, *args, **kwargs)

    return call


def _documented(mine: Callable[..., Any], real: Callable[..., Any]) -> Any:
    """Wrap our function with NumPy's docstring, from which the source builds its own."""
    if isinstance(mine, type) or not callable(mine):
        return mine

    @wraps(mine)
    def ours(*args: ArrayLike, **kwargs: ArrayLike) -> Any:
        return mine(*args, **kwargs)

    ours.__doc__ = real.__doc__
    return ours


def _translated(value: Any) -> Any:
    """Return our counterpart of a NumPy object, as the executed modules see it."""
    if isinstance(value, ModuleType):
        return facade(value) if f"{value.__name__}.".startswith("numpy.") else value
    if value is numpy.recarray or value is numpy.matrix:
        return getattr(numpy_module(), value.__name__)
    return _counterparts().get(id(value), (None, value))[1]


class Facade(ModuleType):
    """Module of NumPy as the executed modules see it."""

    def __init__(self, real: ModuleType) -> None:
        vars(self).update(__name__=real.__name__, __doc__=real.__doc__, _real=real)
        if hasattr(real, "__path__"):
            vars(self)["__path__"] = real.__path__

    def __getattr__(self, name: str) -> Any:
        value = _translated(getattr(vars(self)["_real"], name))
        if not name.startswith("__"):
            vars(self)[name] = value
        return value

    def __dir__(self) -> list[str]:
        return dir(vars(self)["_real"])


_facades: dict[str, ModuleType] = {}


def facade(real: ModuleType) -> ModuleType:
    """Return the facade of a NumPy module, or its executed version."""
    name = real.__name__
    if name in _EXECUTED:
        return executed(name)
    if name in ("numpy.ma", "numpy.rec"):
        return cast(ModuleType, getattr(numpy_module(), name.rpartition(".")[2]))
    if name not in _facades:
        _facades[name] = Facade(real)
    return _facades[name]


def _import(
    name: str,
    globals: Mapping[str, object] | None = None,
    locals: Mapping[str, object] | None = None,
    fromlist: Sequence[str] | None = (),
    level: int = 0,
) -> Any:
    """Import a module, as ``__import__`` of the executed modules."""
    if name.startswith("numpy.ma") and not level and not fromlist:
        return _facades.setdefault("numpy", Facade(numpy))
    found = _real_import(name, globals, locals, fromlist or (), level)
    by_c_code = type(fromlist) is list and not fromlist
    if by_c_code or not f"{found.__name__}.".startswith("numpy."):
        return found
    return facade(found)


def executed(name: str) -> ModuleType:
    """Execute a NumPy module with our names, or return it if that has been done.

    Parameters
    ----------
    name : str
        Name of the NumPy module.
    """
    if name.startswith("numpy.ma."):
        numpy_module().ma  # noqa: B018 (which executes them in order)
    if name in _modules:
        return _modules[name]
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module {name!r}", name=name)
    loader: Any = spec.loader
    module = _modules[name] = ModuleType(name)
    vars(module).update(
        __file__=spec.origin,
        __package__=name.rpartition(".")[0],
        __builtins__=vars(builtins) | {"__import__": _import, "type": _Type},
    )
    exec(_renamed(loader.get_code(name)), vars(module))
    return module


def _renamed(code: CodeType) -> CodeType:
    """Replace some attribute names in a code object and its nested code objects."""
    consts = tuple([_renamed(c) if isinstance(c, CodeType) else c for c in code.co_consts])
    others = _RENAMED | _RENAMED_IN.get(code.co_qualname, {})
    names = tuple([others.get(name, name) for name in code.co_names])
    return code.replace(co_consts=consts, co_names=names)


def source_of(func: Callable[..., Any]) -> Any:
    """Return NumPy's implementation of a function in Python, executed with our names, else None."""
    own = getattr(func, "_implementation", None)
    if not isinstance(own, FunctionType):
        return None
    home = own.__globals__["__name__"]
    if home not in _EXECUTED:
        return None
    found = getattr(executed(home), own.__name__, None)
    return getattr(found, "_implementation", None)
