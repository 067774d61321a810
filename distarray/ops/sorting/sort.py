"""sort, argsort, lexsort and sort_complex."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import (
    DistArray,
    Objects,
    as_distarray,
    call,
    common_mesh,
    implements,
    to_layout,
    wrap,
)
from distarray.array.portable import refuse_read_only
from distarray.array.probes import tiny
from distarray.comm import devices
from distarray.engines.blockwise import prepare
from distarray.engines.reshaping import in_line
from distarray.engines.sorting.along_axis import Line, Work, along_axis
from distarray.engines.sorting.packed_records import packed, packed_type, unpacked
from distarray.engines.sorting.parallel_sort import order_line, sort_line
from distarray.engines.sorting.sort_in_block import sort_block, sorted_values, stable_order
from distarray.layout import Layout
from distarray.typing import Array, ArrayLike, Axis, DType

__all__ = [
    "Fields",
    "argsort",
    "comparable",
    "lexsort",
    "sort",
    "sort_complex",
    "sort_in_place",
    "viewed",
]

#: Fields of records to compare first.
Fields: TypeAlias = str | Sequence[str] | None

_INDEX = np.dtype(np.intp)
_SIGN, _ONE = np.uint64(1 << 63), np.uint64(1)


@implements(np.sort, objects=Objects.GATHER)
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: Fields = None,
    *,
    stable: bool | None = None,
) -> DistArray:
    """Return a sorted copy of an array; see :func:`numpy.sort`.

    Parameters
    ----------
    a : DistArray or array_like
        Any placement.
    axis : int or None
        None sorts the flattened array.
    kind, stable
        As in NumPy; every sort here is stable.
    order : str or sequence of str, optional
        The fields to compare first.

    Returns
    -------
    DistArray
        In the layout of `a`, with the canonical cut of the axis; small arrays whose axis is cut are
        replicated.

    Cost
    ----
    Nothing if the axis is whole. If another dimension is long enough to be cut instead, two
    exchanges. A long cut axis: two rounds of messages of about ``sqrt(n * p)`` keys for the exact
    cuts (see :mod:`~distarray.engines.sorting.splitters`), one all-to-all of elements that change
    rank, and memory for twice the block. ``axis=None`` flattens first, like ``ravel``.

    Notes
    -----
    The result is the same, bit for bit, on any number of ranks. NaN and NaT come last.
    """
    x, axis = _operand(np.sort, a, axis, kind=kind, order=order, stable=stable)
    if not x.ndim or x.dtype.hasobject:
        return _by_numpy(np.sort, x, axis, kind="stable", order=order)
    keys, axis = comparable(x, order), normalize_axis_index(axis, x.ndim)
    return viewed(_sorted(keys, axis), x.dtype)


@implements(DistArray.sort, writes=0, at=True, objects=Objects.ENGINE)
def sort_in_place(
    x: DistArray,
    axis: int = -1,
    kind: str | None = None,
    order: Fields = None,
    *,
    stable: bool | None = None,
) -> None:
    """Sort ``x`` as :func:`sort` does, in the array's own layout and memory."""
    if not x.layout.is_plain or x.dtype.hasobject or not x.ndim:
        x[...] = call(np.sort, x, axis, kind, order, stable=stable)
        return
    _operand(np.sort, x, axis, kind=kind, order=order, stable=stable)
    refuse_read_only(x, "sort array is read-only")
    axis = normalize_axis_index(axis, x.ndim)
    keys = comparable(x, order)
    if keys is x and x.layout.cuts[axis].parts == 1:
        sort_block(x.block, axis)
        return
    # The blocks of a reversed view do not ascend with the ranks.
    target = x.layout if x.layout.cuts[axis].step > 0 else None
    found = viewed(_sorted(keys, axis, target), x.dtype)
    x.block[...] = to_layout(found, x.layout).block


def _sorted(keys: DistArray, axis: int, target: Layout | None = None) -> DistArray:
    def whole(blocks: Sequence[Array], axis: int) -> Array:
        return sorted_values(blocks[0], axis)

    def spread(parts: Sequence[Array], line: Line) -> Array:
        return sort_line(line.group, parts[0], line.lengths, line.stops)

    return along_axis([keys], axis, Work(whole, spread, keys.dtype), target)


@implements(np.argsort, objects=Objects.GATHER)
def argsort(
    a: ArrayLike,
    axis: int | None = -1,
    kind: str | None = None,
    order: Fields = None,
    *,
    stable: bool | None = None,
) -> DistArray:
    """Return the indices that sort an array; see :func:`numpy.argsort`.

    Equal elements keep their order, for every `kind`. The result has the layout of :func:`sort`'s.

    Cost
    ----
    The cost of :func:`sort`, with an index of 8 bytes sent with each element.
    """
    x, axis = _operand(np.argsort, a, axis, kind=kind, order=order, stable=stable)
    if not x.ndim or x.dtype.hasobject:
        return _by_numpy(np.argsort, x, axis, kind="stable", order=order)
    keys, axis = comparable(x, order), normalize_axis_index(axis, x.ndim)
    return _ordered(keys, axis)


def _ordered(keys: DistArray, axis: int) -> DistArray:
    def whole(blocks: Sequence[Array], axis: int) -> Array:
        return stable_order(blocks[0], axis)

    def spread(parts: Sequence[Array], line: Line) -> Array:
        return order_line(line.group, parts[0], line.lengths, line.stops)

    return along_axis([keys], axis, Work(whole, spread, _INDEX))


def _operand(
    function: Callable[..., Any],
    a: ArrayLike,
    axis: Axis,
    **keywords: str | Sequence[str] | bool | None,
) -> tuple[DistArray, Any]:
    """Return the operand, flattened if `axis` is None, and the axis; raise NumPy's exceptions."""
    x = as_distarray(a)
    order = keywords["order"]
    if isinstance(order, list):
        keywords["order"] = tuple(order)
    _check(function, len(x.shape), x.dtype, axis, **keywords)
    return (in_line(x).plain(), -1) if axis is None else (x, axis)


@lru_cache(maxsize=1024, typed=True)  # NumPy accepts neither a truth value nor 1.0 for 1
def _check(
    function: Callable[..., Any],
    ndim: int,
    dtype: DType,
    axis: Axis,
    **keywords: str | tuple[str, ...] | bool | None,
) -> None:
    order = keywords.pop("order")
    fields = list(order) if isinstance(order, tuple) else order
    function(np.zeros((1,) * ndim, dtype), axis=axis, order=fields, **keywords)


def _by_numpy(
    function: Callable[..., Any], x: DistArray, axis: Axis, **keywords: str | Sequence[str] | None
) -> DistArray:
    """Return NumPy's result for a 0-d array, or Python objects, which are whole on every rank."""
    block = x.mesh.asarray(x.block)
    return as_distarray(function(block, axis=axis, **keywords), x.mesh)


def comparable(x: DistArray, order: Fields = None) -> DistArray:
    """Return the array in a data type whose elements compare by the fields in `order` first."""
    dtype = x.dtype
    if dtype.names is not None:
        keys = packed(x.block, _in_turn(dtype.names, order))
        return x if keys is x.block else x.like(keys)
    if not dtype.isnative:
        x = x.like(x.block.astype(dtype.newbyteorder("=")))
    if dtype.kind in "mM":  # NumPy sorts integers several times faster; NaT becomes the greatest
        return x.like((x.block.view(np.uint64) ^ _SIGN) - _ONE)
    return x


def _in_turn(names: tuple[str, ...], order: Fields) -> tuple[str, ...]:
    """Return the fields in the order in which they are compared."""
    first = [order] if isinstance(order, str) else list(order or ())
    return (*first, *[name for name in names if name not in first])


def viewed(x: DistArray, dtype: DType) -> DistArray:
    """Return the array with the data type that it had before `comparable`."""
    if x.dtype == dtype:
        return x
    if dtype.kind in "mM":
        native = ((x.block + _ONE) ^ _SIGN).view(dtype.newbyteorder("="))
        return x.like(native.astype(dtype, copy=False))
    return x.like(unpacked(x.block, dtype))


@implements(np.sort_complex, objects=Objects.GATHER)
def sort_complex(a: ArrayLike) -> DistArray:
    """Return a sorted copy of an array, as complex numbers; see :func:`numpy.sort_complex`.

    Cost
    ----
    The cost of :func:`sort` along the last axis.
    """
    found = sort(a)
    if found.dtype.kind == "c":
        return found
    kind = np.sort_complex(np.zeros(1, found.dtype)).dtype
    cast: DistArray = found.astype(kind)
    return cast


# -- several keys --------------------------------------------------------------------------------


@implements(np.lexsort, objects=Objects.GATHER)
def lexsort(keys: ArrayLike, axis: int = -1) -> DistArray:
    """Return the indices that sort by several keys, last key first; see :func:`numpy.lexsort`.

    Parameters
    ----------
    keys : sequence of array_like, or array
        Keys, all of one shape.
    axis : int
        The axis to sort along.

    Returns
    -------
    DistArray
        In the layout of the keys.

    Cost
    ----
    The cost of :func:`argsort`; all keys of an element are sent with it.
    """
    given: Any = keys
    listed = list(given)
    mesh = common_mesh(*listed)
    arrays = [as_distarray(key, mesh) for key in listed]
    probes = [tiny(x.shape, x.dtype) for x in arrays]
    if len({x.shape for x in arrays}) > 1:
        probes = [np.zeros(number) for number in range(len(arrays))]  # NumPy raises for them
    np.lexsort(probes, axis)
    if not arrays[0].ndim or any(x.dtype.hasobject for x in arrays):
        blocks = [devices.to_host(mesh.asarray(x.block)) for x in arrays]
        return as_distarray(np.lexsort(blocks, axis), mesh)
    blocks, layout, mesh = prepare(*arrays)
    arrays = [wrap(block, layout, mesh) for block in blocks]
    return along_axis(
        arrays, normalize_axis_index(axis, layout.ndim), Work(_lex, _lex_line, _INDEX)
    )


def _lex(blocks: Sequence[Array], axis: int) -> Array:
    """Compute ``np.lexsort`` by stable sorts that are several times as fast."""
    order = stable_order(blocks[0], axis)
    for block in blocks[1:]:
        found = stable_order(np.take_along_axis(block, order, axis), axis)
        order = np.take_along_axis(order, found, axis)
    return order


def _lex_line(parts: Sequence[Array], line: Line) -> Array:
    """Return this rank's section of the order, on the host: devices have no structured keys."""
    found = _lex_spread([devices.to_host(part) for part in parts], line)
    return devices.back(found, parts[0]) if devices.on_device(parts[0]) else found


def _lex_spread(parts: Sequence[Array], line: Line) -> Array:
    """Order by the keys as one structured key, the most important field first."""
    # In records NumPy sorts a NaN of half precision before all numbers, but not one of single.
    kinds = [np.dtype("f4") if p.dtype.char == "e" else packed_type(p.dtype) for p in parts]
    fields = [(f"f{number}", kind) for number, kind in enumerate(reversed(kinds))]
    joint = np.empty(len(parts[0]), fields)
    for (name, _), part in zip(fields, reversed(parts), strict=True):
        joint[name] = part
    return order_line(line.group, joint, line.lengths, line.stops, _by_fields, _by_fields)


def _by_fields(keys: Array) -> Array:
    return _lex([keys[name] for name in reversed(keys.dtype.names or ())], 0)
