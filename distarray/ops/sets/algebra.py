"""What two arrays have in common, or not: by one sort of both, as NumPy does it."""

from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, call, common_mesh, implements, to_layout, wrap
from distarray.comm import devices
from distarray.config import config
from distarray.layout import Layout
from distarray.ops.sets.unique import unique
from distarray.ops.sorting.searching import Haystack

__all__ = ["intersect1d", "isin", "setdiff1d", "setxor1d", "union1d"]

Array = Any


def _pair(ar1: Any, ar2: Any) -> tuple[Any, Any]:
    mesh = common_mesh(ar1, ar2)
    return as_distarray(ar1, mesh), as_distarray(ar2, mesh)


def _flat(x: DistArray) -> DistArray:
    flat: DistArray = call(np.ravel, x)
    return flat._plain()


@implements(np.union1d)
def union1d(ar1: Any, ar2: Any) -> DistArray:
    """The distinct elements of two arrays; see :func:`numpy.union1d`.

    Cost
    ----
    As ``concatenate`` and :func:`unique`.
    """
    found: DistArray = unique(np.concatenate(_pair(ar1, ar2), axis=None))
    return found


@implements(np.intersect1d)
def intersect1d(
    ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False
) -> Any:
    """The elements that two arrays have in common; see :func:`numpy.intersect1d`.

    Cost
    ----
    As :func:`unique` of each array, ``concatenate`` and ``sort``; one element a pair of
    neighbouring ranks; and the masks that select the result.
    """
    ar1, ar2 = _pair(ar1, ar2)
    places: list[Any] = []
    if assume_unique:
        ar1, ar2 = _flat(ar1), _flat(ar2)
    elif return_indices:
        (ar1, first), (ar2, second) = unique(ar1, True), unique(ar2, True)
        places = [first, second]
    else:
        ar1, ar2 = unique(ar1), unique(ar2)
    both = np.concatenate([ar1, ar2])
    if not return_indices:
        both = np.sort(both)
        return both[:-1][both[1:] == both[:-1]]
    order = np.argsort(both, stable=True)
    both = both[order]
    same = both[1:] == both[:-1]
    indices: list[Any] = [order[:-1][same], order[1:][same] - ar1.size]
    if places:
        indices = [place[index] for place, index in zip(places, indices, strict=True)]
    return both[:-1][same], *indices


@implements(np.setxor1d)
def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> DistArray:
    """The elements that are in one of two arrays only; see :func:`numpy.setxor1d`.

    Cost
    ----
    As :func:`intersect1d`.
    """
    ar1, ar2 = _pair(ar1, ar2)
    if not assume_unique:
        ar1, ar2 = unique(ar1), unique(ar2)
    both: Any = np.concatenate([ar1, ar2], axis=None)
    if not both.size:
        return both  # type: ignore[no-any-return]
    both = np.sort(both)
    new = np.ones(both.size + 1, bool, like=both)
    new[1:-1] = both[1:] != both[:-1]
    found: DistArray = both[new[1:] & new[:-1]]
    return found


@implements(np.setdiff1d)
def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> DistArray:
    """The elements of one array that are not in another; see :func:`numpy.setdiff1d`.

    Cost
    ----
    As :func:`unique` of the first array and :func:`isin`.
    """
    ar1, ar2 = _pair(ar1, ar2)
    ar1 = _flat(ar1) if assume_unique else unique(ar1)
    found: DistArray = ar1[isin(ar1, ar2, assume_unique=True, invert=True)]
    return found


@implements(np.isin)
def isin(
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    kind: Any = None,
) -> DistArray:
    """Which elements of an array are in another one; see :func:`numpy.isin`.

    Parameters
    ----------
    element : DistArray or array_like
        Any placement.
    test_elements : DistArray or array_like
        What is looked for.
    assume_unique : bool
        Not needed here.
    invert : bool
        Which are not, instead.
    kind : {None, "sort", "table"}
        As in NumPy; it decides what is refused, not what is done.

    Returns
    -------
    DistArray
        Laid out as `element`.

    Cost
    ----
    Nothing if every rank has `test_elements`. Otherwise as :func:`unique` of it; if it has few
    distinct elements, nothing more. If it has many, an all-to-all of this rank's distinct
    elements and an exchange of the answers, a byte each.
    """
    element, test = _pair(element, test_elements)
    _check_kind(element, test, kind)
    mesh = element._mesh
    if element.dtype.hasobject or test.dtype.hasobject:
        test = to_layout(test, Layout.replicated(test.shape, mesh.shape))
    elif not test._layout.is_replicated:
        test = _found_once(test, np.result_type(element.dtype, test.dtype))
    block = devices.to_host(mesh.asarray(element._block))
    if test._layout.is_replicated:
        known = devices.to_host(mesh.asarray(test._block))
        found = np.isin(block, known, invert=bool(invert), kind=kind)
    else:
        found = _looked_up(block, test, np.result_type(element.dtype, test.dtype))
        found = ~found if invert else found
    return wrap(mesh.asarray(found), element._layout, mesh)


def _found_once(test: DistArray, kind: np.dtype[Any]) -> DistArray:
    """The distinct ones among the elements that are looked for."""
    if test.nbytes < config.replicate_below:
        return to_layout(test, Layout.replicated(test.shape, test._mesh.shape))
    found: DistArray = unique(test.astype(kind, copy=False))
    return found


def _looked_up(block: Array, test: DistArray, kind: np.dtype[Any]) -> Array:
    """Which elements of this rank's block are in a sorted array that is cut."""
    if test._mesh.coords is None:
        return np.zeros(block.shape, bool)
    values, inverse = np.unique(block.astype(kind, copy=False), return_inverse=True)
    here = devices.to_host(test._mesh.asarray(test._block))

    def answer(part: Array) -> Array:
        place = np.searchsorted(here, part)
        inside = place < len(here)
        inside[inside] = here[place[inside]] == part[inside]
        return inside

    found = Haystack(test).ask(values, "left", answer, np.dtype(bool))
    return found[inverse].reshape(block.shape)


def _check_kind(element: DistArray, test: DistArray, kind: Any) -> None:
    """Raise what NumPy raises about `kind`."""
    np.isin(np.zeros(1, element.dtype), np.zeros(1, test.dtype), kind=kind)
    if kind == "table" and test.size:
        low, high = (int(found.full()) for found in (test.min(), test.max()))
        probe = np.array([low, high]).astype(test.dtype)
        np.isin(np.zeros(0, element.dtype), probe, kind=kind)
