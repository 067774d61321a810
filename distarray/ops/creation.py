"""NumPy's functions that make arrays of a given shape; each rank makes only its own block.

All take NumPy's parameters, and `mesh` and `placements` as :func:`distarray.distribute` does.
Without these two, large arrays are cut along one dimension and small ones replicated
(`config.replicate_below`). ``like=`` names an array whose mesh is used. No function communicates,
unless the caller passes values that are on other ranks.
"""

from __future__ import annotations

from math import ceil, floor, prod
from operator import index
from types import ModuleType
from typing import Any

import numpy as np

from distarray.array import DistArray, call, from_section, wrap
from distarray.array.placing import (
    MadeAlone,
    Placements,
    as_dtype,
    as_shape,
    creates,
    follow,
    place,
    plain,
    unfolded,
)
from distarray.array.portable import made_like
from distarray.array.small import bounded
from distarray.comm import DeviceMesh
from distarray.layout import Fold, Layout
from distarray.typing import Array, ArrayLike, DTypeLike, Order, ShapeLike

__all__ = [
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "identity",
    "ones",
    "ones_like",
    "tri",
    "zeros",
    "zeros_like",
]

_INT = frozenset({int})
_SIDES = (int, type(None))


def _of_shape(shape: Any, *_: object, **__: object) -> int:
    """Count the elements of an array of a shape; -1 unless it is an int or a tuple of ints."""
    if type(shape) is int:
        return shape
    if type(shape) is tuple and _INT.issuperset(map(type, shape)) and min(shape, default=0) >= 0:
        return prod(shape)
    return -1


def _of_square(N: Any, M: Any = None, *_: object, **__: object) -> int:
    """Count the elements of a matrix whose sides are ints; else -1."""
    return N * (N if M is None else M) if type(N) is int and type(M) in _SIDES else -1


@creates(np.empty, computes=False, elements=_of_shape)
def empty(
    shape: ShapeLike,
    dtype: DTypeLike = None,
    order: Order = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create an array with arbitrary elements; see :func:`numpy.empty`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    shape, dtype = unfolded(as_shape(shape), as_dtype(dtype))
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    return wrap(mesh.xp.empty(layout.local_shape(mesh.coords), dtype, order), layout, mesh)


@creates(np.zeros, computes=False, elements=_of_shape)
def zeros(
    shape: ShapeLike,
    dtype: DTypeLike = None,
    order: Order = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create an array of zeros; see :func:`numpy.zeros`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    shape, dtype = unfolded(as_shape(shape), as_dtype(dtype))
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    return wrap(mesh.xp.zeros(layout.local_shape(mesh.coords), dtype, order), layout, mesh)


@creates(np.ones, computes=False, elements=_of_shape)
def ones(
    shape: ShapeLike,
    dtype: DTypeLike = None,
    order: Order = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create an array of ones; see :func:`numpy.ones`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    shape, dtype = unfolded(as_shape(shape), as_dtype(dtype))
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    return wrap(mesh.xp.ones(layout.local_shape(mesh.coords), dtype, order), layout, mesh)


@creates(np.full, elements=_of_shape)
def full(
    shape: ShapeLike,
    fill_value: ArrayLike,
    dtype: DTypeLike = None,
    order: Order = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create an array of one value, or of values that broadcast; see :func:`numpy.full`.

    Parameters
    ----------
    fill_value : scalar or array_like
        A DistArray of one dimension or more is redistributed to the layout of the result.

    Cost
    ----
    No message, unless `fill_value` is distributed differently from the result.
    """
    shape, fill_value = as_shape(shape), plain(fill_value)
    if like is None and isinstance(fill_value, DistArray):
        like = fill_value
    if dtype is None:
        dtype = (
            fill_value.dtype if isinstance(fill_value, DistArray) else np.asarray(fill_value).dtype
        )
    shape, dtype = unfolded(shape, as_dtype(dtype))
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    local = layout.local_shape(mesh.coords)
    if not isinstance(fill_value, DistArray) and np.ndim(fill_value) == 0:
        return wrap(mesh.xp.full(local, fill_value, dtype, order), layout, mesh)
    result = wrap(mesh.xp.empty(local, dtype, order), layout, mesh)
    result[...] = fill_value
    return result


_ANY_FOLD = tuple(Fold)


def _alike(
    prototype: ArrayLike,
    shape: ShapeLike | None,
    device: str | None,
    mesh: DeviceMesh | None,
    placements: Placements | None,
    dtype: DTypeLike,
) -> tuple[Layout, DeviceMesh, Array]:
    """Return layout and mesh of an array like another, and a prototype for its block.

    The layout is that of the prototype unless the arguments ask for another.
    """
    if not isinstance(prototype, DistArray):
        model = np.asarray(prototype)
        wanted = model.shape if shape is None else as_shape(shape)
        layout, mesh = place(
            wanted, model.dtype if dtype is None else dtype, mesh, placements, device
        )
        if mesh.xp is not np:
            model = mesh.xp.empty((0,) * model.ndim, model.dtype)
        return layout, mesh, model
    x = prototype
    wanted = x.shape if shape is None else as_shape(shape)
    own = mesh in (None, x.mesh) and placements is None and device is None
    if own and wanted == x.shape and not _are_objects(dtype):  # objects are replicated
        return follow(x), x.mesh, x.block
    layout, mesh = place(wanted, x.dtype if dtype is None else dtype, mesh, placements, device, x)
    return layout, mesh, x.block


def _are_objects(dtype: DTypeLike) -> bool:
    return dtype is not None and np.dtype(dtype).hasobject


def _of_other_shape(*args: Any, shape: Any = None, **_: Any) -> int:
    """Count the elements if a shape is given, else 0; a large number if the shape is unknown."""
    elements = 0 if shape is None else _of_shape(shape)
    return elements if elements >= 0 and len(args) <= 4 else 1 << 62


@creates(
    np.empty_like,
    through=_ANY_FOLD,
    at=True,
    computes=False,
    small=bounded(np.empty_like, _of_other_shape),
    keeps=True,
)
def empty_like(
    prototype: ArrayLike,
    /,
    dtype: DTypeLike = None,
    order: Order = "K",
    subok: bool = True,
    shape: ShapeLike | None = None,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create an uninitialized array with a prototype's layout; see :func:`numpy.empty_like`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    layout, mesh, model = _alike(prototype, shape, device, mesh, placements, dtype)
    local = layout.local_shape(mesh.coords)
    return wrap(made_like(mesh.xp, "empty_like", model, dtype, order, local), layout, mesh)


@creates(
    np.zeros_like,
    through=_ANY_FOLD,
    at=True,
    computes=False,
    small=bounded(np.zeros_like, _of_other_shape),
    keeps=True,
)
def zeros_like(
    a: ArrayLike,
    dtype: DTypeLike = None,
    order: Order = "K",
    subok: bool = True,
    shape: ShapeLike | None = None,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create an array of zeros with a prototype's layout; see :func:`numpy.zeros_like`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    layout, mesh, model = _alike(a, shape, device, mesh, placements, dtype)
    local = layout.local_shape(mesh.coords)
    return wrap(made_like(mesh.xp, "zeros_like", model, dtype, order, local), layout, mesh)


@creates(
    np.ones_like,
    through=_ANY_FOLD,
    at=True,
    computes=False,
    small=bounded(np.ones_like, _of_other_shape),
    keeps=True,
)
def ones_like(
    a: ArrayLike,
    dtype: DTypeLike = None,
    order: Order = "K",
    subok: bool = True,
    shape: ShapeLike | None = None,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create an array of ones with a prototype's layout; see :func:`numpy.ones_like`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    layout, mesh, model = _alike(a, shape, device, mesh, placements, dtype)
    local = layout.local_shape(mesh.coords)
    return wrap(made_like(mesh.xp, "ones_like", model, dtype, order, local), layout, mesh)


@creates(np.full_like, small=bounded(np.full_like, _of_other_shape), keeps=True)
def full_like(
    a: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike = None,
    order: Order = "K",
    subok: bool = True,
    shape: ShapeLike | None = None,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create an array of one value with a prototype's layout; see :func:`numpy.full_like`.

    Cost
    ----
    No message, unless `fill_value` is distributed differently from the result.
    """
    layout, mesh, model = _alike(a, shape, device, mesh, placements, dtype)
    local = layout.local_shape(mesh.coords)
    result = wrap(made_like(mesh.xp, "empty_like", model, dtype, order, local), layout, mesh)
    call(np.copyto, result, plain(fill_value), "unsafe")
    return result


# -- diagonals: blocks of these matrices are matrices of the same kind ---------------------------


@creates(np.eye, computes=False, alone=MadeAlone(), elements=_of_square)
def eye(
    N: int,
    M: int | None = None,
    k: int = 0,
    dtype: DTypeLike = float,
    order: Order = "C",
    *,
    device: str | None = None,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create a matrix of ones on a diagonal and zeros elsewhere; see :func:`numpy.eye`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    shape = as_shape((N, N if M is None else M))
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    xp, offset = mesh.xp, index(plain(k))

    def block(section: tuple[slice, ...]) -> Any:
        rows, columns = section
        extents = rows.stop - rows.start, columns.stop - columns.start
        return xp.eye(*extents, offset + rows.start - columns.start, dtype, order)

    return from_section(block, layout, mesh)


@creates(np.identity, computes=False, elements=_of_square)
def identity(
    n: int,
    dtype: DTypeLike = None,
    *,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create the identity matrix; see :func:`numpy.identity`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    return eye(n, dtype=dtype, like=like, mesh=mesh, placements=placements)


@creates(np.tri, computes=False, alone=MadeAlone())
def tri(
    N: float,
    M: float | None = None,
    k: float = 0,
    dtype: DTypeLike = float,
    *,
    like: ArrayLike | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Create a matrix of ones at and below a diagonal and zeros above; see :func:`numpy.tri`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    shape = tuple([max(0, ceil(plain(n))) for n in (N, N if M is None else M)])
    layout, mesh = place(shape, dtype, mesh, placements, None, like)
    offset = plain(k)

    def block(section: tuple[slice, ...]) -> Any:
        rows, columns = section
        return triangle(rows, columns, shape[1], offset, dtype, mesh.xp)

    return from_section(block, layout, mesh)


def triangle(
    rows: slice, columns: slice, width: int, k: float, dtype: DTypeLike, xp: ModuleType
) -> Array:
    """Return a section of the matrix with `width` columns that :func:`numpy.tri` makes."""
    whole = floor(k)
    if whole == k:
        extents = rows.stop - rows.start, columns.stop - columns.start
        part: Array = xp.tri(*extents, whole + rows.start - columns.start, dtype)
        return part
    # NumPy numbers the columns from -k on in integers, so several columns get the same number.
    numbers = np.arange(-k, width - k, dtype=np.intp)[columns]
    part = xp.asarray(np.arange(rows.start, rows.stop)[:, None] >= numbers)
    return part.astype(dtype)
