"""Cells of a block: boxes within which each operand, stored in several arrays, is one array."""

from functools import lru_cache
from typing import TypeAlias

from distarray.layout import Box
from distarray.plan.exchange import intersect
from distarray.typing import Shape

__all__ = ["Outline", "Source", "cells"]

#: Arrays in which an operand is stored: the box and the shape of each. A scalar has none.
Outline: TypeAlias = tuple[tuple[Box, Shape], ...]
#: Operand's array that covers a cell, by number, and the slices of the array; None for a scalar.
Source: TypeAlias = tuple[int, tuple[slice, ...]] | None


@lru_cache(maxsize=4096)
def cells(outlines: tuple[Outline, ...], box: Box) -> list[tuple[Box, list[Source]]]:
    """Split a box of a block into cells, each with its section of every operand.

    Parameters
    ----------
    outlines : tuple of Outline
        Outlines of the operands, with boxes in the indices of the block. An array may be shorter
        than its box in dimensions that broadcasting stretches.
    box : tuple of (int, int)
        Box of the block, or the whole block.
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
    """Return the slices that select `cell` from an array that broadcasts onto `box`."""
    lead = len(cell) - len(shape)
    key = []
    for extent, (start, stop), (low, high) in zip(shape, cell[lead:], box[lead:], strict=True):
        stretched = extent == 1 and high - low != 1
        key.append(slice(None) if stretched else slice(start - low, stop - low))
    return tuple(key)
