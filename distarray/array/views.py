"""Helpers for views: entries that take everything, dimensions in another order."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from distarray.array import DistArray, wrap
from distarray.array.storage import vacant
from distarray.layout import Layout

__all__ = ["everything", "permuted"]


def everything(x: DistArray) -> list[Any]:
    """The entries of a view that takes everything; see :mod:`distarray.layout.views`."""
    return [(0, 1, extent) for extent in x.shape]


def permuted(x: DistArray, axes: Sequence[int]) -> DistArray:
    """`x` with its dimensions in the order `axes`, which has been checked."""
    layout, mesh = _permuted_layout(x.layout, tuple(axes)), x.mesh
    if layout.ats and not layout.holds(mesh.coords):
        return wrap(vacant(x.block, layout, mesh), layout, mesh)
    return wrap(x.block.transpose(axes), layout, mesh)


@lru_cache(maxsize=2048)
def _permuted_layout(layout: Layout, axes: tuple[int, ...]) -> Layout:
    return layout.transpose(axes)
