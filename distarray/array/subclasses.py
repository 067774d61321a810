"""Base of a program's own array classes, with ndarray's support of subclasses.

An array of such a class is a :class:`~distarray.DistArray`, and contains a plain array. Operations
are carried out on the plain array. Results get the class by ``__array_finalize__`` or
``__array_wrap__``, as NumPy documents.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from distarray.array import printing
from distarray.array.core import DistArray
from distarray.array.dressing import (
    Context,
    bare,
    bare_all,
    dressed,
    finished,
    first_of,
    is_class,
    is_dressed,
    plain_array,
    plain_kind,
    wrapped,
)
from distarray.array.forwarding import REFLECTED, fill_in
from distarray.layout import Layout
from distarray.typing import Args, Array, ArrayLike, DTypeLike, Key, Kwargs, Out, ShapeLike

__all__ = ["Subclass", "answer_to", "sources"]


class _Kind(type):
    """Metaclass of programs' classes: arrays of NumPy's class of the same name are instances."""

    def __instancecheck__(cls, instance: object) -> bool:
        own = vars(cls).get("_numpys_own")
        return super().__instancecheck__(instance) or (
            own is not None and isinstance(instance, own)
        )


class Subclass(DistArray, metaclass=_Kind):
    """Base of a program's subclasses of :class:`numpy.ndarray`.

    Methods of ndarray that are called as functions (``ndarray.view(x, kind)``) accept plain arrays,
    too.
    """

    __slots__ = ("_distributed",)

    __array_priority__ = 0.0
    is_dressed = True

    def __new__(cls, *args: ArrayLike, **kwargs: ArrayLike) -> Any:
        """Make an array of this class, with the arguments of :class:`numpy.ndarray`."""
        return dressed(plain_kind[0](*args, **kwargs), cls, None)

    @classmethod
    def _over(cls, x: DistArray, model: ArrayLike) -> Any:
        return dressed(x, cls, model)

    def __init__(self, *args: ArrayLike, **kwargs: ArrayLike) -> None:
        """Do nothing, as in ndarray."""

    def __array_finalize__(self, obj: ArrayLike | None, /) -> None:
        """Do nothing, as in ndarray."""

    def __array_wrap__(
        self, arr: ArrayLike, context: Context = None, return_scalar: bool = False, /
    ) -> Any:
        """Return the result of a ufunc in the class of the array."""
        return arr if type(arr) is type(self) else dressed(bare(arr), type(self), self)

    # -- state ----------------------------------------------------------------------------------

    @property
    def block(self) -> Any:
        """This rank's block."""
        return bare(self).block

    @block.setter
    def block(self, block: Array) -> None:
        self._distributed.block = block

    @property
    def layout(self) -> Any:
        """Placement of every element."""
        return bare(self).layout

    @layout.setter
    def layout(self, layout: Layout) -> None:
        self._distributed.layout = layout

    @property
    def mesh(self) -> Any:  # type: ignore[override]
        """Ranks that hold the array."""
        return bare(self).mesh

    @property
    def _beginning(self) -> Any:
        return bare(self)._beginning

    @property
    def shape(self) -> Any:
        """Shape of the global array."""
        return self._distributed.shape

    @shape.setter
    def shape(self, shape: ShapeLike) -> None:
        self._distributed.shape = shape

    @property
    def dtype(self) -> Any:
        """Data type of the elements."""
        return self._distributed.dtype

    @dtype.setter
    def dtype(self, dtype: DTypeLike) -> None:
        self._distributed.dtype = dtype

    def view(self, *dtype: DTypeLike, **named: DTypeLike) -> Any:
        """Return a view of another data type or class, as :meth:`numpy.ndarray.view`."""
        kind, rest = _asked_for(dtype, named)
        kind = type(self) if kind is None else kind
        if isinstance(kind, type) and issubclass(kind, Subclass):
            made = dressed(bare(self).view(), kind, self)
            for item in rest:
                made.dtype = np.dtype(
                    item
                )  # as NumPy does, so that a setter of the class is called
            return made
        plain = bare(self).view(*rest)
        return plain if kind is DistArray or kind is plain_kind[0] else plain.view(kind)

    # -- protocols ---------------------------------------------------------------------------

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: ArrayLike, **kwargs: Any
    ) -> Any:
        outs = _outs(kwargs)
        if any(_overrides(type(value)) for value in (*inputs, *outs)):
            return NotImplemented
        answer = _reflected(ufunc, inputs) if method == "__call__" and not kwargs else None
        if answer is not None:
            return answer(inputs[1], inputs[0])
        found = getattr(ufunc, method)(*map(bare, inputs), **bare_all(kwargs))
        if method == "at" or found is NotImplemented:
            return found
        context = (ufunc, (*inputs, *outs)) if method == "__call__" else None
        if not isinstance(found, tuple):
            return _result(inputs, found, outs[0] if outs else None, context, 0)
        pairs = zip(found, outs or (None,) * len(found), strict=True)
        return tuple([_result(inputs, *pair, context, i) for i, pair in enumerate(pairs)])

    def __array_function__(
        self, func: Callable[..., Any], types: Collection[type], args: Args, kwargs: Kwargs
    ) -> Any:
        is_numpys = str(func.__module__).startswith("numpy")
        keep = _KEEPING.get(func.__name__) if is_numpys else None
        own = answer_to(func) if is_numpys and keep is None else None
        if own is not None:
            return own(*args, **kwargs)
        found = func(*bare_all(args), **bare_all(kwargs))
        if func.__name__ in _WRAPPED and func.__module__ == "numpy.linalg":
            return _of_linalg(first_of(args), found, _WRAPPED[func.__name__])
        for out in _outs(kwargs):
            if is_dressed(out) and found is out._distributed:
                return out
        return found if keep is None else _kept(found, keep, args, kwargs)

    def __array__(self, dtype: DTypeLike = None, copy: bool | None = None) -> Any:
        return bare(self).__array__(dtype, copy=copy)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return self.__reduce__()

    def __reduce__(self) -> Any:
        """Reduce to a class and a NumPy array's state, as :meth:`numpy.ndarray.__reduce__`."""
        found: Any = bare(self).full().__reduce__()
        return _rebuilt, (type(self),), found[2]

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        whole = np.empty(0)
        whole.__setstate__(state)
        self._distributed = plain_array[0](whole)

    dump, dumps = DistArray.dump, DistArray.dumps  # the pickle of the complete array

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return dressed(bare(self).__deepcopy__(memo), type(self), self)

    # -- items -------------------------------------------------------------------------------

    def __getitem__(self, key: Key) -> Any:  # type: ignore[override]
        return finished(self, bare(self)[bare_all(key)])

    def __setitem__(self, key: Key, value: ArrayLike) -> None:
        given = value if getattr(value, "is_constant", False) else bare(value)
        if type(self).__getitem__ is not Subclass.__getitem__ and _is_basic(key):
            view = self[key]  # the class may return a view of another shape, as in NumPy
            if is_dressed(view):
                bare(view)[...] = given
                return
        bare(self)[bare_all(key)] = given

    def astype(self, dtype: DTypeLike, *args: Any, **named: Any) -> Any:
        """Cast to a data type, as :meth:`numpy.ndarray.astype`."""
        found = bare(self).astype(dtype, *args, **named)
        return finished(self, found) if named.get("subok", True) else found

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: ArrayLike) -> bool:
        return bool((self == value).any())

    # -- printing ----------------------------------------------------------------------------

    def __repr__(self) -> str:
        return self._named(np.array_repr)

    def __str__(self) -> str:
        return self._named(np.array_str)

    def __format__(self, spec: str) -> str:
        return object.__format__(self, spec) if self.ndim else format(self[()], spec)

    def _named(self, text: Callable[[Any], str]) -> str:
        """Return a printed form, with the name of the class."""
        name, x = type(self).__name__, bare(self)
        whole, kind = printing.whole(x), type(name, (np.ndarray,), {})
        if whole is not None:
            return text(np.asarray(whole).view(kind))
        local: str = printing.local_form(x, text(x.to_local().view(kind)))
        return local.replace("DistArray", name, 1)


def _is_basic(key: Key) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    kinds = (int, np.integer, slice, type(None), type(Ellipsis))
    return all(isinstance(part, kinds) for part in parts)


def _rebuilt(kind: type[Subclass]) -> Any:
    return dressed(plain_array[0](np.empty(0)), kind, None)


def _asked_for(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Return the class among the arguments of a view, or None; and a list of the data type."""
    if len(args) == 1 and not named and is_class(args[0]):
        return args[0], []
    given = dict(zip(("dtype", "type"), args, strict=False)) | named
    dtype, kind = given.pop("dtype", None), given.pop("type", None)
    if given or len(args) > 2 or not (kind is None or is_class(kind)):
        np.empty(0).view(*args, **named)  # NumPy's error
    if is_class(dtype):
        return dtype, []
    return kind, [] if dtype is None else [dtype]


# -- functions -------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """Rule by which a result gets the class of an argument.

    Attributes
    ----------
    is_made_of_it : bool
        True if the argument is passed to ``__array_finalize__``; otherwise None is passed.
    subok : bool
        Default of the argument `subok`.
    ahead : bool
        True if the class needs a higher ``__array_priority__`` than NumPy's arrays have.
    """

    is_made_of_it: bool = True
    subok: bool = True
    ahead: bool = False


#: NumPy's functions written in C whose results have the class of their arguments.
_KEEPING = dict.fromkeys(
    ["dot", "inner", "empty_like", "zeros_like", "ones_like", "full_like"], _Kept()
)
_KEEPING |= {
    "concatenate": _Kept(is_made_of_it=False, ahead=True),
    "broadcast_to": _Kept(subok=False),
}
#: Function that returns a version of a NumPy function written in Python: NumPy's own source,
#: executed with names of this library, so that it calls methods of arrays. Set by
#: :mod:`distarray.masked`.
sources: list[Callable[[Any], Any]] = []


@lru_cache(maxsize=512)
def answer_to(func: Callable[..., Any]) -> Any:
    """Return NumPy's own source of a function, executed with distributed arrays, or None."""
    return sources[0](func) if sources else None


#: Functions of linear algebra that wrap results like arguments, with the indices of those results.
_WRAPPED = dict.fromkeys(["cholesky", "inv", "matrix_power", "pinv", "solve"], (0,)) | {
    "eig": (1,),
    "eigh": (1,),
    "lstsq": (0, 1),
    "qr": (0, 1),
    "svd": (0, 2),
}


def _of_linalg(model: ArrayLike | None, found: Any, places: tuple[int, ...]) -> Any:
    if not isinstance(found, tuple):
        return wrapped(model, found) if 0 in places and np.ndim(found) > 1 else found
    items = [wrapped(model, item) if i in places else item for i, item in enumerate(found)]
    return type(found)(*items) if hasattr(found, "_fields") else tuple(items)


def _kept(found: ArrayLike, keep: _Kept, args: Args, kwargs: Kwargs) -> Any:
    """Return a result in the class of an argument, if the rule requires it."""
    model = first_of(_flat([*args, *kwargs.values()]))
    if not isinstance(found, DistArray) or not kwargs.get("subok", keep.subok):
        return found
    if model.__array_priority__ <= 0 and (keep.ahead or not is_dressed(args[0])):
        return found
    return dressed(found, type(model), model if keep.is_made_of_it else None)


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (tuple, list)):
            yield from _flat(value)
        else:
            yield value


# -- ufuncs ----------------------------------------------------------------------------------------


def _outs(kwargs: dict[str, Any]) -> tuple[Any, ...]:
    out = kwargs.get("out")
    return out if isinstance(out, tuple) else (out,) if out is not None else ()


def _overrides(kind: type[Any]) -> bool:
    """Return True if a type implements ufuncs itself, so that NumPy also calls its method."""
    if issubclass(kind, DistArray):
        return False
    return getattr(kind, "__array_ufunc__", None) not in (None, np.ndarray.__array_ufunc__)


def _reflected(ufunc: np.ufunc, inputs: Args) -> Any:
    """Return the right operand's own method for an operator of NumPy's left operand, or None.

    NumPy's operators call the method of subclasses of its arrays, and the ufunc for other types.
    """
    name = REFLECTED.get(ufunc)
    if name is None or not is_dressed(inputs[1]):
        return None
    if type(inputs[0]) is not np.ndarray and not isinstance(inputs[0], np.generic):
        return None
    own = getattr(type(inputs[1]), name)
    return None if own is getattr(Subclass, name) else own


def _result(inputs: Args, found: ArrayLike, out: Out, context: Context, place: int) -> Any:
    """Return a result of a ufunc in the program's class."""
    if context is not None:
        context = (*context, place)
    if out is not None:
        return out.__array_wrap__(out, context, False) if is_dressed(out) else out
    return wrapped(first_of(inputs), found, context)


fill_in(Subclass)
