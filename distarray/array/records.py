"""Writeable records of cut arrays: as in NumPy, each record is a view of its array.

The rank that owns a record gets a view of its block. The other ranks get a copy. All ranks execute
the program's assignments to the fields of the record. The library sees none of these assignments.
So a section of the block counts as exposed (see :mod:`distarray.array.blocks_out`) as long as the
record is alive.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from distarray.array.base import Base, raw_block
from distarray.array.handed_out import hand_out
from distarray.array.memory import is_shared
from distarray.typing import Array

__all__ = ["as_read", "own_part", "with_own"]


def _own_block(x: Base) -> Any:
    """Return this rank's block if it holds records that the program may write to, else None."""
    block = raw_block(x)
    if not isinstance(block, np.ndarray) or block.dtype.names is None:
        return None
    return block if block.flags.writeable and not is_shared(x) else None


def own_part(x: Base, cell: Base) -> Any:
    """Return this rank's view of a record if it owns the record and may write to it, else None."""
    block = _own_block(x)
    return raw_block(cell) if block is not None and cell.layout.holds(x.mesh.coords) else None


def as_read(x: Base, element: Array, own: Any) -> Any:
    """Return a record to the program: the view `own` if there is one, else the copy `element`.

    The copy is writeable if the record is, and the block of `x` then counts as exposed.
    """
    element.flags.writeable = _own_block(x) is not None
    if element.flags.writeable:
        hand_out()
    return element[()] if own is None else own[()]


def with_own(x: Base, start: int, elements: Array) -> Iterable[Any]:
    """Return the elements of a 1-d array from index `start` on, given copies that every rank has.

    For writeable records, the elements that this rank owns are views of its block.
    """
    block = _own_block(x)
    elements.flags.writeable = block is not None  # the records are views and inherit this flag
    if block is None:
        return elements
    hand_out()
    [(low, high)] = x.layout.section(x.mesh.coords)
    places = enumerate(elements, start)
    return (block[n - low] if low <= n < high else copy for n, copy in places)
