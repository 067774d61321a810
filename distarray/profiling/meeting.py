"""Clock comparison at the start of a profile, and collection of the ranks' parts at its end."""

import pickle
from itertools import count
from time import monotonic, perf_counter, sleep
from weakref import WeakKeyDictionary

import numpy as np

from distarray.comm import Group
from distarray.comm.pending import Pending
from distarray.profiling.measured import Part

__all__ = ["CLOCKS", "brought", "clock_offset", "serial"]

#: This module's functions wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True
#: Purpose of the messages that compare clocks.
CLOCKS = "clocks of the profile"
#: Round trips by which two clocks are compared.
_ROUNDS = 5
#: Seconds that a failed rank waits for rank 0, and a failed rank 0 for the others.
_PATIENCE = 2.0
#: Seconds that a rank whose block ended normally waits for rank 0.
_LONG = 60.0

_numbers: "WeakKeyDictionary[Group, count[int]]" = WeakKeyDictionary()
#: Sends of parts that rank 0 has not received; kept so that their memory stays allocated.
_left: list[Pending] = []


def serial(group: Group) -> int:
    """Return the number of a new profile; equal on all ranks, which open profiles together."""
    return next(_numbers.setdefault(group, count()))


def clock_offset(group: Group) -> float:
    """Return the seconds to add to this rank's clock to get rank 0's; collective.

    Of several round trips, the fastest determines the offset.
    """
    told, word = np.zeros(1), np.zeros(1)
    if group.rank:
        for _ in range(_ROUNDS):
            group.exchange([], [(0, word)], CLOCKS)
            told[0] = perf_counter()
            group.exchange([(0, told)], [], CLOCKS)
        group.exchange([], [(0, told)], CLOCKS)
        return float(told[0])
    for rank in range(1, group.size):
        best = np.inf, 0.0
        for _ in range(_ROUNDS):
            start = perf_counter()
            group.exchange([(rank, word)], [], CLOCKS)
            group.exchange([], [(rank, told)], CLOCKS)
            stop = perf_counter()
            best = min(best, (stop - start, 0.5 * (start + stop) - float(told[0])))
        group.exchange([(rank, np.array([best[1]]))], [], CLOCKS)
    return 0.0


def brought(group: Group, part: Part, number: int) -> tuple[dict[int, Part], bool]:
    """Send this rank's part to rank 0, and collect the parts of all ranks there.

    Rank 0 returns the parts of all ranks, and True. The other ranks return their own part, and True
    if rank 0 has received it. A rank whose part ended early waits only briefly, because the other
    ranks may not arrive.
    """
    if group.size == 1:
        return {group.rank: part}, True
    if group.rank:
        pending = group.post(pickle.dumps((number, part)))
        taken = _wait(pending, _PATIENCE if part.ended else _LONG)
        if not taken:
            _left.append(pending)
        return {group.rank: part}, taken
    found, end = {0: part}, monotonic() + _PATIENCE
    pause = 1e-4
    while len(found) < group.size and not (part.ended and monotonic() > end):
        for rank, data in group.posted():
            of, theirs = pickle.loads(data)
            if of == number:
                found[rank], pause = theirs, 1e-4
        sleep(pause)
        pause = min(2 * pause, 0.02)
    return found, True


def _wait(pending: Pending, seconds: float) -> bool:
    """Wait for a send; return True if the message is received within some seconds."""
    end, pause = monotonic() + seconds, 1e-4
    while not pending.poke():
        if monotonic() > end:
            return False
        sleep(pause)
        pause = min(2 * pause, 0.02)
    return True
