"""unique and its relatives of the array API."""

from functools import cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, Objects, as_distarray, call, implements, to_layout, wrap
from distarray.comm import DeviceMesh, devices
from distarray.config import config
from distarray.engines.reshaping import in_line
from distarray.engines.sorting.distinct import Merged, merge
from distarray.engines.sorting.distinct_in_block import Distinct, distinct
from distarray.engines.sorting.packed_records import packed, packed_type, unpacked
from distarray.engines.sorting.parallel_sort import lengths_of
from distarray.layout import Cut, Layout
from distarray.typing import Array, ArrayLike, Axis

__all__ = ["unique", "unique_all", "unique_counts", "unique_inverse", "unique_values"]

_INDEX = np.dtype(np.intp)
_Asked = tuple[bool, bool, bool]
_unique: Any = np.unique
#: NumPy's named tuples, which it does not export.
_ALL: Any = type(np.unique_all(np.empty(0)))
_COUNTS: Any = type(np.unique_counts(np.empty(0)))
_INVERSE: Any = type(np.unique_inverse(np.empty(0)))


def _ascending(*args: Any, sorted: bool = True, **kwargs: Any) -> Any:
    """Call NumPy's function for small whole arrays; it always sorts: `sorted` is not passed on."""
    return _unique(*args, **kwargs)


@implements(np.unique, objects=Objects.GATHER, small=_ascending)
def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    sorted: bool = True,
) -> Any:
    """Return the distinct elements of an array, ascending; see :func:`numpy.unique`.

    Parameters
    ----------
    ar : DistArray or array_like
        Any placement.
    return_index, return_inverse, return_counts : bool
        True to return also the first position of each distinct element, the position of each
        element of `ar` among the distinct ones, and the count of each distinct element.
    axis : int, optional
        Axis along which slices are compared instead of elements.
    equal_nan : bool
        True if all NaN count as one element.
    sorted : bool
        Has no effect: the elements always ascend.

    Returns
    -------
    DistArray, or a tuple of them
        Few distinct elements are replicated; many are cut in ascending order, in blocks of about
        equal length. The inverse has the layout of `ar`.

    Cost
    ----
    Every rank finds its own distinct elements. If these are few (`config.replicate_below` bytes in
    total), an allgather of them. Otherwise two rounds of messages for the cuts, an all-to-all of
    the elements that change rank, and another of as many numbers for each further result. With an
    axis, the slices are first made whole.

    Notes
    -----
    Of several equal elements that differ (0.0 and -0.0), the first one is returned.
    """
    x = as_distarray(ar)
    asked = bool(return_index), bool(return_inverse), bool(return_counts)
    if x.dtype.hasobject:
        return _by_numpy(x, asked, axis, equal_nan, sorted)
    if axis is not None:
        axis = normalize_axis_index(axis, x.ndim)
    if axis is None or x.ndim == 1:
        once = equal_nan or (x.dtype.kind in "mM" and _hashes_nat(x.dtype.kind, asked))
        return _listed(_elements(x, asked, once))
    return _listed(_slices(x, asked, axis))


@cache
def _hashes_nat(kind: str, asked: _Asked) -> bool:
    """Return True if NumPy always lists NaT once: some versions do, for dates, where they hash."""
    found = _unique(np.array(["NaT", "NaT"], f"{kind}8[s]"), *asked, equal_nan=False)
    return len(found[0] if any(asked) else found) == 1


def _listed(found: list[DistArray]) -> Any:
    return found[0] if len(found) == 1 else tuple(found)


def _by_numpy(x: DistArray, asked: _Asked, axis: Axis, equal_nan: bool, sorted: bool) -> Any:
    """Return NumPy's result for Python objects, which are whole on every rank."""
    found: Any = np.unique(x.block, *asked, axis, equal_nan=equal_nan, sorted=sorted)  # type: ignore[call-overload]
    if not isinstance(found, tuple):
        return as_distarray(found, x.mesh)
    return tuple([as_distarray(array, x.mesh) for array in found])


# -- elements ------------------------------------------------------------------------------------


def _elements(x: DistArray, asked: _Asked, equal_nan: bool) -> list[DistArray]:
    """Return the distinct elements, and the other requested results."""
    if not equal_nan and x.dtype.kind in "fcmM" and bool(np.isnan(x).any()):
        return _with_every_nan(x, asked)
    kind = x.dtype
    if packed_type(kind) != kind:
        x = x.like(packed(x.block))
    by_flat_position = x.dtype.kind in "fcV" and not _in_order(x.layout)
    block = devices.to_host(x.mesh.asarray(x.block))
    flat = block.reshape(-1)
    own = distinct(flat, asked[0] or by_flat_position, asked[2], asked[1], equal_nan)
    if own.first is not None:
        own.first = _global(own.first, block.shape, x)
    merged = _merged(x.layout, x.mesh, own, equal_nan)
    values, first, count = _placed(merged, x)
    result = [values if kind == values.dtype else values.like(unpacked(values.block, kind))]
    if asked[0]:
        result.append(first)
    if asked[1]:
        inverse: Any = merged.found.inverse
        numbers = inverse[own.inverse].reshape(block.shape)
        result.append(wrap(x.mesh.asarray(numbers), x.layout, x.mesh))
    return [*result, count] if asked[2] else result


def _in_order(layout: Layout) -> bool:
    """Return True if the ranks' blocks follow one another in C order."""
    cutting = [dim for dim, cut in enumerate(layout.cuts) if cut.parts > 1]
    if not cutting:
        return True
    first = cutting[0]
    whole = all(extent <= 1 for extent in layout.shape[:first])
    return len(cutting) == 1 and whole and layout.cuts[first].step > 0


def _global(places: Array, shape: tuple[int, ...], x: DistArray) -> Array:
    """Convert places in the flattened block to places in the flattened array."""
    if x.layout.is_replicated or not places.size:
        return places
    starts = [start for start, _ in x.layout.section(x.mesh.coords)]
    found = np.unravel_index(places, shape)
    return np.ravel_multi_index(
        tuple([index + start for index, start in zip(found, starts, strict=True)]), x.shape
    )


def _merged(layout: Layout, mesh: DeviceMesh, own: Distinct, equal_nan: bool) -> Merged:
    mesh_dims = _cutting(layout)
    if not mesh_dims or mesh.coords is None:
        if own.inverse is not None:
            own = Distinct(own.keys, own.first, own.count, np.arange(len(own.keys)))
        return Merged(own, None)
    return merge(mesh.subgroup(mesh_dims), own, equal_nan, config.replicate_below)


def _cutting(layout: Layout) -> tuple[int, ...]:
    """Return the mesh dimensions along which ranks have different elements, in order."""
    cutting = [cut.mesh_dims for cut in layout.cuts if cut.parts > 1]
    if len(cutting) == 1:
        return cutting[0]
    return tuple(sorted([m for mesh_dims in cutting for m in mesh_dims]))


def _placed(merged: Merged, x: DistArray) -> list[Any]:
    """Return the distinct elements, their first positions and their counts as arrays."""
    mesh = x.mesh
    if merged.counts is None:
        cut = Cut.whole(len(merged.found.keys))
    else:
        mesh_dims = _cutting(x.layout)
        cut = Cut.ragged(merged.counts, mesh_dims, tuple([mesh.shape[m] for m in mesh_dims]))
    layout = Layout.from_cuts([cut], mesh.shape)
    found = merged.found
    blocks: list[Array | None] = [found.keys, found.first, found.count]
    return [None if block is None else wrap(mesh.asarray(block), layout, mesh) for block in blocks]


def _with_every_nan(x: DistArray, asked: _Asked) -> list[DistArray]:
    """Return the distinct elements if no NaN equals another: each NaN is listed."""
    flat: Any = in_line(x).plain()
    lost = np.isnan(flat)
    numbers, nans = np.flatnonzero(~lost), np.flatnonzero(lost)
    rest, missing = flat[numbers], flat[nans]
    values, *others = _elements(rest, (True, asked[1], True), True)
    order = np.argsort(missing, stable=True)
    joined: Any = np.concatenate([values, missing[order]])  # in native byte order
    result: list[Any] = [joined.astype(x.dtype, copy=False)]
    if asked[0]:
        result.append(np.concatenate([numbers[others[0]], nans[order]]))
    if asked[1]:
        inverse = np.empty(flat.shape, _INDEX, like=flat)
        inverse[numbers] = others[1]
        inverse[nans[order]] = np.arange(values.size, values.size + nans.size, like=flat)
        result.append(np.reshape(inverse, x.shape))
    if asked[2]:
        result.append(np.concatenate([others[-1], np.ones(nans.shape, _INDEX, like=flat)]))
    return result


# -- slices --------------------------------------------------------------------------------------


def _slices(x: DistArray, asked: _Asked, axis: int) -> list[DistArray]:
    """Return the distinct slices along an axis, compared as in NumPy: element by element."""
    mesh, kind = x.mesh, x.dtype
    y: Any = call(np.moveaxis, x, axis, 0)
    if packed_type(kind) != kind:
        y = y.like(packed(y.block))
    mesh_dims = _cutting(x.layout)
    radix = tuple([mesh.shape[m] for m in mesh_dims])
    cuts = [Cut.chunked(y.shape[0], mesh_dims, radix), *[Cut.whole(n) for n in y.shape[1:]]]
    y = to_layout(y, Layout.from_cuts(cuts, mesh.shape))
    rows = devices.to_host(mesh.asarray(y.block))
    keys = _consolidated(rows)
    own = distinct(keys, *asked[:1], asked[2], asked[1], False)
    first: Any = own.first
    if first is not None and mesh.coords is not None:
        lengths = lengths_of(cuts[0])
        own.first = first + sum(lengths[: cuts[0].part(mesh.coords)])
    merged = _merged(y.layout, mesh, own, False)
    values, first, count = _placed(merged, y)
    found = merged.found.keys
    block = found.view(y.dtype) if found.dtype.itemsize else np.empty(0, y.dtype)
    block = mesh.asarray(unpacked(block.reshape(len(found), *y.shape[1:]), kind))
    shaped = [*values.layout.cuts, *cuts[1:]]
    rows_of = wrap(block, Layout.from_cuts(shaped, mesh.shape), mesh)
    result = [call(np.moveaxis, rows_of, 0, axis)]
    if asked[0]:
        result.append(first)
    if asked[1]:
        inverse: Any = merged.found.inverse
        numbers = mesh.asarray(inverse[own.inverse])
        result.append(wrap(numbers, Layout.from_cuts(cuts[:1], mesh.shape), mesh))
    return [*result, count] if asked[2] else result


def _consolidated(rows: Array) -> Array:
    """Return each row as one element of a structured type."""
    flat = np.ascontiguousarray(rows.reshape(len(rows), int(np.prod(rows.shape[1:]))))
    kind = [(f"f{number}", flat.dtype) for number in range(flat.shape[1])]
    return flat.view(kind).reshape(-1) if kind else np.empty(len(flat), kind)


# -- functions of the array API standard ---------------------------------------------------------


@implements(np.unique_all, objects=Objects.GATHER)
def unique_all(x: ArrayLike) -> Any:
    """Return distinct elements, first places, inverse and counts; see :func:`numpy.unique_all`.

    Cost
    ----
    The cost of :func:`unique`.
    """
    return _ALL(*unique(x, True, True, True, equal_nan=False))


@implements(np.unique_counts, objects=Objects.GATHER)
def unique_counts(x: ArrayLike) -> Any:
    """Return distinct elements and the count of each; see :func:`numpy.unique_counts`.

    Cost
    ----
    The cost of :func:`unique`.
    """
    return _COUNTS(*unique(x, return_counts=True, equal_nan=False))


@implements(np.unique_inverse, objects=Objects.GATHER)
def unique_inverse(x: ArrayLike) -> Any:
    """Return distinct elements and the inverse; see :func:`numpy.unique_inverse`.

    Cost
    ----
    The cost of :func:`unique`.
    """
    return _INVERSE(*unique(x, return_inverse=True, equal_nan=False))


@implements(np.unique_values, objects=Objects.GATHER, small=False)  # NumPy's results are not sorted
def unique_values(x: ArrayLike) -> DistArray:
    """Return distinct elements in ascending order; see :func:`numpy.unique_values`.

    Cost
    ----
    The cost of :func:`unique`.
    """
    found: DistArray = unique(x, equal_nan=False)
    return found
