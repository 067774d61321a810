"""Helpers for views: entries that select everything, permuted dimensions."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from distarray.array import DistArray, wrap
from distarray.array.sharing import derived
from distarray.array.storage import vacant
from distarray.layout import Layout

__all__ = ["everything", "flipped", "permuted"]


def everything(x: DistArray) -> list[Any]:
    """Return the entries that select everything; see :mod:`distarray.layout.views`."""
    return [(0, 1, extent) for extent in x.shape]


def flipped(x: DistArray, axes: Sequence[int]) -> DistArray:
    """Return `x` reversed along dimensions that are known to be valid."""
    if not x.ndim:
        return x[()]  # type: ignore[no-any-return]
    entries = everything(x)
    for dim in axes:
        entries[dim] = (max(x.shape[dim] - 1, 0), -1, x.shape[dim])
    return x.sliced(tuple(entries))


def permuted(x: DistArray, axes: Sequence[int]) -> DistArray:
    """Return `x` with its dimensions in the order `axes`, which has been checked."""
    return derived(x, lambda y: _permuted(y, axes))


def _permuted(x: DistArray, axes: Sequence[int]) -> DistArray:
    layout, mesh = _permuted_layout(x.layout, tuple(axes)), x.mesh
    if layout.ats and not layout.holds(mesh.coords):
        return wrap(vacant(x.block, layout, mesh), layout, mesh)
    return wrap(x.block.transpose(axes), layout, mesh)


@lru_cache(maxsize=2048)
def _permuted_layout(layout: Layout, axes: tuple[int, ...]) -> Layout:
    return layout.transpose(axes)
