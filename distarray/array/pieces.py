"""An operand of an elementwise call that lies in several arrays on a rank.

The parts that other ranks have sent stay in the buffers they were received in.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from distarray.layout import Box
from distarray.plan import Outline, Source, cells
from distarray.typing import Array

__all__ = ["Part", "Pieces", "cells_of", "whole_box"]


class Pieces(list[tuple[Box, Array]]):
    """An operand in several arrays, each with its box in the result's block."""


#: A rank's part of an operand: an array that broadcasts, pieces of one, or a number.
Part: TypeAlias = Array | Pieces | complex


def whole_box(shape: Sequence[int]) -> Box:
    """The box that is all of a block."""
    return tuple([(0, extent) for extent in shape])


def cells_of(
    parts: Sequence[Part], whole: Box, box: Box | None = None
) -> list[tuple[tuple[slice, ...], list[Any]]]:
    """The boxes in which every part is one array: slices of the block, and the part's elements.

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
    return [
        (
            tuple([slice(start, stop) for start, stop in cell]),
            [_at(part, source) for part, source in zip(parts, sources, strict=True)],
        )
        for cell, sources in found
    ]


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
