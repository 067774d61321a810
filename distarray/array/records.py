"""Records of cut arrays that can be written to, as NumPy's, which are views of their array.

The rank that has a record gets a view of its block, the others a copy. All of them execute what the
program assigns to its fields. Nobody is told of it: so a part of the block is out (see
:mod:`distarray.array.blocks_out`), as long as the record lives.
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
    """This rank's block of records that a program may write to; None of other arrays."""
    block = raw_block(x)
    if not isinstance(block, np.ndarray) or block.dtype.names is None:
        return None
    return block if block.flags.writeable and not is_shared(x) else None


def own_part(x: Base, cell: Base) -> Any:
    """What this rank has of a view of one record, if it may be written to; else None."""
    block = _own_block(x)
    return raw_block(cell) if block is not None and cell.layout.holds(x.mesh.coords) else None


def as_read(x: Base, element: Array, own: Any) -> Any:
    """A record, given a copy of it, and what this rank has of it, if it is to be written to."""
    element.flags.writeable = _own_block(x) is not None
    if element.flags.writeable:
        hand_out()
    return element[()] if own is None else own[()]


def with_own(x: Base, start: int, elements: Array) -> Iterable[Any]:
    """The elements of a 1-d array from `start` on, of which every rank has copies."""
    block = _own_block(x)
    elements.flags.writeable = block is not None  # so are their records, which are views of them
    if block is None:
        return elements
    hand_out()
    [(low, high)] = x.layout.section(x.mesh.coords)
    places = enumerate(elements, start)
    return (block[n - low] if low <= n < high else copy for n, copy in places)
