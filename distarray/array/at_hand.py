"""NumPy's own functions, called at once on small arrays that every rank has whole.

What they do there is the same on every rank and sends nothing. So where all operands are small and
replicated, NumPy computes with the blocks, and the other rungs of the
:mod:`ladder <distarray.array.ladder>` are left out: a loop over small arrays then takes little more
than NumPy's time.
"""

from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np

from distarray.array.base import Base, sequence_like
from distarray.comm import DeviceMesh
from distarray.config import in_force
from distarray.layout import Layout
from distarray.typing import Array, ArrayLike, Shape

__all__ = ["ELEMENTS", "OURS", "PLAIN", "answer", "answer_to_ufunc", "bounded", "of_product"]

_new = object.__new__
_array = np.ndarray
_replicated = Layout.replicated
_CODES = np.typecodes["All"]
#: Elements that NumPy hands out as its scalars; not float16, whose sorts have a fault.
ELEMENTS = frozenset(_CODES) - set("eVO")
#: Types of arguments that NumPy gets as they are.
PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, type, slice, type(Ellipsis), np.ndarray}
    | {np.dtype(code).type for code in _CODES if code not in "VO"}
    | {type(np.dtype(code)) for code in _CODES}
)
_SEQUENCES = frozenset({tuple, list})
#: Parameters that NumPy's functions do not have, or not in every version of NumPy.
OURS = frozenset({"mesh", "placements", "device", "like", "ndmax"})
_METHOD = type(np.ndarray.sum)
#: Elements of a result that is small whatever its type, and of one that wastes time and memory
#: before it is found to be too large: operands that broadcast may have so many together.
_MOST, _VAST = 1 << 14, 1 << 22
#: Bytes of an element of most types.
_WIDE = 8
_PLANE = (1, 2)


def answer(
    act: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any], whole: bool = False
) -> Any:
    """What NumPy gives for small whole operands; NotImplemented if there are others.

    Parameters
    ----------
    act : callable
        A function of NumPy's, or a ufunc.
    args, kwargs
        The arguments, with distributed arrays among them.
    whole : bool
        Whether operands may be cut along mesh dimensions of one rank, too.
    """
    settings = in_force()
    limit = settings.replicate_below
    if settings.reproducible:
        return NotImplemented
    models: list[Any] = []
    given = _bare([*args, *kwargs.values()] if kwargs else args, models, limit, whole)
    if given is None or not models or not _takes(act, given):
        return NotImplemented
    if not kwargs:
        found = act(*given)
    elif OURS.isdisjoint(kwargs):
        last = len(given) - len(kwargs)
        found = act(*given[:last], **dict(zip(kwargs, given[last:], strict=True)))
    else:
        return NotImplemented
    if type(found) is not _array:
        return _given_out(found, models[0], limit)
    out = _itself(found, given, models)
    return _laid_out(found, models[0], limit) if out is None else out


def _bare(
    values: Iterable[Any], models: list[Any], limit: int, whole: bool = False
) -> list[Any] | None:
    """Arguments with blocks in place of arrays, which are put into `models`.

    None if an argument is not at hand.
    """
    given = []
    for value in values:
        kind = type(value)
        if kind in PLAIN:
            given.append(value)
        elif isinstance(value, Base):
            layout = value.layout
            fits = layout.is_whole if whole else layout.is_replicated
            if value.waits or not fits or not _is_small(block := value.block, limit):
                return None
            if not (value.mesh is models[0].mesh if models else _is_here(value.mesh)):
                return None
            models.append(value)
            given.append(block)
        elif kind in _SEQUENCES:
            items = _bare(value, models, limit, whole)
            if items is None:
                return None
            given.append(kind(items))
        else:
            return None
    return given


def _is_small(block: Array, limit: int) -> bool:
    return type(block) is _array and block.nbytes < limit and block.dtype.char in ELEMENTS


def _is_here(mesh: DeviceMesh) -> bool:
    """Whether this rank computes with the operands on a mesh."""
    return mesh.coords is not None and mesh.device_type == "cpu"


def _takes(act: Callable[..., Any], given: list[Any]) -> bool:
    """Whether NumPy is to be called; its methods want an array, and memory may not hold all."""
    if type(act) is _METHOD and type(given[0]) is not _array:
        return False
    elements, shape = 1, None
    for value in given:
        if type(value) is _array and value.shape != shape:
            shape = value.shape
            elements *= value.size
    return elements <= _VAST


def bounded(function: Callable[..., Any], elements: Callable[..., int]) -> Callable[..., Any]:
    """The trait `small` of a row whose result may be much larger than its operands.

    Parameters
    ----------
    function : callable
        NumPy's function, or what is to be called in its place.
    elements : callable
        Gets the arguments; gives the number of elements of the result, or a larger one.
    """
    own = getattr(function, "_implementation", function)

    def small(*args: ArrayLike, **kwargs: ArrayLike) -> Any:
        if elements(*args, **kwargs) > in_force().replicate_below // _WIDE:
            return NotImplemented
        return own(*args, **kwargs)

    return small


def of_product(*args: ArrayLike, **kwargs: ArrayLike) -> int:
    """All elements of the operands with one another: as an outer product has them."""
    return prod([value.size for value in args if isinstance(value, np.ndarray)])


def _itself(found: Array, given: list[Any], models: list[Any]) -> Any:
    """The `out` that a result is, which may be NumPy's; None if it is a new array."""
    for value in given:
        if value is found:
            return next((x for x in models if x.block is found), found)
    return None


def _laid_out(found: Array, model: Base, limit: int) -> Any:
    """An array of NumPy's as a distributed one; NotImplemented if it is too large to stay whole."""
    if found.nbytes >= limit:
        return NotImplemented
    layout, shape = model.layout, found.shape
    result = _new(model.plain_type)  # a mapped file's, too
    result.block = found
    result.layout = layout if layout.shape == shape else _replicated(shape, layout.mesh_shape)
    result.mesh = model.mesh
    return result


def _given_out(found: Any, model: Base, limit: int) -> Any:
    """What NumPy gave, with distributed arrays in place of NumPy's; or NotImplemented, as above."""
    if type(found) is _array:
        return _laid_out(found, model, limit)
    if isinstance(found, (tuple, list)):
        items = [_given_out(item, model, limit) for item in found]
        large = any(item is NotImplemented for item in items)
        return NotImplemented if large else sequence_like(found, items)
    return found


# -- ufuncs --------------------------------------------------------------------------------------


def answer_to_ufunc(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """As :func:`answer`, for a ufunc whose result is not much larger than its operands."""
    if len(inputs) == 2:
        first, second = inputs
        if isinstance(first, Base) and isinstance(second, Base):
            grows = _grows if ufunc.signature is None else _multiplies
            if grows(first.layout.shape, second.layout.shape):
                return NotImplemented
    return answer(ufunc, inputs, {}, whole=True)


def _grows(a: Shape, b: Shape) -> bool:
    """Whether shapes broadcast to one that may be much larger than both."""
    if a == b or a[len(a) - len(b) :] == b or b[len(b) - len(a) :] == a:
        return False
    return prod(a) * prod(b) > _MOST


def _multiplies(a: Shape, b: Shape) -> bool:
    """Whether operands are no vectors and matrices, or their product may be large."""
    if len(a) not in _PLANE or len(b) not in _PLANE:
        return True
    return len(a) == len(b) == 2 and a[0] * b[1] > _MOST
