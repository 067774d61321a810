"""Fast paths that call NumPy's own functions on small arrays that every rank has whole.

Every rank computes the same result, and nothing is sent. If all operands are small and replicated,
NumPy computes with the blocks, and the other steps of the
:mod:`dispatcher <distarray.array.ladder>` are skipped: a loop over small arrays then takes little
more than NumPy's time.
"""

import operator
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from distarray.array.base import Base, own_block, own_layout, sequence_like
from distarray.array.faults import FAULTS, Fault
from distarray.array.small import SPREADING, WIDE, WRITERS, bounded, of_product
from distarray.config import WIDEST, Settings, in_force
from distarray.layout import Layout
from distarray.plan import broadcast_shapes, whole_product
from distarray.typing import Array, Shape

__all__ = [
    "ELEMENTS",
    "MOST",
    "OURS",
    "PLAIN",
    "answer",
    "answer_for_one",
    "answer_for_two",
    "answer_to_key",
    "answer_to_method",
    "answer_to_product",
    "answer_to_two",
    "answer_to_ufunc",
    "given_out",
    "set_at_mask",
]

_new = object.__new__
_array = np.ndarray
_scalar = np.generic
_replicated = Layout.replicated
_CODES = np.typecodes["All"]
#: Type codes of elements that NumPy returns as its scalars; not float16, whose sorts have a bug.
ELEMENTS = frozenset(_CODES) - set("eVO")
#: Types of arguments that are passed to NumPy unchanged.
PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, type, slice, type(Ellipsis), np.ndarray}
    | {np.dtype(code).type for code in _CODES if code not in "VO"}
    | {type(np.dtype(code)) for code in _CODES}
)
_SINGLE = PLAIN - {np.ndarray}
_INTEGERS = frozenset({int, np.int64})
_SEQUENCES = frozenset({tuple, list})
_NONE: Mapping[str, Any] = {}
#: Parameters that NumPy's functions lack, at least in some versions of NumPy.
OURS = frozenset({"mesh", "placements", "device", "like", "ndmax"})
_METHOD = type(np.ndarray.sum)
#: Number of elements of a result that is small whatever its type; and the limit for broadcast
#: results: a larger one would waste time and memory before it is found to be too large.
MOST, _VAST = 1 << 14, 1 << 22
#: NumPy's number of the first type with wider elements, or without numbers. Half precision has a
#: higher number, too, but loops over small arrays do not use that type.
_WIDE_TYPE = np.dtype(np.clongdouble).num
_METHODS = frozenset({"reduce", "accumulate", "outer"})
#: NumPy's own ufuncs of two operands, except those whose folds may be wrong in NumPy.
_FOLDING = frozenset(
    [f for f in vars(np).values() if isinstance(f, np.ufunc) and (f.nin, f.signature) == (2, None)]
) - set(FAULTS[Fault.FOLD].ufuncs)
#: The limits of `Settings.cut_from`, in bytes.
Limits = tuple[int, int]


def answer(
    act: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    whole: bool = False,
) -> Any:
    """Compute NumPy's result for small whole operands; return NotImplemented for other operands.

    Parameters
    ----------
    act : callable
        A NumPy function or ufunc.
    args, kwargs
        The arguments, with distributed arrays among them.
    whole : bool
        True if operands may also be cut along mesh dimensions of size 1.
    """
    settings = in_force()
    limits = settings.cut_from
    if settings.reproducible:
        return NotImplemented
    models: list[Any] = []
    given = _bare([*args, *kwargs.values()] if kwargs else args, models, limits, whole)
    if given is None or not models or (len(given) > 1 and not _takes(act, given, limits)):
        return NotImplemented
    if not kwargs:
        found = act(*given)
    elif OURS.isdisjoint(kwargs):
        last = len(given) - len(kwargs)
        found = act(*given[:last], **dict(zip(kwargs, given[last:], strict=True)))
    else:
        return NotImplemented
    if type(found) is not _array:
        return given_out(found, models[0], limits)
    out = _itself(found, given, models)
    return _laid_out(found, models[0], limits) if out is None else out


def answer_for_two(act: Callable[..., Any], x: Base, y: Base) -> Any:
    """Call a NumPy function on two arrays, as :func:`answer`."""
    blocks = _two_blocks(x, y)
    if blocks is None:
        return NotImplemented
    first, second = x.layout, y.layout
    if not first.is_replicated or not second.is_replicated:
        return NotImplemented
    a, b = blocks
    most = first.size * second.size
    grows = most > MOST and first.shape != second.shape
    if grows and not _fits(act, [a, b], most, in_force().cut_from):
        return NotImplemented
    found = act(a, b)
    if isinstance(found, _scalar):
        return found
    if found is a or found is b:
        return x if found is a else y
    return given_out(found, x, in_force().cut_from)


def answer_for_one(
    act: Callable[..., Any],
    x: Base,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] = _NONE,
    whole: bool = False,
) -> Any:
    """Call a NumPy function on one array and arguments without arrays, as :func:`answer`."""
    settings = in_force()
    limits = settings.cut_from
    block = None if settings.reproducible else _block(x, limits, whole)
    if block is None:
        return NotImplemented
    if not args and not kwargs:
        found = act(block)
    elif not _are_single(args):
        return NotImplemented
    elif not kwargs:
        found = act(block, *args)
    elif OURS.isdisjoint(kwargs) and _are_single(kwargs.values()):
        found = act(block, *args, **kwargs)
    else:
        return NotImplemented
    if type(found) is _array:
        return x if found is block else _laid_out(found, x, limits)
    return found if isinstance(found, _scalar) else given_out(found, x, limits)


def _are_single(values: Iterable[Any]) -> bool:
    """Return True if no argument is an array or contains one."""
    for value in values:
        kind = type(value)
        if kind not in _SINGLE and not (kind is tuple and _INTEGERS.issuperset(map(type, value))):
            return False
    return True


def _bare(
    values: Iterable[Any], models: list[Any], limits: Limits, whole: bool = False
) -> list[Any] | None:
    """Replace distributed arrays among the arguments by blocks, and append them to `models`.

    Return None if an argument is not small and whole.
    """
    given = []
    for value in values:
        kind = type(value)
        if kind in PLAIN:
            given.append(value)
        elif isinstance(value, Base):
            block = _block(value, limits, whole)
            if block is None or (models and value.mesh is not models[0].mesh):
                return None
            models.append(value)
            given.append(block)
        elif kind is tuple and _INTEGERS.issuperset(map(type, value)):
            given.append(value)
        elif kind in _SEQUENCES:
            items = _bare(value, models, limits, whole)
            if items is None:
                return None
            given.append(kind(items))
        else:
            return None
    return given


def _block(x: Base, limits: Limits, whole: bool) -> Any:
    """Return the block of a small array that every rank has whole; None for other arrays.

    The block is a NumPy array, so the array is not on a device.
    """
    block = own_block(x)
    if block is None:
        return None
    layout = x.layout
    if not (layout.is_whole if whole else layout.is_replicated):
        return None
    if (
        type(block) is _array
        and block.nbytes < limits[block.ndim > 1]
        and block.dtype.char in ELEMENTS
        and x.mesh.coords is not None
    ):
        return block
    return None


def _two_blocks(x: Base, y: Base) -> tuple[Array, Array] | None:
    """Return the blocks of two small arrays that every rank has whole, or None.

    Every condition is written out in its cheapest form, as some loops do little else than call this
    function.
    """
    mesh = x.mesh
    if mesh is not y.mesh or mesh.coords is None:
        return None
    a, b, settings = own_block(x), own_block(y), in_force()
    if type(a) is not _array or type(b) is not _array:
        return None
    most = settings.at_once
    if a.size < most > b.size and a.dtype.num < _WIDE_TYPE > b.dtype.num:
        return a, b
    return (a, b) if _are_small(a, b, settings) else None


def _are_small(a: Array, b: Array, settings: Settings) -> bool:
    """Return True if NumPy can compute with two blocks, of any data types."""
    limits = settings.cut_from
    return (
        not settings.reproducible
        and a.nbytes < limits[a.ndim > 1]
        and b.nbytes < limits[b.ndim > 1]
        and a.dtype.char in ELEMENTS
        and b.dtype.char in ELEMENTS
    )


def _takes(act: Callable[..., Any], given: list[Any], limits: Limits) -> bool:
    """Check that NumPy can be called: methods need an array, and the result must fit in memory."""
    if act in WRITERS:
        return True
    if type(act) is _METHOD and type(given[0]) is not _array:
        return False
    elements, shape = 1, None
    for value in given:
        if type(value) is _array and value.shape != shape:
            shape = value.shape
            elements *= value.size
    return elements <= MOST or _fits(act, given, elements, limits)


def _fits(act: Callable[..., Any], given: list[Any], most: int, limits: Limits) -> bool:
    """Return False if a result of at most `most` elements would exceed the replication limit."""
    if isinstance(act, np.ufunc) or act in SPREADING:
        arrays = [value for value in given if type(value) is _array]
        width = max([array.itemsize for array in arrays])
        if width * _grown_size(tuple([array.shape for array in arrays])) >= limits[1]:
            return False
    return most <= _VAST


@lru_cache(maxsize=1024)
def _grown_size(shapes: tuple[Shape, ...]) -> int:
    """Count the elements of the broadcast shape; 0 if no larger than the largest of `shapes`."""
    try:
        size = prod(broadcast_shapes(*shapes))
    except ValueError:
        return 0
    return size if size > max(map(prod, shapes)) else 0


def _itself(found: Array, given: list[Any], models: list[Any]) -> Any:
    """Return the operand that is the result itself, such as `out`; None for a new array."""
    for value in given:
        if value is found:
            return next((x for x in models if x.block is found), found)
    return None


def _laid_out(found: Array, model: Base, limits: Limits) -> Any:
    """Wrap a NumPy array as a distributed array; NotImplemented if too large to stay whole.

    Arrays of Python objects always stay whole.
    """
    if found.nbytes >= limits[found.ndim > 1] and not found.dtype.hasobject:
        return NotImplemented
    layout, shape = model.layout, found.shape
    result = _new(model.plain_type)  # also for a memory-mapped file
    result.block = found
    result.mesh = model.mesh
    if layout.shape == shape:
        result.layout = layout
    else:
        known = layout.replicas
        result.layout = _replicated(shape, layout.mesh_shape) if known is None else known[shape]
    return result


def given_out(found: Any, model: Base, limits: Limits) -> Any:
    """Wrap arrays in NumPy's result as distributed ones; NotImplemented if one is too large."""
    if type(found) is _array:
        return _laid_out(found, model, limits)
    if isinstance(found, (tuple, list)):
        items = [given_out(item, model, limits) for item in found]
        large = any(item is NotImplemented for item in items)
        return NotImplemented if large else sequence_like(found, items)
    return found


# -- ufuncs --------------------------------------------------------------------------------------


def answer_to_ufunc(ufunc: np.ufunc, inputs: tuple[Any, ...]) -> Any:
    """Call a ufunc on small arrays, as :func:`answer`, unless the result is much larger."""
    if len(inputs) == 1:
        return answer_for_one(ufunc, inputs[0], whole=True)
    if len(inputs) == 2:
        first, second = inputs
        if isinstance(first, Base) and isinstance(second, Base):
            return answer_to_two(ufunc, first, second)
    return answer(ufunc, inputs, {}, whole=True)


def answer_to_two(ufunc: np.ufunc, x: Base, y: Base) -> Any:
    """Call a ufunc on two arrays, as :func:`answer_to_ufunc`."""
    if ufunc.signature is not None:
        return answer_to_product(ufunc, x, y)
    first, second = own_layout(x), own_layout(y)
    whole = first is not None and second is not None and first.is_whole and second.is_whole
    if not whole or _grows(first.shape, second.shape, in_force().cut_from):
        return NotImplemented
    return _of_blocks(ufunc, x, y)


def answer_to_product(ufunc: np.ufunc, x: Base, y: Base) -> Any:
    """Compute ``x @ y`` or a related product of vectors and matrices; else NotImplemented."""
    layout = whole_product(x.layout, y.layout)
    blocks = None if layout is None or layout.size > MOST else _two_blocks(x, y)
    if blocks is None:
        return NotImplemented
    found = ufunc(*blocks)
    return found if isinstance(found, _scalar) else _laid_out(found, x, in_force().cut_from)


def _of_blocks(act: Callable[..., Any], x: Base, y: Base) -> Any:
    """Call NumPy on the blocks of two small whole arrays; else return NotImplemented."""
    blocks = _two_blocks(x, y)
    if blocks is None:
        return NotImplemented
    return given_out(act(*blocks), x, in_force().cut_from)


def answer_to_method(
    ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Call a ufunc's method that returns a new array, as :func:`answer`."""
    if method not in _METHODS or ufunc not in _FOLDING or "out" in kwargs:
        return NotImplemented
    if method != "outer":
        return answer(getattr(ufunc, method), inputs, kwargs)
    if kwargs or [isinstance(x, Base) for x in inputs] != [True, True]:
        return answer(_outer(ufunc), inputs, kwargs)
    first, second = [x.layout for x in inputs]
    fits = first.size * second.size <= in_force().replicate_below // WIDE
    whole = first.is_replicated and second.is_replicated
    return _of_blocks(ufunc.outer, *inputs) if fits and whole else NotImplemented


@lru_cache(maxsize=64)
def _outer(ufunc: np.ufunc) -> Callable[..., Any]:
    return bounded(ufunc.outer, of_product)


def answer_to_key(x: Base, key: Any) -> Any:
    """Index a small array by a small array; else return NotImplemented."""
    if x.layout.replicas is None or not isinstance(key, Base) or key.layout.replicas is None:
        return NotImplemented
    return _of_blocks(operator.getitem, x, key)


def set_at_mask(x: Base, mask: Any, value: Any) -> bool:
    """Set elements of a small array under a small mask to a number; else return False."""
    if not isinstance(mask, Base) or x.layout.replicas is None or mask.layout.replicas is None:
        return False
    blocks = _two_blocks(x, mask)
    if blocks is None or type(value) not in _SINGLE or blocks[1].dtype != bool:
        return False
    blocks[0][blocks[1]] = value
    return True


def _grows(a: Shape, b: Shape, limits: Limits) -> bool:
    """Return True if the broadcast exceeds both shapes, and may be too large to replicate."""
    if a == b or a[len(a) - len(b) :] == b or b[len(b) - len(a) :] == a:
        return False
    return WIDEST * _grown_size((a, b)) >= limits[1]
