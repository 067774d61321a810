"""Side effects of user functions: changes that a call may make besides its result.

A loop may be divided among the ranks if the program cannot observe that each rank has made only
some of the calls. This holds if the function is NumPy's, or jitted by numba, or if its code changes
no object and its closure, globals, defaults and attributes contain only immutable values and
functions of the same kind. Such a function is called pure. The search executes no user code.
"""

import functools
import gc
import operator
from collections.abc import Callable, Iterable
from enum import Enum
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, NamedTuple, TypeVar

import numpy as np

from distarray.array.immutable import is_immutable
from distarray.engines.folds import calls_python
from distarray.engines.mapping.code_effects import read_code
from distarray.engines.mapping.known_effects import (
    PURE_BUILTINS,
    effect_of_builtin,
    is_pure_library,
    pure_name,
)

__all__ = ["Verdict", "is_marked", "judge", "pure"]

#: Name of the attribute by which `pure` marks a function.
_MARK = "_distarray_pure"
F = TypeVar("F", bound=Callable[..., Any])


def pure(function: F) -> F:
    """Mark a function as pure: a call has no side effect besides its result.

    Loops over elements and lines (:class:`numpy.vectorize`, :func:`numpy.frompyfunc`,
    :func:`numpy.apply_along_axis`, ``np.pad(mode=function)``) are divided among the ranks if their
    function is pure. A function with a side effect, such as filling a list, is called by every rank
    for all elements. Most functions need no mark: their code shows that they are pure. A function
    that reads a dictionary or an array from outside needs the mark, since it might write to it.

    Parameters
    ----------
    function : callable
        The function. Each call runs on one rank: it must not communicate, and changes that it makes
        to objects from outside are lost on the other ranks.

    Returns
    -------
    callable
        The function itself, or a :class:`functools.partial` of it if it accepts no attributes.

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> table = {0: 1.5, 1: 2.5}
    >>> @distarray.pure
    ... def look_up(key):
    ...     return table[key]
    >>> np.vectorize(look_up)(np.array([1, 0, 1])).full()
    array([2.5, 1.5, 2.5])
    """
    marked: Any = function
    try:
        setattr(marked, _MARK, True)
    except AttributeError:
        marked = functools.partial(function)
        setattr(marked, _MARK, True)
    result: F = marked
    return result


class Verdict(NamedTuple):
    """Result of a search for side effects.

    Attributes
    ----------
    effect : str or None
        The possible side effect of the function; None if it is pure.
    same : bool
        True if the verdict is certainly the same on all ranks: the function is pure, and the search
        has found no None, in whose place other ranks may have another object.
    """

    effect: str | None
    same: bool


def judge(function: Any, given: Iterable[Any] = ()) -> Verdict:
    """Check whether a function is pure and its further arguments `given` are immutable."""
    search = _Search()
    effect = search.effect(function, f"`{getattr(function, '__name__', 'the function')}`")
    if effect is None and not _is_known(function):
        effect = search.first_effect([("an argument", value) for value in given])
    return Verdict(effect, effect is None and not search.met_none)


def is_marked(value: Any) -> bool:
    """Return True if a function has been marked by `pure`."""
    return _MARK in getattr(value, "__dict__", ())


def _is_known(function: Any) -> bool:
    """Return True if a function is marked or from a known library: it changes no argument then."""
    if is_marked(function) or isinstance(function, (BuiltinFunctionType, np.ufunc)):
        return True
    return is_pure_library(getattr(function, "__module__", None))


class _Search:
    """Search for side effects among the objects that a function refers to, each object once."""

    def __init__(self) -> None:
        self.met_none = False
        self._seen: dict[int, Any] = {}

    def effect(self, value: Any, name: str) -> str | None:
        """Return the side effect that a value, found by a name, makes possible, or None."""
        if is_immutable(value):
            self.met_none = self.met_none or value is None
            return None
        if id(value) in self._seen or is_marked(value):
            return None
        self._seen[id(value)] = value
        for kinds, rule in _RULES:
            if isinstance(value, kinds):
                return rule(self, value, name)
        kind = type(value)
        if kind.__module__.partition(".")[0] == "numba":  # jitted
            return None
        if kind.__module__ == "numpy" and kind.__name__ == "_ArrayFunctionDispatcher":
            return self.library(value, name)
        return f"{name} is or holds a {_described(kind)}, which may change"

    def first_effect(self, named: Iterable[tuple[str, Any]]) -> str | None:
        """Return the first effect of several values."""
        for name, value in named:
            found = self.effect(value, name)
            if found is not None:
                return found
        return None

    def library(self, value: Any, name: str) -> str | None:
        """Return the effect of a function of a library."""
        return None if pure_name(value.__module__, value.__name__) else f"it calls `{name}`"

    def of_function(self, function: Any, name: str) -> str | None:
        """Return the effect of a function written in Python."""
        if is_pure_library(function.__globals__.get("__name__")):
            return self.library(function, name)
        facts = read_code(function.__code__)
        if facts.effect is not None:
            return facts.effect
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        held = [(f"a default value of {name}", value) for value in defaults]
        held += [(f"{name}.{key}", value) for key, value in function.__dict__.items()]
        found = self.first_effect(held)
        if found is not None:
            return found
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for path in facts.reads:
            found = self._of_path(path, function, cells)
            if found is not None:
                return found
        return None

    def _of_path(self, path: tuple[str, ...], function: Any, cells: dict[str, Any]) -> str | None:
        """Return the effect of the object that a name and attributes, ``a.b.c``, refer to."""
        name = path[0]
        if name in cells:
            try:
                value = cells[name].cell_contents
            except ValueError:  # not assigned yet
                return None
        elif name in function.__globals__:
            value = function.__globals__[name]
        elif name in PURE_BUILTINS or is_immutable(function.__builtins__.get(name)):
            return None
        else:
            return f"it calls `{name}`"
        for attribute in path[1:]:
            if not isinstance(value, ModuleType):
                return self._of_attribute(value, name, attribute)
            name = f"{name}.{attribute}"
            try:
                value = getattr(value, attribute)
            except AttributeError:  # the call will raise the same error
                return None
        return self.effect(value, f"`{name}`")

    def _of_attribute(self, value: Any, name: str, attribute: str) -> str | None:
        """Return the effect of an attribute of an object that is no module."""
        if isinstance(value, type) and attribute in ("now", "today", "utcnow"):
            return f"it calls `{name}.{attribute}`"
        return self.effect(value, f"`{name}`")

    def of_builtin(self, function: Any, name: str) -> str | None:
        """Return the effect of a function, or of a method of an object, written in C."""
        owner = function.__self__
        if owner is None or isinstance(owner, (ModuleType, type)):
            return effect_of_builtin(function, name)
        return self.effect(owner, name)

    def of_method(self, method: MethodType, name: str) -> str | None:
        """Return the effect of a method of an object or of a class."""
        return self.first_effect([(name, method.__self__), (name, method.__func__)])

    def of_partial(self, call: Any, name: str) -> str | None:
        """Return the effect of a :class:`functools.partial`: of its function and arguments."""
        held = (call.func, *call.args, *call.keywords.values(), *call.__dict__.values())
        return self.first_effect([(name, value) for value in held])

    def of_ufunc(self, ufunc: np.ufunc, name: str) -> str | None:
        """Return the effect of a ufunc: that of the Python function it calls, if there is one."""
        if not calls_python(ufunc) or ufunc.__class__ is not np.ufunc:
            return None
        behind = [found for found in gc.get_referents(ufunc) if callable(found)]
        if not behind:
            return f"{name} is a ufunc, and nobody can read the code behind it"
        return self.first_effect([(name, found) for found in behind])

    def of_vectorized(self, function: Any, name: str) -> str | None:
        """Return the effect of the function that a `numpy.vectorize` object calls."""
        return self.effect(function.pyfunc, name)

    def of_items(self, items: Any, name: str) -> str | None:
        """Return the effect of a tuple or a frozen set."""
        if getattr(items, "__dict__", None):
            return f"{name} has attributes, which may change"
        return self.first_effect([(name, item) for item in items])

    def of_array(self, values: Any, name: str) -> str | None:
        """Return the effect of a NumPy array: None if it owns its memory and is read-only."""
        if values.flags.writeable or values.base is not None or values.dtype.hasobject:
            return f"{name} is an array, which may change"
        return None

    def of_class(self, kind: Any, name: str) -> str | None:
        """Return the effect of a class: that of its attributes."""
        if is_pure_library(kind.__module__) or issubclass(kind, Enum):
            return None
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return None
        for base in kind.__mro__:
            if is_pure_library(base.__module__):
                continue
            if type(base).__module__ not in ("builtins", "abc") or not base.__flags__ & _IN_PYTHON:
                return f"nobody can read the code of {name}, the class {_described(kind)}"
            held = [(f"{name}.{key}", value) for key, value in vars(base).items()]
            found = self.first_effect([item for item in held if _counts(*item)])
            if found is not None:
                return found
        return None

    def of_wrapped(self, method: Any, name: str) -> str | None:
        """Return the effect of a static method, a class method or a property."""
        if isinstance(method, property):
            parts = [f for f in (method.fget, method.fset, method.fdel) if f is not None]
            return self.first_effect([(name, part) for part in parts])
        return self.effect(method.__func__, name)

    def of_module(self, module: ModuleType, name: str) -> str | None:
        """Return the effect of a module that is used as a value: it may call any function in it."""
        return f"it hands on the module {name}"

    def nothing(self, value: Any, name: str) -> None:
        """Return None: a call of the value changes at most its arguments."""


#: Type flag of classes that are created at run time (Py_TPFLAGS_HEAPTYPE).
_IN_PYTHON = 1 << 9
#: Names of class attributes with Python's own metadata.
_BOOKKEEPING = frozenset(
    {
        "__annotations__", "__annotate_func__", "__annotations_cache__", "__dataclass_fields__",
        "__dataclass_params__", "__dict__", "__doc__", "__weakref__", "__orig_bases__",
        "__parameters__", "__abstractmethods__", "_abc_impl", "__static_attributes__",
        "__type_params__",
    }
)  # fmt: skip
_DESCRIPTORS = frozenset({"getset_descriptor", "member_descriptor"})


def _counts(name: str, value: Any) -> bool:
    """Return True if a class attribute must be searched: it is no metadata and no slot."""
    own = name.rpartition(".")[2] in _BOOKKEEPING
    return not own and type(value).__name__ not in _DESCRIPTORS


def _described(kind: type) -> str:
    module = kind.__module__
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"


_Rule = Callable[[_Search, Any, str], str | None]
_RULES: tuple[tuple[Any, _Rule], ...] = (
    (FunctionType, _Search.of_function),
    (BuiltinFunctionType, _Search.of_builtin),
    (np.ufunc, _Search.of_ufunc),
    (MethodType, _Search.of_method),
    (MethodWrapperType, _Search.of_builtin),
    ((MethodDescriptorType, WrapperDescriptorType), _Search.nothing),
    (functools.partial, _Search.of_partial),
    (np.vectorize, _Search.of_vectorized),
    ((operator.itemgetter, operator.attrgetter, operator.methodcaller), _Search.nothing),
    ((tuple, frozenset), _Search.of_items),
    (np.ndarray, _Search.of_array),
    (type, _Search.of_class),
    ((staticmethod, classmethod, property), _Search.of_wrapped),
    (ModuleType, _Search.of_module),
)
