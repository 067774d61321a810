"""Blocks that are exposed to the program, if their memory has several materializations.

The program may write to an exposed block at any time. So, once exposed, this materialization always
counts as the newest: other materializations are brought up to date at each use, and writes to them
are copied back at once. But one rank alone may ask for its block. If the program's code uses names
that expose blocks, or `refresh` was called, the ranks therefore vote before each use of such
memory, until they know of an exposed block.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from distarray.array.base import Base, storage_of
from distarray.array.handed_out import names_blocks
from distarray.array.passed import passed
from distarray.comm import ledger
from distarray.comm.group import Group
from distarray.comm.user_lines import program_frame, warn_program
from distarray.errors import CopyRequiredError, PerformanceWarning
from distarray.layout import Fold

if TYPE_CHECKING:
    from distarray.array.memory import Materialization, Memory, Storage

__all__ = ["Uses", "is_old", "live_arrays", "prune", "refreshed", "unshare"]

#: Number above that of any materialization.
_NONE = 1 << 40
#: Modules whose functions read a block once per call and bypass the dispatcher.
_AT_ONCE = frozenset(
    {f"distarray.array.{name}" for name in ("alike", "items", "operators", "temporaries")}
)
#: Number of most recent materializations for which the ranks vote whether they are still needed.
_LAST = 64
#: Bytes that are copied between the materializations of a memory without a warning.
QUIET = 1 << 16
#: Lines of the program, by thread, that were already warned of refreshes.
_told: set[tuple[int, str, int]] = set()


class Uses:
    """State of a memory's use by the program: exposed blocks, and counts of writes and refreshes.

    Attributes
    ----------
    asks : bool
        True if a block of a rank may be exposed without the other ranks' knowledge.
    begun : bool
        True if the memory is prepared for one more materialization.
    pinned : Materialization or None
        The materialization that the program may write to now.
    lasting : Materialization or None
        The materialization with an exposed block, if all ranks know of the block.
    seen : int
        The number of calls at the time of the ranks' last vote.
    opened : int
        Number of its arrays that are being written to.
    writes, refreshes : int
        Number of writes, and of copies from one materialization to another.
    copied : int
        Bytes of these copies.
    """

    __slots__ = (
        "asks",
        "begun",
        "copied",
        "lasting",
        "opened",
        "pinned",
        "refreshes",
        "seen",
        "writes",
    )

    def __init__(self) -> None:
        self.asks, self.begun, self.seen = False, False, -1
        self.pinned: Materialization | None = None
        self.lasting: Materialization | None = None
        self.opened = self.writes = self.refreshes = self.copied = 0

    def agree(self, memory: Memory, group: Group) -> None:
        """Find out by a vote whose block is exposed, and mark it as the newest; collective."""
        if self.opened or not (self.asks or self.pinned is not None):
            return
        number = passed.number - passed.exports
        if number == self.seen and not _is_at_once():
            return
        self.seen = number
        if self.pinned is None:
            self.pinned = self.lasting = _pinned(memory, group)
        if self.pinned is not None:
            memory.newest[:] = [self.pinned]

    def begin(self, source: Materialization, group: Group) -> None:
        """Vote before a memory gets one more materialization; collective.

        The ranks agree whether blocks may be exposed, and which of the last materializations no
        rank needs any more. The caller has already determined whether this rank's block of `source`
        is exposed.
        """
        self.begun = True
        memory = source.memory
        first = max(0, memory.made - _LAST)
        votes = np.zeros(1 + memory.made - first, bool)
        votes[0] = source.is_out or names_blocks()
        for found in memory.materializations:
            if found.number >= first:
                votes[1 + found.number - first] = found.is_out or bool(live_arrays(found))
        votes = group.allreduce(votes, Fold.MAX, "blocks that are handed out, and living aliases")
        self.asks |= bool(votes[0])
        self.writes = 0
        dead = {first + int(number) for number in np.flatnonzero(~votes[1:])}
        _drop(memory, dead - {source.number})


def _is_at_once() -> bool:
    """Return True if the function that reads a block does so once per call."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if name not in _MECHANISM:
            return name in _AT_ONCE
        frame = frame.f_back
    return False


_MECHANISM = frozenset(
    {__name__, *[f"distarray.array.{name}" for name in ("base", "memory", "sharing")]}
)


def _pinned(memory: Memory, group: Group) -> Materialization | None:
    """Return the materialization with a block that some rank has exposed, or None."""
    mine = [found.number for found in memory.materializations if found.is_out]
    vote = np.array([max(mine, default=-1), -min(mine, default=_NONE)])
    high, low = group.allreduce(vote, Fold.MAX, "blocks that are handed out").tolist()
    if high < 0:
        return None
    if high != -low:
        raise CopyRequiredError(
            "blocks of two aliases of the same memory have been handed out (to_local, from_local, "
            "tensors), which are cut in different ways: each may be written to at any time, so "
            "that neither is sure to be the newest. Ask for blocks of one of them, or of a copy"
        )
    return next(found for found in memory.materializations if found.number == high)


def is_old(x: Base) -> bool:
    """Return True if an array's block may lack writes through another alias; no communication."""
    storage = storage_of(x)
    if storage is None or storage.block is None:
        return False
    memory = storage.source.memory
    pinned = memory.uses.pinned
    if pinned is not None:
        return pinned is not storage.source
    return storage.source not in memory.newest


def live_arrays(source: Materialization) -> list[Any]:
    """Return the arrays over a materialization that the program still has, or might have."""
    found = {id(x): x for x in [known() for known in source.arrays] if x is not None}.values()
    return [x for x in found if getattr(storage_of(x), "source", None) is source]


def prune(memory: Memory) -> None:
    """Drop materializations without live arrays if dropping them makes no difference to any rank.

    A materialization is dropped only if no other one is linked through it and its elements are also
    elsewhere. The ranks may drop it at different times: no array reads it, and no path of links
    passes through it.
    """
    if not memory.uses.asks and memory.uses.pinned is None:
        _drop(memory, {found.number for found in memory.materializations if not live_arrays(found)})


def _drop(memory: Memory, dead: set[int]) -> None:
    """Drop the materializations with the given numbers if nothing depends on them."""
    newest, kept = memory.newest, memory.materializations
    for found in kept[:]:
        if found.link is None or found.is_out or found.number not in dead:
            continue
        above = found.link.storage.source
        if found in newest and above not in newest:
            continue
        if not any(m.link is not None and m.link.storage.source is found for m in kept):
            kept.remove(found)
            if found in newest:
                newest.remove(found)


def unshare(storage: Storage) -> None:
    """Drop all other materializations of a memory if no rank needs them; collective.

    A rank needs a materialization that has live arrays or an exposed block. The ranks vote after
    the first write to a memory, the second, the fourth and so on.
    """
    source = storage.source
    uses, others = (
        source.memory.uses,
        [m for m in source.memory.materializations if m is not source],
    )
    if storage.block is None or uses.opened or uses.pinned is not None:
        return
    uses.writes += 1
    if uses.writes & (uses.writes - 1):
        return
    needed = np.array(any(m.is_out or live_arrays(m) for m in others))
    if storage.mesh.group.allreduce(needed, Fold.MAX, "aliases that are alive"):
        return
    source.memory.materializations[:] = source.memory.newest[:] = [source]
    source.link, uses.asks = None, False
    for x in live_arrays(source):
        own = x._storage
        x.block, own.block = own.block, None


def refreshed(source: Materialization, target: Materialization) -> None:
    """Record a copy from one materialization to another, and warn the program if it is costly."""
    uses = target.memory.uses
    linked = target if target.link is not None and target.link.storage.source is source else source
    nbytes = 0 if linked.link is None else linked.link.top.nbytes
    uses.refreshes += 1
    uses.copied += nbytes
    size = ledger.size_text(nbytes)
    if ledger.watching:
        ledger.record("refresh", 0, 0, (), f"an old alias of {size} is brought up to date")
    if uses.refreshes > 1 and uses.copied >= QUIET:
        _tell(size, "may be" if uses.pinned is source else "were")


def _tell(size: str, how: str) -> None:
    """Warn at the program's line, once per line."""
    frame = program_frame(sys._getframe(1))
    line = passed.number >> 40, frame.f_code.co_filename, frame.f_lineno
    if line not in _told:
        _told.add(line)
        warn_program(
            f"this line needs elements that {how} written through another alias of the same "
            f"memory, which is cut in another way: up to {size} go to other ranks, and each time "
            "that it runs. Write to one of the two, and use the other when that is done; or work "
            "on a copy",
            PerformanceWarning,
        )
