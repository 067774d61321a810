"""``x[key]`` and ``x[key] = value`` for keys that are not basic, and ufuncs' ``at``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, TypeGuard

import numpy as np

from distarray.array import (
    DistArray,
    Objects,
    as_distarray,
    common_mesh,
    implements,
    implements_method,
    wrap,
)
from distarray.array.assigning import brought
from distarray.array.keys import basic_entries, plain_key
from distarray.array.one_rank import Alone
from distarray.array.portable import in_c_order, refuse_read_only
from distarray.array.registry import Row
from distarray.array.sharing import derived
from distarray.array.small import bounded, writer
from distarray.comm import own_mesh
from distarray.engines.indexing import masks, repeats
from distarray.engines.indexing.advanced_keys import AdvancedKey, advanced_key, index_shape
from distarray.engines.indexing.gather import fetch
from distarray.engines.indexing.located import locate
from distarray.engines.indexing.owners import Rows
from distarray.engines.indexing.partial_results import folded
from distarray.engines.indexing.scatter import Apply, assign, store
from distarray.engines.indexing.values import MISMATCH, Values, as_values, is_scalar, plain
from distarray.engines.mapping.every_rank import in_numpys_order
from distarray.layout import Cut
from distarray.typing import Array, ArrayLike, Key

__all__ = ["getitem", "setitem", "ufunc_at"]


def _is_whole_mask(x: DistArray, key: Key, value: ArrayLike | None = None) -> bool:
    return isinstance(key, (DistArray, np.ndarray)) and key.dtype == bool and key.ndim == x.ndim


def _reads_faster(x: DistArray, key: Key) -> bool:
    """Return True if our own reading is faster than NumPy's on one rank, too.

    True for masks of all dimensions, and for keys that do not begin with an array.
    """
    first = key[0] if type(key) is tuple and key else key
    if isinstance(first, (DistArray, np.ndarray)):
        return _is_whole_mask(x, first)
    return not isinstance(first, list) or _names_fields(key)


def _elements(block: Array, key: Key) -> int:
    """Bound the number of elements that a key of several entries can select."""
    if type(key) is not tuple:
        return 0
    arrays = [part for part in key if isinstance(part, np.ndarray)]
    selected = prod({part.shape: part.size for part in arrays}.values())
    points = len(key) == block.ndim and slice not in map(type, key)
    return selected if points else selected * block.size


@implements(
    operator.getitem,
    small=bounded(operator.getitem, _elements),
    at=True,
    computes=False,
    objects=Objects.ENGINE,
    alone=Alone(unless=_reads_faster, by_size=True),
)
def getitem(x: DistArray, key: Key) -> DistArray:
    """Return ``x[key]`` for a key with masks or index arrays: a copy, in NumPy's order.

    Parameters
    ----------
    x : DistArray
        The array. If it is stored at one coordinate of a mesh dimension, so is the result.
    key : object
        Masks and index arrays may be DistArrays, or NumPy arrays and lists, equal on all ranks.

    Returns
    -------
    DistArray
        Dimensions that the key leaves alone keep their cuts. For the layout of the other
        dimensions see :func:`~distarray.engines.indexing.masks.select` for masks, and
        :func:`~distarray.engines.indexing.gather.fetch` for index arrays.

    Cost
    ----
    None if the indexed dimensions are whole. A mask in the layout of the array: one allgather of
    a number. Index arrays that every rank has: one exchange of the rows that change rank, or an
    allgather of a small result. Sharded index arrays: an agreement on the bounds, an all-to-all
    and the exchange.

    Raises
    ------
    IndexError
        On every rank, as in NumPy.
    """
    if _names_fields(key):
        return _fields(x, key)
    if x.dtype.hasobject and x.layout.is_replicated:
        return _of_objects(x, key)
    entries = basic_entries(key, x.shape, arrays=True)
    if entries is not None:
        return _copied(x, key, entries)
    found = _read(x, key)
    view = x.sliced(found.entries)
    if found.is_mask:
        return masks.select(view, found.dims, found.indices[0], found.at)
    rows = Rows(view, found.dims)
    located = locate(rows, found.indices, found.axes)
    return fetch(rows, located, found.at, rows_first=True)


def _of_objects(x: DistArray, key: Key) -> DistArray:
    """Return elements of a replicated array of objects: every rank gets the same objects."""
    parts = key if isinstance(key, tuple) else (key,)
    whole = tuple([part.full() if isinstance(part, DistArray) else part for part in parts])
    return as_distarray(x.block[whole], x.mesh)


def _copied(x: DistArray, key: Key, entries: tuple[Any, ...]) -> DistArray:
    """Return the elements that a key selects whose arrays are all 0-d integers."""
    view = x.sliced(entries)
    if view.ndim or (isinstance(key, tuple) and Ellipsis in key):
        return view.like(view.block.copy(order="K"))
    return view[()]  # type: ignore[no-any-return]


def _ordered(value: Key) -> Any:
    """Return a key, or values, with arrays in C order, so that NumPy reads them in this order."""
    if isinstance(value, tuple):
        return tuple([_ordered(part) for part in value])
    return in_c_order(value) if isinstance(value, np.ndarray) else value


@writer
def _set_at_once(block: Array, key: Key, value: ArrayLike) -> None:
    block[_ordered(key)] = _ordered(value)


@implements(
    operator.setitem,
    small=_set_at_once,
    at=True,
    objects=Objects.ENGINE,
    alone=Alone(unless=_is_whole_mask, function=_set_at_once),
    writes=0,
)
def setitem(x: DistArray, key: Key, value: ArrayLike) -> None:
    """Assign ``x[key] = value`` for a key with masks or index arrays.

    If an element is written several times, it keeps the last value in C order of the index.

    Parameters
    ----------
    x : DistArray
        The array; its layout stays.
    key : object
        The same kinds of keys as for reading.
    value : array_like or DistArray
        Broadcast to the shape of the elements that `key` selects. If it is on another mesh, it is
        redistributed.

    Cost
    ----
    None for index arrays and values that every rank has, and for one value and a mask in the
    layout of the array. Otherwise see :func:`~distarray.engines.indexing.scatter.store` and
    :func:`~distarray.engines.indexing.masks.write`.

    Raises
    ------
    IndexError, ValueError
        On every rank, as in NumPy, before anything is written.
    """
    if _names_fields(key):
        _fields(x, key).assign(value)
        return
    if isinstance(value, DistArray) and own_mesh() is None:
        value = brought(value, x.mesh)
    _write(x, _read(x, key), as_values(value, x.dtype), assign, MISMATCH)


@implements_method("at")
@in_numpys_order("at")
def ufunc_at(
    ufunc: np.ufunc, a: DistArray | Array, indices: Key, b: ArrayLike | None = None, /
) -> None:
    """Apply ``ufunc.at(a, indices, b)`` in place, once for each time that an element is indexed.

    Parameters
    ----------
    ufunc : ufunc
        With one or two operands and one result.
    a : DistArray or ndarray
        Changed in place.
    indices : object
        Key as in ``a[key]``.
    b : array_like or DistArray, optional
        Second operand, broadcast to the shape of the elements that `indices` selects.

    Cost
    ----
    The cost of ``a[indices] = b``; for powers of integers also one allreduce of a truth value. If
    every rank has `a`, and indices and values have more bytes than `a`, see
    :func:`~distarray.engines.indexing.partial_results.folded`.

    Notes
    -----
    Read-only arrays are refused. NumPy refuses them only for basic keys; with other keys it writes.
    """
    _check_at(ufunc, a, b)
    target: Any = a
    if ufunc is np.power and _in_integers(a, b) and _has_negative(b) and target[indices].size:
        raise ValueError("Integers to negative integer powers are not allowed.")
    _AT.answer(ufunc, (ufunc, a, indices, plain(b)), {})


def _in_integers(a: DistArray | Array, b: ArrayLike | None) -> bool:
    """Return True if powers are computed in integers; NumPy computes those of uint64 in floats."""
    given: Any = b
    dtype = given.dtype if hasattr(given, "dtype") else np.asarray(given).dtype
    return np.result_type(a.dtype, dtype).kind in "biu"


def _has_negative(given: ArrayLike | None) -> bool:
    """Return True if one of the values is a negative integer, on any rank."""
    values: Any = given if hasattr(given, "dtype") else np.asarray(given)
    return values.dtype.kind == "i" and bool(np.any(values < 0))


def _at_once(ufunc: np.ufunc, block: Array, key: Key, given: ArrayLike | None) -> None:
    if given is None:
        ufunc.at(block, _ordered(key))
        return
    values = np.asarray(given)
    parts: Any = key if isinstance(key, tuple) else (key,)
    missing = max([np.ndim(part) for part in parts if not isinstance(part, slice)]) - values.ndim
    if values.ndim and missing > 0:  # NumPy misreads values with fewer dimensions than the key
        values = values[(None,) * missing]
    ufunc.at(block, _ordered(key), _ordered(values))


def _at(ufunc: np.ufunc, a: DistArray | Array, indices: Key, b: ArrayLike | None) -> None:
    indices = plain_key(indices)
    mesh = common_mesh(a, b, *(indices if isinstance(indices, tuple) else (indices,)))
    x = as_distarray(a, mesh)
    if x.layout.partials:
        x.settle()

    apply = partial(repeats.ufunc_at, ufunc)
    entries = basic_entries(indices, x.shape, arrays=True)
    text = "array is not broadcastable to correct shape"
    if entries is not None:
        view = x.sliced(entries)
        everything = AdvancedKey((), (), (), (), 0)
        _store(view, everything, b, apply, text)
        return
    key = _read(x, indices)
    if not folded(ufunc, x.sliced(key.entries), key, b, text):
        _write(x, key, b, apply, text)


_AT = Row(_at, alone=Alone(lambda ufunc, a, key, b: _reads_faster(a, key), function=_at_once))


def _check_at(ufunc: np.ufunc, a: DistArray | Array, b: ArrayLike | None) -> None:
    given: Any = a
    if not isinstance(given, (DistArray, np.ndarray)) or is_scalar(given):
        raise TypeError("first operand must be array")
    if ufunc.nin > 2:
        raise ValueError("Only unary and binary ufuncs supported at this time")
    if ufunc.nout != 1:
        raise ValueError("Only single output ufuncs supported at this time")
    if ufunc.nin == 2 and b is None:
        raise ValueError("second operand needed for ufunc")
    if ufunc.nin == 1 and b is not None:
        raise ValueError("second operand provided when ufunc is unary")
    # NumPy raises if the data types do not fit, on every rank; it calls no Python objects here.
    operands = [] if b is None else [np.ones(0, getattr(b, "dtype", None) or np.asarray(b).dtype)]
    ufunc.at(np.ones(0, a.dtype), np.ones(0, np.intp), *operands)
    refuse_read_only(a, "operand array with iterator write flag set is read-only")


def _read(x: DistArray, key: Key) -> AdvancedKey:
    found = advanced_key(key, x.layout, masks.nonzero_arrays)
    common_mesh(x, *found.indices)
    if found.is_mask:
        mask = found.indices[0]
        if masks.is_known(mask) and not masks.stays(x, found.axes, mask):
            # Every rank computes the positions by itself; only elements are sent.
            arrays = tuple(masks.nonzero_arrays(mask))
            return AdvancedKey(found.entries, found.dims, found.axes, arrays, found.at, found.alone)
    return found


def _write(
    x: DistArray, key: AdvancedKey, value: ArrayLike | None, apply: Apply, text: str
) -> None:
    view = x.sliced(key.entries)
    if key.is_mask:
        masks.write(
            view,
            key.dims,
            key.indices[0],
            key.at,
            value,
            alone=key.alone and apply is assign,
            apply=apply,
            text=text,
        )
    else:
        _store(view, key, value, apply, text)


def _store(
    view: DistArray, key: AdvancedKey, value: ArrayLike | None, apply: Apply, text: str
) -> None:
    rows, named = Rows(view, key.dims), index_shape(key.indices)
    if key.alone and apply is assign:
        masks.check_lone(value, prod(named))
    rest = [view.shape[d] for d in rows.rest]
    shape = (*rest[: key.at], *named, *rest[key.at :])
    # In assignment NumPy checks the shapes before the bounds, otherwise after them.
    values = Values(value, shape, key.at, len(named), text) if apply is assign else None
    index = locate(rows, key.indices, key.axes, for_writing=True)
    store(rows, index, values or Values(value, shape, key.at, len(named), text), apply)


# -- fields of structured arrays -----------------------------------------------------------------


def _names_fields(key: Key) -> TypeGuard[str | list[str]]:
    if isinstance(key, str):
        return True
    return isinstance(key, list) and bool(key) and all(isinstance(name, str) for name in key)


def _fields(x: DistArray, names: str | Sequence[str]) -> DistArray:
    """Return a view of fields of a structured array."""
    return derived(x, lambda y: _fields_of(y, names))


def _fields_of(x: DistArray, names: str | Sequence[str]) -> DistArray:
    block = x.block[names]
    inner = [Cut.whole(extent) for extent in block.shape[x.ndim :]]
    layout = x.layout
    return wrap(block, layout.with_cuts([*layout.cuts, *inner]), x.mesh)
