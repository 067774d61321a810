"""Results of NumPy's functions for hollow blocks: shapes and data types."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from distarray.engines.rehearsing.hollow import (
    METHODS,
    RULES,
    VIEWS,
    Hollow,
    Unknown,
    hollow,
    is_hollow,
    probe,
    tried,
)
from distarray.typing import Array, ArrayLike, Axes, Axis, DTypeLike, Shape, ShapeLike

__all__ = ["HollowModule", "left"]

# -- ufuncs ---------------------------------------------------------------------------------------


def _called(ufunc: np.ufunc, *inputs: Any, **kwargs: Any) -> Any:
    if ufunc is np.matmul:
        return _product(*inputs)
    if ufunc.signature is not None:
        return tried(ufunc, inputs, kwargs)
    shape = np.broadcast_shapes(*[np.shape(x) for x in inputs])
    if ufunc in _ORDINARY:
        return _certain(hollow(shape, bool), _ORDINARY[ufunc])
    value = ufunc(*[probe(x) for x in inputs], **kwargs)
    if isinstance(value, tuple):
        return tuple([hollow(shape, part.dtype) for part in value])
    return hollow(shape, value.dtype)


def _certain(x: Hollow, value: bool | None) -> Hollow:
    x.sure = value
    return x


def _product(a: Array, b: Array) -> Hollow:
    """Return the hollow result of ``a @ b``."""
    rows = () if a.ndim == 1 else (a.shape[-2],)
    columns = () if b.ndim == 1 else (b.shape[-1],)
    stacked = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return hollow((*stacked, *rows, *columns), np.result_type(a.dtype, b.dtype))


def _reduced(
    ufunc: np.ufunc, x: Array, axis: Axis = 0, dtype: DTypeLike = None, *rest: object, **kw: object
) -> Any:
    keepdims = bool(kw.pop("keepdims", rest[1] if len(rest) > 1 else False))
    made = ufunc.reduce(np.zeros((1,) * x.ndim, x.dtype), axis=axis, dtype=dtype)
    found = hollow(left(x.shape, axis, keepdims), made.dtype)
    keeps = ufunc in (np.logical_or, np.logical_and)
    return _certain(found, getattr(x, "sure", None)) if keeps else found


def left(shape: Shape, axis: Axes, keepdims: bool) -> Shape:
    """Return the shape of a reduction's result."""
    dims = range(len(shape)) if axis is None else normalize_axis_tuple(axis, len(shape))
    if keepdims:
        return tuple([1 if d in dims else n for d, n in enumerate(shape)])
    return tuple([n for d, n in enumerate(shape) if d not in dims])


def _accumulated(ufunc: np.ufunc, x: Array, axis: int = 0, dtype: DTypeLike = None) -> Any:
    made = ufunc.accumulate(np.zeros((1,) * x.ndim, x.dtype), axis=axis, dtype=dtype)
    return hollow(x.shape, made.dtype)


def _reduced_at(
    ufunc: np.ufunc, x: Array, at: Array, axis: int = 0, dtype: DTypeLike = None
) -> Any:
    made = ufunc.reduce(np.zeros((1,) * x.ndim, x.dtype), axis=axis, dtype=dtype)
    shape = list(x.shape)
    shape[axis] = len(at)
    return hollow(shape, made.dtype)


def _outer(ufunc: np.ufunc, a: Array, b: Array, **kwargs: object) -> Any:
    made = ufunc(probe(a), probe(b), **kwargs)
    return hollow((*np.shape(a), *np.shape(b)), made.dtype)


#: Results of tests under the assumption that all values are finite.
_ORDINARY = {np.isnan: False, np.isinf: False, np.isnat: False, np.isfinite: True}
_METHODS: dict[str, Callable[..., Any]] = {
    "__call__": _called,
    "reduce": _reduced,
    "accumulate": _accumulated,
    "reduceat": _reduced_at,
    "outer": _outer,
}


# -- functions ------------------------------------------------------------------------------------


def _transformed(
    function: Callable[..., Any],
    a: Array,
    n: int | None = None,
    axis: int = -1,
    *_: object,
    **kw: object,
) -> Any:
    """Return the hollow result of a Fourier transform along one dimension."""
    if kw.get("out") is not None:
        return kw["out"]
    tried = function(np.zeros((1,) * a.ndim, a.dtype), 2, axis)
    points = n if n is not None else a.shape[axis]
    name, shape = function.__name__, list(a.shape)
    if n is None and name in ("irfft", "hfft"):
        points = 2 * (points - 1)
    shape[axis] = points // 2 + 1 if name in ("rfft", "ihfft") else points
    return hollow(shape, tried.dtype)


def _joined(
    arrays: Sequence[Array],
    axis: Axis = 0,
    out: Array | None = None,
    dtype: DTypeLike = None,
    **_: object,
) -> Any:
    if out is not None:
        return out
    arrays = [np.asanyarray(x) for x in arrays]
    kind = dtype or np.result_type(*[x.dtype for x in arrays])
    if axis is None:
        return hollow(sum([x.size for x in arrays]), kind)
    shape = list(arrays[0].shape)
    shape[axis] = sum([x.shape[axis] for x in arrays])
    return hollow(shape, kind)


def _stacked(arrays: Sequence[Array], axis: int = 0, **_: object) -> Any:
    arrays = list(arrays)
    shape = list(np.shape(arrays[0]))
    shape.insert(normalize_axis_index(axis, len(shape) + 1), len(arrays))
    return hollow(shape, np.result_type(*[x.dtype for x in arrays]))


def _chosen(where: ArrayLike, a: ArrayLike, b: ArrayLike) -> Any:
    """Return the hollow result of ``np.where`` with three operands."""
    shape = np.broadcast_shapes(np.shape(where), np.shape(a), np.shape(b))
    return hollow(shape, np.result_type(a, b) if np.ndim(a) or np.ndim(b) else np.float64)


def _taken(
    a: Array, indices: ArrayLike, axis: Axis = None, out: Array | None = None, mode: str = "raise"
) -> Any:
    if out is not None:
        return out
    if axis is None:
        return hollow(np.shape(indices), a.dtype)
    axis = normalize_axis_index(axis, a.ndim)
    return hollow((*a.shape[:axis], *np.shape(indices), *a.shape[axis + 1 :]), a.dtype)


def _repeated(a: Array, repeats: ArrayLike, axis: Axis = None) -> Any:
    if is_hollow(repeats):
        raise Unknown("how often elements are repeated")
    shape = list(a.shape) if axis is not None else [a.size]
    axis = 0 if axis is None else axis
    counts = np.asarray(repeats)
    shape[axis] = shape[axis] * int(counts) if counts.size == 1 else int(counts.sum())
    return hollow(shape, a.dtype)


def _ordered(a: Array, *_: object, **__: object) -> Any:
    return hollow(a.shape, a.dtype)


def _made_like(
    a: Array,
    dtype: DTypeLike = None,
    order: Any = "K",
    subok: Any = True,
    shape: ShapeLike | None = None,
    **_: object,
) -> Any:
    return hollow(a.shape if shape is None else shape, dtype or a.dtype)


def _found(
    a: Array, axis: Axis = None, out: Array | None = None, keepdims: bool = False, **_: object
) -> Any:
    """Return the result of ``argmax`` or ``argmin``; without an axis any index will do."""
    keeps = keepdims is True
    return np.intp(0) if axis is None and not keeps else hollow(left(a.shape, axis, keeps), np.intp)


def _nothing(*_: object, **__: object) -> None:
    pass


def _refused(*_: object, **__: object) -> NoReturn:
    raise Unknown("the values")


def _spread(array: Array, shape: ShapeLike, subok: bool = False) -> Any:
    shape = (shape,) if isinstance(shape, int) else shape
    np.broadcast_to(np.ndarray.view(array, np.ndarray), shape)
    return hollow(shape, array.dtype)


#: Functions that NumPy implements by views and by methods, which `Hollow` defines.
_VIEWS = {
    getattr(np, name)
    for name in [
        "reshape",
        "transpose",
        "moveaxis",
        "swapaxes",
        "rollaxis",
        "expand_dims",
        "squeeze",
        "atleast_1d",
        "atleast_2d",
        "atleast_3d",
        "flip",
        "fliplr",
        "flipud",
        "rot90",
        "split",
        "array_split",
        "hsplit",
        "vsplit",
        "dsplit",
        "real",
        "imag",
        "shape",
        "ndim",
        "size",
        "result_type",
        "can_cast",
        "may_share_memory",
        "shares_memory",
        "diagonal",
        "matrix_transpose",
        "permute_dims",
        "ravel",
        "diff",
    ]
}
_RULES: dict[Any, Callable[..., Any]] = {
    np.concatenate: _joined,
    np.empty: hollow,
    np.stack: _stacked,
    np.where: _chosen,
    np.take: _taken,
    np.repeat: _repeated,
    np.copyto: _nothing,
    np.putmask: _nothing,
    np.place: _nothing,
    np.put_along_axis: _nothing,
    np.fill_diagonal: _nothing,
    np.broadcast_to: _spread,
    np.nonzero: _refused,
    np.flatnonzero: _refused,
    np.argwhere: _refused,
    np.array_equal: _refused,
    np.unique: _refused,
    np.may_share_memory: lambda *_: False,
    np.shares_memory: lambda *_: False,
}
_ORDERED: list[Any] = [np.sort, np.partition, np.roll, np.tril, np.triu, np.copy]
_RULES |= dict.fromkeys(_ORDERED, _ordered)
_LIKE: list[Any] = [np.empty_like, np.zeros_like, np.ones_like]
_RULES |= dict.fromkeys(_LIKE, _made_like)
_RULES |= dict.fromkeys([np.argmax, np.argmin], _found)


_RULES |= {
    function: partial(_transformed, function)
    for function in (np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft, np.fft.hfft, np.fft.ihfft)
}
RULES.update(_RULES)
METHODS.update(_METHODS)
VIEWS.update(_VIEWS)


class HollowModule:
    """NumPy's namespace, with constructors that create hollow arrays."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def empty(shape: ShapeLike, dtype: DTypeLike = float, *_: object, **__: object) -> Hollow:
        """Return a hollow array, as :func:`numpy.empty`; ``zeros`` and ``ones`` likewise."""
        return hollow(shape, dtype)

    zeros = ones = empty

    @staticmethod
    def full(shape: ShapeLike, value: ArrayLike, dtype: DTypeLike = None, **_: object) -> Hollow:
        """Return a hollow array, as :func:`numpy.full`."""
        return hollow(shape, np.asarray(value).dtype if dtype is None else dtype)

    @staticmethod
    def asarray(x: Array, dtype: DTypeLike = None, **_: object) -> Array:
        """Convert to an array, as :func:`numpy.asarray`; a hollow argument stays hollow."""
        if isinstance(x, Hollow):
            return x.astype(x.dtype if dtype is None else dtype, copy=False)
        return np.asarray(x, dtype)

    @staticmethod
    def ascontiguousarray(x: Array, dtype: DTypeLike = None) -> Array:
        """Call :func:`numpy.ascontiguousarray`; a hollow argument is returned unchanged."""
        return x if isinstance(x, Hollow) else np.ascontiguousarray(x, dtype)
