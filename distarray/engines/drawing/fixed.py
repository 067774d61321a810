"""Strategy `FIXED`: an element takes a known number of half words, so its position is computed.

No messages are sent, except for MT19937, which has no `advance`: the ranks compare their initial
states, and the last rank broadcasts its final state.
"""

from math import ceil

from distarray.engines.drawing.job import Job, Share, raise_alike, same_places
from distarray.engines.drawing.places import put, state_of
from distarray.typing import Array, Shape

__all__ = ["drawn_at_places"]


def drawn_at_places(job: Job, share: Share, shape: Shape) -> Array:
    """Draw this rank's elements; afterwards the generator is past the last element of all ranks.

    Parameters
    ----------
    job : Job
        A call whose elements take a known number of half words.
    share : Share
        The elements of each rank.
    shape : tuple of int
        The shape of this rank's part, without that of an element.
    """
    walker, group, halves = job.walker, share.group, job.row.halves
    assert walker is not None
    told = None if walker.jumps else group
    if told is not None:
        same_places(told, job)
    part, error = job.empty(shape), None
    try:
        part = _part(job, share.own, shape)
    except Exception as caught:
        error = caught
    raise_alike(group, job, error)
    if told is not None:
        put(job.source, told.broadcast_object(state_of(job.source), share.active[-1], "place"))
    elif share.own[0] == share.own[1] or share.own[1] < share.total:
        put(job.source, walker.on(job.start, ceil(share.total * halves), halves == 2))
    return part


def _part(job: Job, own: tuple[int, int], shape: Shape) -> Array:
    """Draw the elements of this rank."""
    start, stop = own
    if start == stop:
        return job.empty(shape)
    walker, halves = job.walker, job.row.halves
    assert walker is not None
    spare = start % round(1 / halves) if halves < 1 else 0  # in start's half word
    put(job.source, walker.on(job.start, int((start - spare) * halves), halves == 2))
    if spare:
        return job.draw(stop - start + spare)[spare:]
    return job.draw(shape)
