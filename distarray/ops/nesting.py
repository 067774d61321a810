"""block: an array assembled from nested lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from distarray.array import DistArray, as_distarray, common_mesh, implements
from distarray.array.storage import common_order
from distarray.array.views import everything
from distarray.engines.assembling import Part, assemble
from distarray.typing import ArrayLike, Shape

__all__ = ["block"]

#: Array, or lists of arrays nested to some depth.
Nested: TypeAlias = "ArrayLike | list[Nested] | tuple[Nested, ...]"


@implements(np.block, at=True, computes=False)
def block(arrays: Nested) -> DistArray:
    """Assemble an array from nested lists of blocks. See :func:`numpy.block`.

    Cost
    ----
    The cost of :func:`concatenate`, in one step for all blocks: each block is written once.
    """
    depth = _depth(arrays, "arrays")
    leaves = list(_leaves(arrays))
    mesh = common_mesh(*leaves)
    operands = [as_distarray(x, mesh) for x in leaves]
    ndim = max([depth, *[x.ndim for x in operands]])
    lifted = [x.sliced((None,) * (ndim - x.ndim) + tuple(everything(x))) for x in operands]
    shape, parts = _arranged(arrays, ndim - depth, ndim, iter(lifted))
    dtype = np.result_type(*[x.dtype for x in operands])
    return assemble(shape, dtype, parts, mesh, order=common_order(lifted) if depth else ())


def _depth(arrays: Nested, name: str) -> int:
    """Return the depth of the nested lists; it must be the same everywhere."""
    if type(arrays) is tuple:
        raise TypeError(
            f"{name} is a tuple. Only lists can be used to arrange blocks, and np.block does not "
            "allow implicit conversion from tuple to ndarray."
        )
    if type(arrays) is not list:
        return 0
    if not arrays:
        raise ValueError(f"List at {name} cannot be empty")
    depths = [_depth(entry, f"{name}[{place}]") for place, entry in enumerate(arrays)]
    for place, depth in enumerate(depths):
        if depth != depths[0]:
            raise ValueError(
                f"List depths are mismatched. First element was at depth {depths[0] + 1}, but "
                f"there is an element at depth {depth + 1} ({name}[{place}])"
            )
    return depths[0] + 1


def _leaves(arrays: Nested) -> Iterator[Any]:
    if type(arrays) is list:
        for entry in arrays:
            yield from _leaves(entry)
    else:
        yield arrays


def _arranged(
    arrays: Nested, axis: int, ndim: int, leaves: Iterator[DistArray]
) -> tuple[Shape, list[Part]]:
    """Return the shape of a nested list, and the origin of each leaf; this level extends `axis`."""
    if type(arrays) is not list:
        leaf = next(leaves)
        return leaf.shape, [((0,) * ndim, leaf)]
    shapes, parts, position = [], [], 0
    for entry in arrays:
        shape, found = _arranged(entry, axis + 1, ndim, leaves)
        for origin, leaf in found:
            parts.append((origin[:axis] + (origin[axis] + position,) + origin[axis + 1 :], leaf))
        position += shape[axis]
        shapes.append(shape)
    outer = {shape[:axis] + shape[axis + 1 :] for shape in shapes}
    if len(outer) > 1:
        raise ValueError(f"Mismatched array shapes in block along axis {axis}.")
    return shapes[0][:axis] + (position,) + shapes[0][axis + 1 :], parts
