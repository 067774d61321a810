"""nonzero, flatnonzero and argwhere: positions of the elements that are not zero."""

from __future__ import annotations

import numpy as np

from distarray.array import DistArray, as_distarray, implements, wrap
from distarray.engines.indexing.masks import coordinates
from distarray.layout import Cut, Layout
from distarray.typing import ArrayLike

__all__ = ["argwhere", "flatnonzero", "nonzero"]


@implements(np.nonzero, computes=False)
def nonzero(a: ArrayLike) -> tuple[DistArray, ...]:
    """Return the positions of the nonzero elements, one array per dimension, in C order.

    Parameters
    ----------
    a : DistArray or array_like
        The array.

    Returns
    -------
    tuple of DistArray
        If only the leading dimension is cut, each rank has the positions of its own elements; else
        the positions are cut evenly.

    Cost
    ----
    One allgather of a number if only the leading dimension is cut. Otherwise the positions are
    counted and exchanged, see :class:`~distarray.engines.indexing.packing.Packing`.
    """
    x = as_distarray(a)
    if not x.ndim:
        text = (
            "Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() "
            "instead."
        )
        if x.dtype == bool:
            text += (
                " If the context of this error is of the form `arr[nonzero(cond)]`, just use "
                "`arr[cond]`."
            )
        raise ValueError(text)
    return coordinates(x)


@implements(np.flatnonzero, computes=False)
def flatnonzero(a: ArrayLike) -> DistArray:
    """Return the positions of the nonzero elements in the flattened array.

    Parameters
    ----------
    a : DistArray or array_like
        The array; it is not reshaped.

    Returns
    -------
    DistArray
        In the layout of the results of :func:`numpy.nonzero`.

    Cost
    ----
    The cost of :func:`numpy.nonzero` of an array with as many dimensions.
    """
    x = as_distarray(a)
    found = coordinates(x if x.ndim else x[None])
    total = found[0].block
    for array, extent in zip(found[1:], x.shape[1:], strict=True):
        total = total * extent + array.block
    return wrap(total, found[0].layout, x.mesh)


@implements(np.argwhere, computes=False)
def argwhere(a: ArrayLike) -> DistArray:
    """Return the positions of the nonzero elements, one row each.

    Parameters
    ----------
    a : DistArray or array_like
        The array.

    Returns
    -------
    DistArray
        Its rows have the layout of the results of :func:`numpy.nonzero`.

    Cost
    ----
    The cost of :func:`numpy.nonzero`.
    """
    x = as_distarray(a)
    found = coordinates(x if x.ndim else x[None])
    rows = np.stack([array.block for array in found]).T[:, : x.ndim]  # in NumPy's storage order
    layout = Layout.from_cuts([found[0].layout.cuts[0], Cut.whole(x.ndim)], x.layout.mesh_shape)
    return wrap(rows, layout, x.mesh)
