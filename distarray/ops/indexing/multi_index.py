"""ravel_multi_index, unravel_index and ix_: positions in flattened arrays, open grids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.comm import devices
from distarray.comm.agree import agree
from distarray.engines.blockwise import apply_blockwise
from distarray.engines.indexing.masks import coordinates
from distarray.typing import Array, ArrayLike, ShapeLike

__all__ = ["ix_", "ravel_multi_index", "unravel_index"]


def _apply_or_raise(
    function: Callable[..., Any], operands: Sequence[DistArray], results: int
) -> Any:
    """Return the result of an elementwise call; raise on all ranks if the call raises on one."""
    errors: list[ValueError] = []

    def guarded(*blocks: Array) -> Any:
        try:
            return function(*blocks)
        except ValueError as error:
            errors.append(error)
        shape = np.broadcast_shapes(*[block.shape for block in blocks])
        nothing = np.zeros_like(blocks[0], np.intp, shape=shape)
        return (nothing,) * results if results > 1 else nothing

    found = apply_blockwise(guarded, operands)
    error = errors[0] if errors else None
    if not (found[0] if results > 1 else found).layout.is_replicated:
        agree(operands[0].mesh.group, error)
    elif error is not None:
        raise error
    return found


@implements(np.ravel_multi_index, computes=False)
def ravel_multi_index(
    multi_index: Sequence[ArrayLike],
    dims: ShapeLike,
    mode: str | Sequence[str] = "raise",
    order: str = "C",
) -> DistArray:
    """Compute positions in a flattened array from an index for each dimension.

    Parameters
    ----------
    multi_index : sequence of array of int
        One array for each dimension; they broadcast.
    dims : tuple of int
        Shape of the array.
    mode : str or sequence of str
        Treatment of indices out of bounds: "raise", "wrap" or "clip".
    order : {"C", "F"}
        Order of the flattened array.

    Returns
    -------
    DistArray
        In the layout of the index arrays.

    Cost
    ----
    An agreement that no index is out of bounds, unless every rank has all indices.
    """
    mesh = common_mesh(*multi_index, dims)
    arrays = [as_distarray(index, mesh) for index in multi_index]
    extents = np.ravel(np.asarray(dims)).tolist()
    if len(extents) != len(arrays):
        raise ValueError(f"parameter multi_index must be a sequence of length {len(extents)}")

    def function(*blocks: Array) -> Array:
        return np.ravel_multi_index(blocks, extents, mode, order)  # type: ignore[call-overload, no-any-return]

    found: DistArray = _apply_or_raise(function, arrays, 1)
    return found


@implements(np.unravel_index, computes=False)
def unravel_index(indices: ArrayLike, shape: ShapeLike, order: str = "C") -> tuple[DistArray, ...]:
    """Compute an index for each dimension from positions in the flattened array.

    Parameters
    ----------
    indices : DistArray or array of int
        The positions.
    shape : tuple of int
        Shape of the array.
    order : {"C", "F"}
        Order of the flattened array.

    Returns
    -------
    tuple of DistArray
        In the layout of `indices`.

    Cost
    ----
    An agreement that no position is out of bounds, unless every rank has all positions.
    """
    mesh = common_mesh(indices, shape)
    extents = tuple(np.ravel(np.asarray(shape)).tolist())

    def function(block: Array) -> Any:
        if devices.on_device(block):
            np.unravel_index(np.zeros(0, block.dtype), extents)  # raises NumPy's error on all ranks
            _check_places(block, prod(extents))
            block = block.astype(np.intp, copy=False)
        found = np.unravel_index(block, extents, order)  # type: ignore[call-overload]
        return found if len(found) > 1 else found[0]

    array = indices if isinstance(indices, DistArray) else as_distarray(np.asarray(indices), mesh)
    found = _apply_or_raise(function, [array], len(extents))
    return found if isinstance(found, tuple) else (found,)


def _check_places(block: Array, size: int) -> None:
    """Raise NumPy's exception if a position is out of bounds."""
    wrong = block[(block < 0) | (block >= size)]
    if wrong.size:
        np.unravel_index(devices.to_host(wrong[:1]), (size,))


@implements(np.ix_, computes=False)
def ix_(*args: ArrayLike) -> tuple[DistArray, ...]:
    """Return index arrays that together select the cross product of one-dimensional ones.

    Parameters
    ----------
    *args : DistArray or sequence
        Integers, or truth values, which select the positions that are True.

    Returns
    -------
    tuple of DistArray
        Each along its own dimension and cut as the argument is.

    Cost
    ----
    The cost of :func:`numpy.nonzero` for booleans; else none.
    """
    mesh = common_mesh(*args)
    found = []
    for place, arg in enumerate(args):
        if not isinstance(arg, (DistArray, np.ndarray)):
            arg = np.asarray(arg)
            if not arg.size:
                arg = arg.astype(np.intp)
        x = as_distarray(arg, mesh)
        if x.ndim != 1:
            raise ValueError("Cross index must be 1 dimensional")
        if x.dtype == bool:
            (x,) = coordinates(x)
        after = len(args) - place - 1
        found.append(x[(*[None] * place, slice(None), *[None] * after)])
    return tuple(found)
