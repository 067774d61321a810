"""Access of the program to this rank's block, which the program may then write to at any time.

No function of this module communicates, except :func:`refreshed`.
"""

import sys
from typing import Any

import numpy as np

from distarray.array.base import Base, raw_block
from distarray.array.blocks_out import is_old
from distarray.array.handed_out import hand_out
from distarray.array.memory import entered, is_shared
from distarray.array.passed import passed
from distarray.comm.user_lines import is_house
from distarray.errors import CommunicationForbidden, CopyRequiredError

__all__ = ["block_for_caller", "lend", "lent_in", "refreshed"]


def block_for_caller() -> bool:
    """Return True if the program, not this library, called the method that calls this function."""
    caller = sys._getframe(1).f_back
    return caller is None or not is_house(caller)


def lend(x: Base) -> Any:
    """Return this rank's block of a cut array to the program, and mark the block as exposed.

    Raises
    ------
    CommunicationForbidden
        If the block is not up to date, or other ranks cannot know that it is exposed.
    CopyRequiredError
        If the program has the block of another alias, and may write to it at any time.
    """
    if not is_shared(x):
        if x.mesh.coords is not None and x.layout.is_plain:
            entered(x).source.is_out = True
        hand_out()
        return x.block
    source = x._storage.source
    memory = source.memory
    if any(other.is_out and other is not source for other in memory.materializations):
        raise CopyRequiredError(
            f"{_named(x)} shares memory with another array, which is cut in another way and of "
            "which this rank's block has been handed out: it may be written to at any time, and "
            "this block would not see it. Ask for blocks of one of the two, or of a copy (x.copy())"
        )
    if is_old(x) or not memory.uses.asks:
        why = "has been written to through another alias" if is_old(x) else "is not asked for often"
        raise CommunicationForbidden(
            f"this rank's block of {_named(x)} {why}: x shares memory with an array that is cut in "
            "another way, and one rank alone cannot bring its block up to date. Call x.refresh() "
            "on all ranks before x.to_local()"
        )
    source.is_out = True
    hand_out()
    return x._storage.block


def lent_in(x: Base) -> None:
    """Note that the program supplied the block of an array and may still refer to it."""
    if not x.layout.is_whole and x.layout.is_plain and x.mesh.coords is not None:
        entered(x).source.is_out = True


def refreshed(x: Base) -> None:
    """Bring an array's block up to date, and allow exposing the block from now on; collective."""
    passed.number += 1
    if is_shared(x):
        x._storage.source.memory.uses.asks = True
        x._storage.read()


def _named(x: Base) -> str:
    return f"an array of shape {x.shape} and data type {np.dtype(raw_block(x).dtype)}"
