"""Operands of elementwise calls that consist of several arrays on a rank.

Sections received from other ranks stay in their receive buffers.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, TypeAlias

from distarray.comm.pending import FINISHED, Pending
from distarray.layout import Box
from distarray.plan import Outline, Source, cells
from distarray.typing import Array

__all__ = ["Cell", "Part", "Pieces", "cells_of", "whole_box"]


class Pieces(list[tuple[Box, Array]]):
    """Operand in several arrays, each with its box in the block of the result.

    Attributes
    ----------
    own : int
        Number of this rank's own arrays; they come first.
    coming : Pending
        The exchange that receives the other arrays.
    """

    own = 0
    coming: Pending = FINISHED

    def arrive(self) -> None:
        """Wait for the pending messages."""
        self.coming.wait()
        self.coming = FINISHED


#: Section of an operand on a rank: an array that broadcasts, pieces, or a number.
Part: TypeAlias = Array | Pieces | complex


def whole_box(shape: Sequence[int]) -> Box:
    """Return the box of a whole block."""
    return tuple([(0, extent) for extent in shape])


class Cell(NamedTuple):
    """Box of a block in which every operand is one array.

    Attributes
    ----------
    key : tuple of slice
        The box.
    parts : list
        The elements of each operand in the box.
    is_here : bool
        True if all of these elements have arrived.
    """

    key: tuple[slice, ...]
    parts: list[Any]
    is_here: bool

    @property
    def size(self) -> int:
        """Number of elements of the box."""
        return prod([part.stop - part.start for part in self.key])


def cells_of(parts: Sequence[Part], whole: Box, box: Box | None = None) -> list[Cell]:
    """Return the cells: boxes in which every operand is one array.

    Parameters
    ----------
    parts : sequence
        The operands' sections on this rank.
    whole : tuple of (int, int)
        The box of the whole block.
    box : tuple of (int, int), optional
        The box to divide; by default the whole block.
    """
    found = cells(tuple([_outline(part, whole) for part in parts]), box or whole)
    cells_found = []
    for cell, sources in found:
        pairs = list(zip(parts, sources, strict=True))
        key = tuple([slice(start, stop) for start, stop in cell])
        is_here = all(_is_here(part, source) for part, source in pairs)
        cells_found.append(Cell(key, [_at(part, source) for part, source in pairs], is_here))
    return cells_found


def _outline(part: Any, whole: Box) -> Outline:
    if isinstance(part, Pieces):
        return tuple([(box, piece.shape) for box, piece in part])
    return ((whole, part.shape),) if getattr(part, "ndim", 0) else ()


def _at(part: Any, source: Source) -> Any:
    """Return the elements of an operand in a cell."""
    if source is None:
        return part
    number, key = source
    return part[number][1][key] if isinstance(part, Pieces) else part[key]


def _is_here(part: Any, source: Source) -> bool:
    """Return True if the elements of an operand in a cell have arrived."""
    if type(part) is not Pieces or part.coming is FINISHED:
        return True
    return source is not None and source[0] < part.own
