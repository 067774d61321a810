"""union1d, intersect1d, setxor1d and setdiff1d, by one sort of both arrays as in NumPy; isin."""

from math import prod
from typing import Any, Literal, TypeAlias

import numpy as np

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
from distarray.comm import devices
from distarray.config import config
from distarray.engines.reshaping import in_line
from distarray.engines.sorting.counted import shifted, unshifted
from distarray.engines.sorting.distinct_in_block import distinct
from distarray.layout import Fold, Layout
from distarray.ops.sets.unique import unique
from distarray.ops.sorting.search import Haystack
from distarray.typing import Array, ArrayLike, DType

__all__ = ["intersect1d", "isin", "setdiff1d", "setxor1d", "union1d"]

#: Method by which :func:`isin` looks elements up.
Kind: TypeAlias = Literal["sort", "table"] | None


def _pair(ar1: ArrayLike, ar2: ArrayLike) -> tuple[DistArray, DistArray]:
    """Return two operands on their common mesh."""
    mesh = common_mesh(ar1, ar2)
    return as_distarray(ar1, mesh), as_distarray(ar2, mesh)


def _flat(x: DistArray) -> DistArray:
    flat: DistArray = in_line(x)
    return flat.plain()


@implements(np.union1d, objects=Objects.GATHER)
def union1d(ar1: ArrayLike, ar2: ArrayLike) -> DistArray:
    """Return the distinct elements of two arrays; see :func:`numpy.union1d`.

    Cost
    ----
    The cost of ``concatenate`` and :func:`unique`.
    """
    found: DistArray = call(np.unique, call(np.concatenate, (ar1, ar2), axis=None))
    return found


@implements(np.intersect1d, objects=Objects.GATHER)
def intersect1d(
    ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """Return the elements that are in both of two arrays; see :func:`numpy.intersect1d`.

    Cost
    ----
    The cost of :func:`unique` of each array, ``concatenate`` and ``sort``; one element per pair of
    neighbouring ranks; and the masks that select the result.
    """
    x, y = _pair(ar1, ar2)
    places: list[Any] = []
    if assume_unique:
        x, y = _flat(x), _flat(y)
    elif return_indices:
        (x, first), (y, second) = unique(x, True), unique(y, True)
        places = [first, second]
    else:
        x, y = unique(x), unique(y)
    both: Any = np.concatenate([x, y])
    if not return_indices:
        both = np.sort(both)
        return both[:-1][both[1:] == both[:-1]]
    order = np.argsort(both, stable=True)
    both = both[order]
    same = both[1:] == both[:-1]
    indices: list[Any] = [order[:-1][same], order[1:][same] - x.size]
    if places:
        indices = [place[index] for place, index in zip(places, indices, strict=True)]
    return both[:-1][same], *indices


@implements(np.setxor1d, objects=Objects.GATHER)
def setxor1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False) -> DistArray:
    """Return the elements that are in only one of two arrays; see :func:`numpy.setxor1d`.

    Cost
    ----
    The cost of :func:`intersect1d`.
    """
    x, y = _pair(ar1, ar2)
    if not assume_unique:
        x, y = unique(x), unique(y)
    both: Any = np.concatenate([x, y], axis=None)
    if not both.size:
        return both  # type: ignore[no-any-return]
    both = np.sort(both)
    new: Any = np.ones(both.size + 1, bool, like=both)
    new[1:-1] = both[1:] != both[:-1]
    found: DistArray = both[new[1:] & new[:-1]]
    return found


@implements(np.setdiff1d, objects=Objects.GATHER)
def setdiff1d(ar1: ArrayLike, ar2: ArrayLike, assume_unique: bool = False) -> DistArray:
    """Return the elements of one array that are not in another; see :func:`numpy.setdiff1d`.

    Cost
    ----
    The cost of :func:`unique` of both arrays and :func:`isin`.
    """
    x, y = _pair(ar1, ar2)
    if assume_unique:
        x = _flat(x)
        inside = isin(x, y, True)
    else:
        x, y = unique(x), unique(y)
        inside = _inside(x, y, False, None, distinct=True, ascends=True)
    found: DistArray = x[~inside]
    return found


@implements(np.isin, objects=Objects.GATHER)
def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: Kind = None,
) -> DistArray:
    """Return True for the elements of an array that are in another one; see :func:`numpy.isin`.

    Parameters
    ----------
    element : DistArray or array_like
        Any placement.
    test_elements : DistArray or array_like
        The elements to look for.
    assume_unique : bool
        True if no element of either array repeats, which saves time. If an element does repeat, the
        result is arbitrary, as in NumPy.
    invert : bool
        True to mark the elements that are not in the other array.
    kind : {None, "sort", "table"}
        As in NumPy; decides which arguments raise, not how elements are looked up.

    Returns
    -------
    DistArray
        In the layout of `element`.

    Cost
    ----
    Nothing if every rank has `test_elements`, one exchange if they are small. Integers with fewer
    possible values than a block has bytes: one allreduce of a byte for each possible value.
    Otherwise the cost of :func:`unique` of `test_elements`; if few of them are distinct, nothing
    more. If many are distinct, an all-to-all of this rank's distinct elements and an exchange of
    the results, a byte each.
    """
    x, test = _pair(element, test_elements)
    _check_kind(x, test, kind)
    return _inside(x, test, bool(invert), kind, distinct=bool(assume_unique))


def _inside(
    element: DistArray,
    test: DistArray,
    invert: bool,
    kind: Kind,
    *,
    distinct: bool = False,
    ascends: bool = False,
) -> DistArray:
    """Compute :func:`isin` for checked arguments.

    With `distinct` no element of either array repeats; with `ascends` `test` is sorted.
    """
    if _differ(element, test):
        return call(np.full_like, element, invert, bool)  # type: ignore[no-any-return]
    known = _known(element, test, kind, distinct and ascends)
    block = devices.to_host(element.mesh.asarray(element.block))
    if isinstance(known, DistArray):
        found = _looked_up(block, known, np.result_type(element.dtype, test.dtype))
        found = ~found if invert else found
    else:
        found = np.isin(block, known, distinct, invert, kind=kind)
    return wrap(element.mesh.asarray(found), element.layout, element.mesh)


def _differ(element: DistArray, test: DistArray) -> bool:
    """Return True if no elements are equal because the arrays have no common data type.

    With few elements NumPy compares one by one and finds no equal pair. With many elements it sorts
    both together, and raises. The sizes of the whole arrays decide, so all ranks raise.
    """
    try:
        np.concatenate([np.zeros(0, element.dtype), np.zeros(0, test.dtype)])
    except TypeError:
        if test.size >= 10 * element.size**0.145:
            raise
        if not test.size:
            return True
        return not np.any(np.zeros(1, element.dtype) == np.zeros(1, test.dtype))  # may raise
    return False


def _known(element: DistArray, test: DistArray, kind: Kind, ready: bool) -> DistArray | Array:
    """Return the elements to look for: whole on every rank's host, or as a sorted, cut array."""
    mesh = test.mesh
    parts = prod([cut.parts for cut in test.layout.cuts])
    if parts > 1 and test.size and test.nbytes >= config.replicate_below:
        integers = element.dtype.kind in "iub" and test.dtype.kind in "iub"
        values = _tabulated(element, test) if integers and kind != "sort" else None
        if values is not None:
            return values
        if ready:
            return test
        test = call(np.unique, test.astype(np.result_type(element.dtype, test.dtype), copy=False))
        if test.layout.cuts[0].parts > 1:
            return test
    elif parts > 1:
        test = to_layout(test, Layout.replicated(test.shape, mesh.shape))
    return devices.to_host(mesh.asarray(test.block))


def _tabulated(element: DistArray, test: DistArray) -> Array | None:
    """Find the distinct integers by a table of all possible ones; None if there are too many."""
    mesh = test.mesh
    if mesh.coords is None:
        return np.empty(0, test.dtype)
    low, high = (int(found) for found in (test.min(), test.max()))
    # The table is no larger than a rank's block of the arrays.
    if high - low >= max(element.nbytes, test.nbytes) // mesh.size():
        return None
    seen = np.zeros(high - low + 1, bool)
    block = devices.to_host(mesh.asarray(test.block))
    seen[shifted(block.reshape(-1), low)] = True
    mesh_dims = sorted({m for cut in test.layout.cuts for m in cut.mesh_dims})
    seen = mesh.subgroup(tuple(mesh_dims)).allreduce(seen, Fold.ANY, "elements looked for")
    return unshifted(np.flatnonzero(seen), low, test.dtype)


def _looked_up(block: Array, test: DistArray, kind: DType) -> Array:
    """Return True for elements of this rank's block that are in a sorted, cut array."""
    if test.mesh.coords is None:
        return np.zeros(block.shape, bool)
    flat = block.astype(kind, copy=False).reshape(-1)
    own = distinct(flat, False, False, True, equal_nan=True)
    here = devices.to_host(test.mesh.asarray(test.block))

    def answer(part: Array) -> Array:
        place: Any = np.searchsorted(here, part)
        inside: Array = place < len(here)
        inside[inside] = here[place[inside]] == part[inside]
        return inside

    found = Haystack(test).ask(own.keys, "left", answer, np.dtype(bool))
    result: Array = found[own.inverse].reshape(block.shape)
    return result


def _check_kind(element: DistArray, test: DistArray, kind: Kind) -> None:
    """Raise NumPy's exceptions about `kind`."""
    np.isin(np.zeros(1, element.dtype), np.zeros(0, test.dtype), kind=kind)
    if kind == "table" and test.size:
        low, high = (int(found) for found in (test.min(), test.max()))
        probe = np.array([low, high]).astype(test.dtype)
        np.isin(np.zeros(0, element.dtype), probe, kind=kind)
