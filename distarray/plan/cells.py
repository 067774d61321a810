"""Cells: the boxes of a block in which operands that lie in several arrays each are one array."""

from functools import lru_cache
from typing import TypeAlias

from distarray.layout import Box
from distarray.plan.exchange import intersect
from distarray.typing import Shape

__all__ = ["Outline", "Source", "cells"]

#: The arrays that an operand lies in: the box and the shape of each. Scalars have none.
Outline: TypeAlias = tuple[tuple[Box, Shape], ...]
#: The array of an operand that a cell takes, by number, and its slices; None for a scalar.
Source: TypeAlias = tuple[int, tuple[slice, ...]] | None


@lru_cache(maxsize=4096)
def cells(outlines: tuple[Outline, ...], box: Box) -> list[tuple[Box, list[Source]]]:
    """The cells that a box of a block has, and what each takes of every operand.

    Parameters
    ----------
    outlines : tuple of Outline
        Of the operands; their boxes are those of the block that they belong to. An array may be
        shorter than its box in dimensions that are stretched.
    box : tuple of (int, int)
        Part of the block, or all of it.
    """
    found = [box]
    for outline in outlines:
        if outline:
            met = [intersect(cell, other) for cell in found for other, _ in outline]
            found = [cell for cell in met if cell is not None]
    return [(cell, [_source(cell, outline) for outline in outlines]) for cell in found]


def _source(cell: Box, outline: Outline) -> Source:
    if not outline:
        return None
    for number, (box, shape) in enumerate(outline):
        if intersect(box, cell) == cell:
            return number, _key(shape, cell, box)
    raise AssertionError("every cell lies within one array of each operand")


def _key(shape: Shape, cell: Box, box: Box) -> tuple[slice, ...]:
    """Slices of an array that broadcasts onto `box`, for the elements of `cell`."""
    lead = len(cell) - len(shape)
    key = []
    for extent, (start, stop), (low, high) in zip(shape, cell[lead:], box[lead:], strict=True):
        stretched = extent == 1 and high - low != 1
        key.append(slice(None) if stretched else slice(start - low, stop - low))
    return tuple(key)
