"""An operand of an elementwise call that lies in several arrays on a rank.

The parts that other ranks have sent stay in the buffers they were received in.
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
    """An operand in several arrays, each with its box in the result's block.

    Attributes
    ----------
    own : int
        How many of them are this rank's; they come first.
    coming : Pending
        The messages with the others.
    """

    own = 0
    coming: Pending = FINISHED

    def arrive(self) -> None:
        """Wait for what is coming."""
        self.coming.wait()
        self.coming = FINISHED


#: A rank's part of an operand: an array that broadcasts, pieces of one, or a number.
Part: TypeAlias = Array | Pieces | complex


def whole_box(shape: Sequence[int]) -> Box:
    """The box that is all of a block."""
    return tuple([(0, extent) for extent in shape])


class Cell(NamedTuple):
    """A box of a block in which every operand is one array.

    Attributes
    ----------
    key : tuple of slice
        The box.
    parts : list
        The operands' elements there.
    is_here : bool
        Whether they have all come.
    """

    key: tuple[slice, ...]
    parts: list[Any]
    is_here: bool

    @property
    def size(self) -> int:
        """How many elements the box has."""
        return prod([part.stop - part.start for part in self.key])


def cells_of(parts: Sequence[Part], whole: Box, box: Box | None = None) -> list[Cell]:
    """The boxes in which every part is one array.

    Parameters
    ----------
    parts : sequence
        Of operands.
    whole : tuple of (int, int)
        The block.
    box : tuple of (int, int), optional
        The part of it that is asked about.
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
    """A part's elements for a cell."""
    if source is None:
        return part
    number, key = source
    return part[number][1][key] if isinstance(part, Pieces) else part[key]


def _is_here(part: Any, source: Source) -> bool:
    """Whether a part's elements for a cell have come."""
    if type(part) is not Pieces or part.coming is FINISHED:
        return True
    return source is not None and source[0] < part.own
