"""Average number of half words per element of a method: measured once, alike on all ranks.

The measure only determines where ranks start to draw; the numbers do not depend on it.
"""

from collections.abc import Callable, Sequence
from math import gcd, sqrt
from typing import Any, NamedTuple

import numpy as np

from distarray.engines.drawing.job import Job
from distarray.engines.drawing.places import Walker, state_of

__all__ = ["Pace", "pace_of"]

_SEED = 20261123
#: Elements are measured in this many batches, each of at most `_BATCH` numbers: one in 16 of the
#: numbers to be drawn, so that measuring takes little of the time.
_BATCHES = 64
_BATCH = 1024
#: Elements that are measured one by one.
_SINGLE = 32
#: A count of half words is assumed to deviate by at most this many standard deviations.
_SURE = 7.0
_known: dict[Any, "Pace"] = {}
_MOST_KNOWN = 4096


class Pace(NamedTuple):
    """Half words per element.

    Attributes
    ----------
    halves, spread : float
        Mean and standard deviation of the half words of an element.
    sample : int
        The number of elements that were measured.
    unit : int
        Elements begin at multiples of this many half words. If each attempt takes two doubles,
        sequences that start one double apart would never synchronize.
    """

    halves: float
    spread: float
    sample: int
    unit: int

    def margin(self, count: float) -> float:
        """Return the largest expected deviation, in half words, for this many elements."""
        own = self.spread * (sqrt(count) + count / sqrt(self.sample))
        return _SURE * own + 8 * self.halves


def pace_of(job: Job, total: int) -> Pace:
    """Return the pace of a job's elements, of which all ranks together draw `total`."""
    values = job.values if job.row.steady is None else job.row.steady
    batch = min(_BATCH, 1 << (total * job.width >> 10).bit_length()) // max(1, job.width)
    size = max(4, batch)
    numbers = tuple([np.asarray(value).tobytes() for value in values])
    key = (type(job.source), job.name, numbers, size, repr(sorted(job.others.items(), key=repr)))
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[key] = _measured(job, values, size)
    return found


def _measured(job: Job, values: Sequence[Any], size: int) -> Pace:
    source = type(job.source)(np.random.PCG64(_SEED))
    walker = Walker(type(job.source)(np.random.PCG64(0)))
    draw: Callable[..., Any] = getattr(source, job.name)
    taken, unit, before = [], 0, state_of(source)
    for _ in range(_SINGLE):
        draw(*values, size=1, **job.others)
        after = state_of(source)
        unit = gcd(unit, walker.ahead(before, after, 0))
        before = after
    for _ in range(_BATCHES):
        draw(*values, size=size, **job.others)
        after = state_of(source)
        taken.append(walker.ahead(before, after, 0))
        before = after
    spread = float(np.std(taken)) / sqrt(size)
    count = _BATCHES * size
    return Pace(sum(taken) / count, spread, count, unit if unit % 2 == 0 else 2 * unit)
