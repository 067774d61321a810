"""array_split, split, unstack: every piece is a view, and nothing is sent."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from distarray.array import DistArray, as_distarray, implements
from distarray.ops.shape import moveaxis
from distarray.typing import ArrayLike

__all__ = ["array_split", "split", "unstack"]


@implements(np.array_split, at=True, computes=False)
def array_split(
    ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0
) -> list[DistArray]:
    """Split into pieces of nearly equal length, or at given indices. See :func:`numpy.array_split`.

    Parameters
    ----------
    ary : DistArray
        Any placement.
    indices_or_sections : int or sequence of int
        The number of pieces, or the indices at which new pieces begin.
    axis : int
        The dimension to divide.

    Returns
    -------
    list of DistArray
        Views; each stays on the ranks that hold its elements.

    Cost
    ----
    None.
    """
    ary = as_distarray(ary)
    given: Any = indices_or_sections  # NumPy, too, determines by trial which of the two it is
    total = ary.shape[axis]
    try:
        points = [0, *list(given), total]
    except TypeError:
        sections = int(given)
        if sections <= 0:
            raise ValueError("number sections must be larger than 0.") from None
        each, extras = divmod(total, sections)
        lengths = extras * [each + 1] + (sections - extras) * [each]
        points = [0, *np.cumsum(lengths).tolist()]
    before = (slice(None),) * normalize_axis_index(axis, ary.ndim)
    return [ary[(*before, slice(start, stop))] for start, stop in pairwise(points)]


@implements(np.split, at=True, computes=False)
def split(
    ary: ArrayLike, indices_or_sections: int | Sequence[int], axis: int = 0
) -> list[DistArray]:
    """Split into pieces of equal length, or at given indices, as views. See :func:`numpy.split`."""
    ary = as_distarray(ary)
    given: Any = indices_or_sections
    try:
        len(given)
    except TypeError:
        if ary.shape[axis] % given:
            raise ValueError("array split does not result in an equal division") from None
    return array_split(ary, indices_or_sections, axis)


def _split_along(name: str, least: int, axis: int) -> Any:
    def split_along(ary: ArrayLike, indices_or_sections: int | Sequence[int]) -> list[DistArray]:
        ary = as_distarray(ary)
        if ary.ndim < least:
            raise ValueError(f"{name} only works on arrays of {least} or more dimensions")
        return split(ary, indices_or_sections, axis if ary.ndim > axis else 0)

    split_along.__name__ = name
    split_along.__doc__ = f"Views of pieces along one dimension. See :func:`numpy.{name}`."
    return split_along


hsplit = implements(np.hsplit, at=True)(_split_along("hsplit", 1, 1))
vsplit = implements(np.vsplit, at=True)(_split_along("vsplit", 2, 0))
dsplit = implements(np.dsplit, at=True)(_split_along("dsplit", 3, 2))


@implements(np.unstack, at=True, computes=False)
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[DistArray, ...]:
    """Return the subarrays along a dimension, without it; views. See :func:`numpy.unstack`.

    Costs nothing, except that the elements of a 1-d array are scalars, which every rank receives.
    """
    x = as_distarray(x)
    if x.ndim == 0:
        raise ValueError("Input array must be at least 1-d.")
    return tuple(moveaxis(x, axis, 0))
