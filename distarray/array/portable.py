"""Calls on local blocks that differ between NumPy and CuPy.

Most NumPy functions dispatch to CuPy for its arrays, and the engines call those. This module covers
the rest: functions that NumPy does not dispatch, and functions that CuPy lacks, which then run on
the host.
"""

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from distarray.array import faults
from distarray.array.base import Base, raw_block, sequence_like
from distarray.comm import devices
from distarray.typing import Array, ArrayLike, DTypeLike, Shape

if TYPE_CHECKING:
    from distarray.array.core import DistArray

__all__ = [
    "Adapted",
    "as_array",
    "beside",
    "call_ufunc",
    "cast",
    "conjugated",
    "contiguous",
    "delete",
    "in_c_order",
    "insert",
    "made_like",
    "make_read_only",
    "on_host",
    "refuse_read_only",
    "repeat",
    "repeated",
    "take",
    "ufunc_method",
]

#: A block or a distributed array.
Operand = TypeVar("Operand", Array, "DistArray")

_module = devices.module_of
_host_types = (np.ndarray, np.generic)
#: Methods of ufuncs that work around faults of NumPy.
_RIGHT = {"reduce": faults.reduce, "reduceat": faults.reduceat}
#: For each method, the ufuncs for which CuPy implements it.
_METHODS = {
    "reduce": (np.add, np.multiply),
    "accumulate": (np.add, np.multiply),
    "reduceat": (np.add,),
}


def refuse_read_only(x: Base | Array, text: str = "assignment destination is read-only") -> None:
    """Raise NumPy's error for read-only memory, even if nothing would be written.

    CuPy has no read-only memory.
    """
    block = raw_block(x) if isinstance(x, Base) else x
    if not getattr(block.flags, "writeable", True):
        raise ValueError(text)


def make_read_only(block: Array) -> None:
    """Forbid writing to a block; no effect for CuPy, which has no read-only memory."""
    if isinstance(block, np.ndarray):
        block.flags.writeable = False


def made_like(
    xp: ModuleType, function: str, model: Array, dtype: DTypeLike, order: str, shape: Shape
) -> Array:
    """Call ``xp.empty_like`` or a similar constructor, which never returns a subclass."""
    make = getattr(xp, function)
    made: Array
    if xp is np and not devices.on_device(model):
        made = make(model, dtype, order, False, shape)
    else:  # CuPy rejects `subok`, and treats an empty shape as None
        made = make(model, dtype, order, shape=shape or (1,)).reshape(shape)
    return made


def as_array(block: Array) -> Array:
    """Return a block as an array, also if it is a NumPy scalar."""
    return np.asarray(block) if isinstance(block, np.generic) else block


def beside(table: Array, block: Array) -> Array:
    """Return a host array, copied to the device of a block."""
    return table if isinstance(block, _host_types) else _module(block).asarray(table)


def contiguous(block: Array) -> Array:
    """Return the block in C order, copied if necessary; at least 1-d on the host, as in NumPy."""
    if isinstance(block, _host_types):
        return np.ascontiguousarray(block)
    return _module(block).ascontiguousarray(block)


def in_c_order(block: Array) -> Array:
    """Return the block itself if its dimensions are in C order, gaps allowed; else a copy.

    Dimensions with a single index are checked as well, since they may have more on other ranks.
    """
    steps = [abs(step) for step in block.strides if step]
    return block if steps == sorted(steps, reverse=True) else block.copy()


def cast(block: Array, dtype: DTypeLike, order: str, casting: str) -> Array:
    """Convert a block by ``block.astype``; check `casting`, as CuPy's method does not."""
    if isinstance(block, _host_types):
        return block.astype(dtype, order=order, casting=casting)  # type: ignore[call-overload]
    np.empty(0, block.dtype).astype(dtype, casting=casting)  # raises NumPy's error
    if not block.size:
        # CuPy rejects a data type only if there are elements: raise its error on ranks without any,
        # too.
        _module(block).zeros(1, block.dtype).astype(dtype)
    return block.astype(dtype, order=order)


def on_host(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function that CuPy lacks on copies in host memory; arrays go back to the device.

    Parameters
    ----------
    function : callable
        Takes arrays, also in lists and tuples, and returns an array or a tuple of arrays.
    *args, **kwargs
        Its arguments; if all arrays are on the host, nothing is copied.
    """
    found: list[Array] = []
    host_args = [_fetched(arg, found) for arg in args]
    host_kwargs = {name: _fetched(arg, found) for name, arg in kwargs.items()}
    result = function(*host_args, **host_kwargs)
    return _brought(result, _module(found[0])) if found else result


def _fetched(value: Any, found: list[Array]) -> Any:
    if isinstance(value, (list, tuple)):
        return sequence_like(value, [_fetched(item, found) for item in value])
    if not devices.on_device(value):
        return value
    found.append(value)
    return value.get()


def _brought(value: Any, xp: ModuleType) -> Any:
    if isinstance(value, (list, tuple)):
        return sequence_like(value, [_brought(item, xp) for item in value])
    return xp.asarray(value) if isinstance(value, np.ndarray) else value


def ufunc_method(ufunc: np.ufunc, name: str, block: Array, *args: Any) -> Array:
    """Call ``ufunc.reduce``, ``.accumulate`` or ``.reduceat``; on the host if CuPy lacks it."""
    if isinstance(block, _host_types):
        return _RIGHT.get(name, getattr(np.ufunc, name))(ufunc, block, *args)
    method = getattr(ufunc, name)
    if ufunc not in _METHODS[name]:
        return on_host(_RIGHT.get(name, getattr(np.ufunc, name)), ufunc, block, *args)
    xp = _module(block)
    return method(block, *[xp.asarray(a) if isinstance(a, np.ndarray) else a for a in args])


def take(block: Array, indices: Array, axis: int, out: Array | None = None) -> Array:
    """Return the elements at indices that are known to be within bounds."""
    if isinstance(block, _host_types):
        return np.take(block, indices, axis=axis, out=out, mode="clip")  # skips NumPy's check
    return np.take(block, indices, axis=axis, out=out)


def repeated(values: Array, counts: Array) -> Array:
    """Repeat values as ``np.repeat(values, counts)``, for two 1-d arrays.

    CuPy's function needs the counts as a list.
    """
    if isinstance(values, _host_types):
        return np.repeat(values, counts)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if ends.size else 0
    return values[np.searchsorted(ends, _module(values).arange(total), side="right")]


def repeat(block: Array, counts: Array, axis: int) -> Array:
    """Repeat slices as ``block.repeat(counts, axis)``, with an array of counts."""
    if isinstance(block, _host_types):
        return block.repeat(counts, axis)
    counts = counts.get() if devices.on_device(counts) else counts
    return _taken(block, np.repeat(np.arange(len(counts)), counts), axis)


def delete(block: Array, chosen: Any, axis: int) -> Array:
    """Delete slices, as :func:`numpy.delete`."""
    if isinstance(block, _host_types):
        return np.delete(block, chosen, axis)
    chosen = chosen.get() if devices.on_device(chosen) else chosen
    return _taken(block, np.delete(np.arange(block.shape[axis]), chosen), axis)


def insert(block: Array, positions: Array, values: Array, axis: int) -> Array:
    """Insert one slice per position, as :func:`numpy.insert`, which CuPy lacks."""
    if isinstance(block, _host_types):
        return np.insert(block, positions, values, axis)
    extent = block.shape[axis]
    new = np.arange(extent, extent + len(positions))
    joined = np.concatenate([block, values.astype(block.dtype)], axis)
    return _taken(joined, np.insert(np.arange(extent), positions, new), axis)


def _taken(block: Array, places: Array, axis: int) -> Array:
    return np.take(block, _module(block).asarray(places), axis=axis)


def call_ufunc(ufunc: np.ufunc, *inputs: Array, **keywords: Any) -> Array:
    """Call a ufunc on blocks, through :class:`Adapted` if they are on a device."""
    for block in inputs:
        if not isinstance(block, _host_types):
            return Adapted(ufunc, _module(block))(*inputs, **keywords)
    return ufunc(*inputs, **keywords)


def conjugated(a: Operand) -> Operand:
    """Return the conjugate of complex numbers; other arrays unchanged (NumPy makes bool int8)."""
    return np.conjugate(a) if a.dtype.kind == "c" else a  # type: ignore[return-value]


def _vecdot(a: Array, b: Array) -> Array:
    return np.matmul(conjugated(a)[..., None, :], b[..., None])[..., 0, 0]


def _matvec(a: Array, b: Array) -> Array:
    return np.matmul(a, b[..., None])[..., 0]


def _vecmat(a: Array, b: Array) -> Array:
    return np.matmul(conjugated(a)[..., None, :], b)[..., 0, :]


#: Products that CuPy lacks, computed by its matmul.
_PRODUCTS: dict[np.ufunc, Callable[..., Any]] = {
    getattr(np, name): function
    for name, function in (("vecdot", _vecdot), ("matvec", _matvec), ("vecmat", _vecmat))
    if hasattr(np, name)
}


def _product(
    ufunc: np.ufunc, a: Array, b: Array, dtype: DTypeLike = None, casting: str = ""
) -> Array:
    if dtype is not None:
        a, b = a.astype(dtype, copy=False), b.astype(dtype, copy=False)
    return _PRODUCTS[ufunc](a, b)


def _isclose(
    a: Array, b: Array, rtol: ArrayLike, atol: ArrayLike, equal_nan: bool = False
) -> Array:
    # In NumPy equal elements are close, also if the tolerance is negative.
    found: Array = np.isclose(a, b, rtol, atol, equal_nan) | (a == b)
    return found


def _angle(z: Array, deg: bool = False) -> Array:
    # CuPy returns 0 for the angle of -0.0.
    parts = (z.imag, z.real) if z.dtype.kind == "c" else (0, z)
    found: Array = np.arctan2(*parts)
    return found * (180 / np.pi) if deg else found


def _sinc(x: Array) -> Array:
    # CuPy's result for small integers has half precision.
    found: Array = np.sinc(x.astype(float) if x.dtype.kind in "biu" else x)
    return found


#: Functions whose results differ in CuPy.
_OTHERS: dict[Callable[..., Any], Callable[..., Any]] = {
    np.isclose: _isclose,
    np.angle: _angle,
    np.sinc: _sinc,
}


class Adapted:
    """Elementwise function adapted to blocks on a device.

    Ufuncs that CuPy lacks run on the host. Two results are copied into given arrays. Keywords that
    CuPy's ufuncs do not have (`order`, `subok`) are dropped.
    """

    def __init__(self, function: Callable[..., Any], xp: ModuleType) -> None:
        self._call = _OTHERS.get(function, function)
        is_ufunc = isinstance(function, np.ufunc)
        self._known = is_ufunc and function not in _PRODUCTS and hasattr(xp, function.__name__)
        if function in _PRODUCTS:
            self._call = partial(_product, function)
        elif is_ufunc and not self._known:
            self._call = partial(on_host, function)

    def __call__(
        self, *inputs: Any, out: Any = None, where: Array | bool = True, **keywords: Any
    ) -> Any:
        """Call ``function(*inputs, out=out, where=where, **keywords)``."""
        keywords.pop("order", None)
        keywords.pop("subok", None)
        if where is True and (out is None or (self._known and not isinstance(out, tuple))):
            return self._called(*inputs, **(keywords if out is None else {"out": out, **keywords}))
        found = []
        value = self._called(*inputs, **keywords)
        for target, part in zip(_listed(out), _listed(value), strict=True):
            if target is not None:
                casting = keywords.get("casting", "same_kind")
                np.copyto(target, part, casting, **({} if where is True else {"where": where}))
            found.append(part if target is None else target)
        return tuple(found) if isinstance(out, tuple) else found[0]

    def _called(self, *inputs: Any, **keywords: Any) -> Any:
        try:
            return self._call(*inputs, **keywords)
        except (TypeError, NotImplementedError):
            # CuPy rejects these arguments. NumPy accepts them, or raises the error that the caller
            # expects.
            return on_host(self._call, *inputs, **keywords)


def _listed(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
