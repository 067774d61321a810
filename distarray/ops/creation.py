"""NumPy's functions that make arrays of a given shape; each rank makes only its own part.

All take, besides what NumPy's take, `mesh` and `placements` as :func:`distarray.distribute` does.
Without them large arrays are cut along one dimension and small ones replicated
(`config.replicate_below`). ``like=`` names an array whose mesh to use. None of them communicates,
unless it is handed values that lie elsewhere.
"""

from math import ceil, floor
from operator import index
from typing import Any

import numpy as np

from distarray.array import DistArray, call, from_section, wrap
from distarray.array.placing import (
    MadeAlone,
    Placements,
    as_shape,
    creates,
    follow,
    place,
    plain,
)
from distarray.comm import DeviceMesh
from distarray.layout import Fold, Layout

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


@creates(np.empty, computes=False)
def empty(
    shape: Any,
    dtype: Any = None,
    order: Any = "C",
    *,
    device: str | None = None,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array with arbitrary elements; see :func:`numpy.empty`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    shape, dtype = as_shape(shape), np.dtype(dtype)
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    return wrap(mesh.xp.empty(layout.local_shape(mesh.coords), dtype, order), layout, mesh)


@creates(np.zeros, computes=False)
def zeros(
    shape: Any,
    dtype: Any = None,
    order: Any = "C",
    *,
    device: str | None = None,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of zeros; see :func:`numpy.zeros`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    shape, dtype = as_shape(shape), np.dtype(dtype)
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    return wrap(mesh.xp.zeros(layout.local_shape(mesh.coords), dtype, order), layout, mesh)


@creates(np.ones, computes=False)
def ones(
    shape: Any,
    dtype: Any = None,
    order: Any = "C",
    *,
    device: str | None = None,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of ones; see :func:`numpy.ones`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    shape, dtype = as_shape(shape), np.dtype(dtype)
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    return wrap(mesh.xp.ones(layout.local_shape(mesh.coords), dtype, order), layout, mesh)


@creates(np.full)
def full(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "C",
    *,
    device: str | None = None,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of one value, or of values that broadcast; see :func:`numpy.full`.

    Parameters
    ----------
    fill_value : scalar or array_like
        A DistArray of one dimension or more is brought to the layout of the result.

    Cost
    ----
    No message, unless `fill_value` is distributed otherwise than the result.
    """
    shape, fill_value = as_shape(shape), plain(fill_value)
    if like is None and isinstance(fill_value, DistArray):
        like = fill_value
    if dtype is None:
        dtype = (
            fill_value.dtype if isinstance(fill_value, DistArray) else np.asarray(fill_value).dtype
        )
    dtype = np.dtype(dtype)
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    local = layout.local_shape(mesh.coords)
    if not isinstance(fill_value, DistArray) and np.ndim(fill_value) == 0:
        return wrap(mesh.xp.full(local, fill_value, dtype, order), layout, mesh)
    result = wrap(mesh.xp.empty(local, dtype, order), layout, mesh)
    result[...] = fill_value
    return result


_ANY_FOLD = tuple(Fold)


def _alike(
    prototype: Any,
    shape: Any,
    device: str | None,
    mesh: DeviceMesh | None,
    placements: Placements | None,
    dtype: Any,
) -> tuple[Layout, DeviceMesh, Any]:
    """Layout and mesh of an array like another, and a block to make its blocks like.

    It is laid out as the prototype if nothing else is asked.
    """
    like = prototype if isinstance(prototype, DistArray) else None
    model = np.asarray(prototype) if like is None else like.block
    shape = (model if like is None else like).shape if shape is None else as_shape(shape)
    own = mesh in (None, getattr(like, "mesh", None)) and placements is None and device is None
    if like is not None and own and shape == like.shape:
        return follow(like), like.mesh, model
    dtype = model.dtype if dtype is None else dtype
    layout, mesh = place(shape, dtype, mesh, placements, device, like)
    if mesh.xp is not np and like is None:
        model = mesh.xp.empty((0,) * model.ndim, model.dtype)
    return layout, mesh, model


@creates(np.empty_like, through=_ANY_FOLD, at=True, computes=False)
def empty_like(
    prototype: Any,
    /,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array with arbitrary elements, laid out as the prototype; see :func:`numpy.empty_like`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    layout, mesh, model = _alike(prototype, shape, device, mesh, placements, dtype)
    local = layout.local_shape(mesh.coords)
    return wrap(mesh.xp.empty_like(model, dtype, order, False, local), layout, mesh)


@creates(np.zeros_like, through=_ANY_FOLD, at=True, computes=False)
def zeros_like(
    a: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of zeros, laid out as the prototype; see :func:`numpy.zeros_like`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    layout, mesh, model = _alike(a, shape, device, mesh, placements, dtype)
    local = layout.local_shape(mesh.coords)
    return wrap(mesh.xp.zeros_like(model, dtype, order, False, local), layout, mesh)


@creates(np.ones_like, through=_ANY_FOLD, at=True, computes=False)
def ones_like(
    a: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of ones, laid out as the prototype; see :func:`numpy.ones_like`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    layout, mesh, model = _alike(a, shape, device, mesh, placements, dtype)
    local = layout.local_shape(mesh.coords)
    return wrap(mesh.xp.ones_like(model, dtype, order, False, local), layout, mesh)


@creates(np.full_like)
def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: str | None = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """An array of one value, laid out as the prototype; see :func:`numpy.full_like`.

    Cost
    ----
    No message, unless `fill_value` is distributed otherwise than the result.
    """
    layout, mesh, model = _alike(a, shape, device, mesh, placements, dtype)
    local = layout.local_shape(mesh.coords)
    result = wrap(mesh.xp.empty_like(model, dtype, order, False, local), layout, mesh)
    call(np.copyto, result, plain(fill_value), "unsafe")
    return result


# -- diagonals: the block of a matrix with ones from a diagonal on is such a matrix --------------


@creates(np.eye, computes=False, alone=MadeAlone())
def eye(
    N: Any,
    M: Any = None,
    k: Any = 0,
    dtype: Any = float,
    order: Any = "C",
    *,
    device: str | None = None,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Ones on a diagonal, zeros elsewhere; see :func:`numpy.eye`.

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


@creates(np.identity, computes=False)
def identity(
    n: Any,
    dtype: Any = None,
    *,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """The identity matrix; see :func:`numpy.identity`.

    Cost
    ----
    No message; the memory of this rank's block.
    """
    return eye(n, dtype=dtype, like=like, mesh=mesh, placements=placements)


@creates(np.tri, computes=False, alone=MadeAlone())
def tri(
    N: Any,
    M: Any = None,
    k: Any = 0,
    dtype: Any = float,
    *,
    like: Any = None,
    mesh: DeviceMesh | None = None,
    placements: Placements | None = None,
) -> DistArray:
    """Ones at and below a diagonal, zeros above; see :func:`numpy.tri`.

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


def triangle(rows: slice, columns: slice, width: int, k: Any, dtype: Any, xp: Any) -> Any:
    """A section of what :func:`numpy.tri` gives, for a matrix of a width."""
    whole = floor(k)
    if whole == k:
        extents = rows.stop - rows.start, columns.stop - columns.start
        return xp.tri(*extents, whole + rows.start - columns.start, dtype)
    # NumPy counts columns in integers from a number that is none, and may count all alike.
    numbers = np.arange(-k, width - k, dtype=np.intp)[columns]
    return xp.asarray(np.arange(rows.start, rows.stop)[:, None] >= numbers).astype(dtype)
