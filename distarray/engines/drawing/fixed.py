"""The first way to draw: an element takes a known number of half words, so its place is computed.

Nothing is sent, except for MT19937: it cannot be advanced, so the last rank sends its final state.
"""

from math import ceil

from distarray.engines.drawing.job import Job, Share, raise_alike, same_places
from distarray.engines.drawing.places import put, state_of
from distarray.typing import Array, Shape

__all__ = ["drawn_at_places"]


def drawn_at_places(job: Job, share: Share, shape: Shape) -> Array:
    """This rank's elements; the generator stands after the last one of all ranks.

    Parameters
    ----------
    job : Job
        A method whose elements take a known number of half words.
    share : Share
        Who draws which elements.
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
    """The elements of this rank."""
    start, stop = own
    if start == stop:
        return job.empty(shape)
    walker, halves = job.walker, job.row.halves
    assert walker is not None
    spare = start % round(1 / halves) if halves < 1 else 0  # in the half word that start lies in
    put(job.source, walker.on(job.start, int((start - spare) * halves), halves == 2))
    if spare:
        return job.draw(stop - start + spare)[spare:]
    return job.draw(shape)
