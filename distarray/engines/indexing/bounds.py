"""Bounds checks of indices with the same result on all ranks, and conversion of negative ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from distarray.comm import DeviceMesh
from distarray.layout import Fold, Layout
from distarray.typing import Array

__all__ = ["in_bounds"]

_NONE = np.iinfo(np.int64).max


def in_bounds(
    blocks: Sequence[Array],
    layouts: Sequence[Layout],
    extents: Sequence[int],
    axes: Sequence[int],
    mesh: DeviceMesh,
    mode: str,
) -> list[Array]:
    """Check index blocks against the bounds and make negative indices positive.

    Parameters
    ----------
    blocks : sequence of array
        This rank's part of each index array.
    layouts : sequence of Layout
        Layouts of the index arrays.
    extents, axes : sequence of int
        Bounds, and the numbers of the dimensions in error messages.
    mesh : DeviceMesh
        The mesh. The call is collective.
    mode : {"raise", "wrap", "clip", "unchecked"}
        The treatment of indices out of bounds.

    Raises
    ------
    IndexError
        On every rank, for the same index as in NumPy.

    Cost
    ----
    One allreduce of a number, unless every rank has all indices or no value of their data type is
    out of bounds.
    """
    results: list[Array] = []
    wrong: tuple[int, str] | None = None
    known = True
    for number, (block, layout) in enumerate(zip(blocks, layouts, strict=True)):
        if mode == "unchecked" or _fits(block.dtype, extents[number]):
            results.append(block)
            continue
        known &= layout.is_replicated
        found, outside = _wrapped(block.astype(np.intp, copy=False), extents[number], mode)
        results.append(found)
        if outside is not None and wrong is None:
            text = (
                f"index {int(block[outside])} is out of bounds for axis {axes[number]} with size "
                f"{extents[number]}"
            )
            wrong = number << 48 | _position(outside, layout, mesh), text
    if mode == "raise":
        _raise_first(wrong, mesh, known)
    return results


def _fits(dtype: np.dtype[Any], extent: int) -> bool:
    info = np.iinfo(dtype)
    return info.min == 0 and int(info.max) < extent


def _wrapped(block: Array, extent: int, mode: str) -> tuple[Array, tuple[int, ...] | None]:
    """Return nonnegative indices, and the position of the first index out of bounds or None."""
    if not block.size:
        return block, None
    if mode == "clip":
        return np.clip(block, 0, extent - 1), None
    # As unsigned numbers, negative indices are large: usually one pass is enough.
    if int(block.view(np.uintp).max()) < extent:
        return block, None
    low, high = int(block.min()), int(block.max())
    if mode == "raise" and (low < -extent or high >= extent):
        first = int(np.flatnonzero((block < -extent) | (block >= extent))[0])
        return block, tuple([int(place) for place in np.unravel_index(first, block.shape)])
    if low >= 0 and high < extent:
        return block, None
    return (block % extent if mode == "wrap" else np.where(block < 0, block + extent, block)), None


def _position(place: tuple[int, ...], layout: Layout, mesh: DeviceMesh) -> int:
    """Convert a position in this rank's index block to one in the global flattened index array."""
    total = 0
    section = layout.section(mesh.coords)
    for number, (start, _), extent in zip(place, section, layout.shape, strict=True):
        total = total * extent + start + number
    return total


def _raise_first(wrong: tuple[int, str] | None, mesh: DeviceMesh, known: bool) -> None:
    """Raise the error that is first in C order of the index, whichever rank found it."""
    if not known:
        mine = _NONE if wrong is None else wrong[0]
        first = int(mesh.group.allreduce(np.array(mine), Fold.MIN, "agreement on bounds"))
        if first == _NONE:
            return
        brought = wrong[1] if wrong is not None and mine == first else None
        texts = [text for text in mesh.group.allgather_object(brought) if text is not None]
        raise IndexError(texts[0])
    if wrong is not None:
        raise IndexError(wrong[1])
