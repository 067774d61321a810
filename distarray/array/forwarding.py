"""Operators, methods and attributes of arrays of a program's own classes.

Methods that are ufuncs or folds of ufuncs pass their results to ``__array_wrap__``. Other methods
that return a new array pass it to ``__array_finalize__``. The remaining methods are the plain
array's. Operators are ufuncs.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy._core.umath import clip as _clip  # type: ignore[attr-defined] # no public ufunc

from distarray.array.core import DistArray
from distarray.array.dressing import bare, bare_all, finished, is_dressed, wrapped
from distarray.array.operators import yields
from distarray.typing import ArrayLike, Out

__all__ = ["REFLECTED", "fill_in"]

Finish = Callable[[Any, Any], Any]


def _by_wrap(self: ArrayLike, found: ArrayLike) -> Any:
    return wrapped(self, found) if is_dressed(self) else found


def _as_is(self: ArrayLike, found: ArrayLike) -> Any:
    return found


_MADE_OF_IT = [
    "reshape",
    "ravel",
    "flatten",
    "transpose",
    "swapaxes",
    "squeeze",
    "diagonal",
    "repeat",
    "take",
    "compress",
    "choose",
    "copy",
    "astype",
    "getfield",
    "byteswap",
    "redistribute",
    "to_device",
    "argsort",
    "argpartition",
    "argmax",
    "argmin",
]
_WRAPPED = [
    "sum",
    "prod",
    "any",
    "all",
    "max",
    "min",
    "mean",
    "std",
    "var",
    "cumsum",
    "cumprod",
    "round",
    "trace",
]
_FINISH: dict[str, Finish] = dict.fromkeys(_MADE_OF_IT, finished)
_FINISH |= dict.fromkeys(_WRAPPED, _by_wrap)
_ATTRIBUTES: dict[str, Finish] = dict.fromkeys(("T", "mT", "real", "imag"), finished)
#: Special methods that are forwarded.
_SPECIAL = frozenset(
    [
        "__bool__",
        "__int__",
        "__float__",
        "__complex__",
        "__index__",
        "__len__",
        "__round__",
        "__dlpack__",
        "__dlpack_device__",
        "__array_interface__",
        "__array_struct__",
        "__array_namespace__",
    ]
)
#: Names that belong to the class itself.
_OWN = frozenset(
    [
        "_lent",
        "_mirror",
        "_natural",
        "_storage",
        "plain_type",
        "waits",
        "is_constant",
        "has_buffer",
        "from_local",
    ]
)


def fill_in(kind: type) -> None:
    """Add the attributes of DistArray that a class lacks, forwarded to the plain array."""
    for name, method in {**_operators(), **_METHODS}.items():
        setattr(kind, name, method)
    for name in dir(DistArray):
        is_special = name.startswith("__") and name not in _SPECIAL
        if name in vars(kind) or name in _OWN or is_special:
            continue
        if callable(getattr(DistArray, name)):
            setattr(kind, name, _forwarding(name, _FINISH.get(name, _as_is)))
        else:
            setattr(kind, name, _attribute(name, _ATTRIBUTES.get(name, _as_is)))


def _forwarding(name: str, finish: Finish) -> Callable[..., Any]:
    def method(self: DistArray, *args: ArrayLike, **kwargs: ArrayLike) -> Any:
        out = kwargs.get("out")
        found = getattr(bare(self), name)(*bare_all(args), **bare_all(kwargs))
        if is_dressed(out) and found is bare(out):
            return out
        return finish(self, found)

    method.__name__ = name
    method.__doc__ = f"As :meth:`numpy.ndarray.{name}`."
    return method


def _attribute(name: str, finish: Finish) -> property:
    def ask(self: DistArray) -> Any:
        return finish(self, getattr(bare(self), name))

    def put(self: DistArray, value: ArrayLike) -> None:
        setattr(bare(self), name, bare(value))

    return property(ask, put, None, f"As :attr:`numpy.ndarray.{name}`.")


# -- methods that are ufuncs -----------------------------------------------------------------------


def clip(
    self: DistArray,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    out: Out = None,
    **kwargs: Any,
) -> Any:
    """Limit values to an interval, as :func:`numpy.clip`."""
    if min is None and max is None:
        np.empty(0).clip(**kwargs)  # raises NumPy's error, if any
        return self
    if min is None or max is None:
        act: Any = np.minimum if min is None else np.maximum
        return act(self, max if min is None else min, out=out, **kwargs)
    return _clip(self, min, max, out=out, **kwargs)


def conj(self: DistArray, out: Out = None) -> Any:
    """Return the complex conjugate, as :func:`numpy.conjugate`."""
    if out is None and self.dtype.kind in "biuf":
        return self
    act: Any = np.conjugate
    return act(self, out=out)


def dot(self: DistArray, b: ArrayLike, out: Out = None) -> Any:
    """Compute the dot product, as :func:`numpy.dot`."""
    act: Any = np.dot
    return act(self, b, out=out)


_METHODS = {"clip": clip, "conj": conj, "conjugate": conj, "dot": dot}

# -- operators -------------------------------------------------------------------------------------

_TWO: dict[str, np.ufunc] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "truediv": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.remainder, "lshift": np.left_shift,
    "rshift": np.right_shift, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "matmul": np.matmul, "pow": np.power, "divmod": np.divmod,
}  # fmt: skip
_COMPARISONS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_ONE = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}
#: Name of the right operand's method for each ufunc that is an operator.
REFLECTED: dict[Any, str] = {ufunc: f"__r{name}__" for name, ufunc in _TWO.items()}
REFLECTED |= {np.less: "__gt__", np.less_equal: "__ge__", np.greater: "__lt__"}
REFLECTED |= {np.greater_equal: "__le__", np.equal: "__eq__", np.not_equal: "__ne__"}


def _forward(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda self, other: NotImplemented if yields(other) else ufunc(self, other)


def _backward(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda self, other: ufunc(other, self)


def _in_place(ufunc: np.ufunc) -> Callable[..., Any]:
    return lambda self, other: ufunc(self, other, out=(self,))


def _unary(ufunc: np.ufunc) -> Callable[..., Any]:
    def operate(self: DistArray) -> Any:  # a ufunc itself would not become a method
        return ufunc(self)

    return operate


def _equality(name: str, ufunc: np.ufunc) -> Callable[..., Any]:
    act: Any = getattr(operator, name)

    def compare(self: DistArray, other: ArrayLike) -> Any:
        if yields(other):
            return NotImplemented
        kinds = {self.dtype.kind, getattr(getattr(other, "dtype", None), "kind", "")}
        if "V" not in kinds:
            try:
                return ufunc(self, other)
            except TypeError:
                pass  # types that cannot be compared
        return finished(self, act(bare(self), bare(other)))

    return compare


def _operators() -> dict[str, Any]:
    found: dict[str, Any] = {"__hash__": DistArray.__hash__}
    for name, ufunc in _TWO.items():
        found[f"__{name}__"], found[f"__r{name}__"] = _forward(ufunc), _backward(ufunc)
        if name != "divmod":
            found[f"__i{name}__"] = _in_place(ufunc)
    found |= {f"__{name}__": _forward(ufunc) for name, ufunc in _COMPARISONS.items()}
    found |= {f"__{name}__": _unary(ufunc) for name, ufunc in _ONE.items()}
    found |= {"__eq__": _equality("eq", np.equal), "__ne__": _equality("ne", np.not_equal)}
    return found
