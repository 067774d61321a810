"""The ranks' clocks at the beginning of a profile, and their parts at its end."""

import pickle
from itertools import count
from time import monotonic, perf_counter, sleep
from weakref import WeakKeyDictionary

import numpy as np

from distarray.comm import Group
from distarray.comm.pending import Pending
from distarray.profiling.measured import Part

__all__ = ["CLOCKS", "brought", "clock_offset", "serial"]

#: Its functions wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True
#: What the messages are for that compare clocks.
CLOCKS = "clocks of the profile"
#: Messages to and fro by which two clocks are compared.
_ROUNDS = 5
#: Seconds that a rank which has failed waits for rank 0, and rank 0 for the others.
_PATIENCE = 2.0
#: Seconds that a rank which has come to the end waits for rank 0.
_LONG = 60.0

_numbers: "WeakKeyDictionary[Group, count[int]]" = WeakKeyDictionary()
#: Parts that rank 0 has not taken; their memory must stay.
_left: list[Pending] = []


def serial(group: Group) -> int:
    """The number of a profile on a group, the same on all ranks, which open them together."""
    return next(_numbers.setdefault(group, count()))


def clock_offset(group: Group) -> float:
    """What is to be added to this rank's clock to get rank 0's; collective.

    Of some messages to and fro those are taken that were fastest.
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
    """The parts of all ranks on rank 0; elsewhere the rank's own, and whether rank 0 has taken it.

    A rank whose part ended early waits no longer than a moment: the others may not come.
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
    """Whether a message is taken within some time."""
    end, pause = monotonic() + seconds, 1e-4
    while not pending.poke():
        if monotonic() > end:
            return False
        sleep(pause)
        pause = min(2 * pause, 0.02)
    return True
