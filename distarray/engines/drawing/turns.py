"""Strategy `TURNS`: a rank draws its elements and broadcasts the state for the next rank.

Drawing in turns takes as long as NumPy on one process.
"""

from distarray.comm.agree import agree
from distarray.engines.drawing.job import Job, Share, same_places
from distarray.engines.drawing.places import State, put, state_of
from distarray.typing import Array, Shape

__all__ = ["drawn_in_turns"]


def drawn_in_turns(job: Job, share: Share, shape: Shape) -> Array:
    """Draw this rank's elements; afterwards the generator is past the last element of all ranks.

    If NumPy raises an error on one rank, all ranks raise it, and all generators keep the state from
    before the call.
    """
    group, part = share.group, job.empty(shape)
    if group is None:
        return part
    same_places(group, job)
    for rank in share.active:
        error, reached = None, None
        if rank == group.rank:
            part, error = _drawn(job, shape)
            reached = state_of(job.source) if error is None else None
        told: State | None = group.broadcast_object(reached, rank, "place")
        put(job.source, job.start if told is None else told)
        if told is None:
            agree(group, error)
    return part


def _drawn(job: Job, shape: Shape) -> tuple[Array, Exception | None]:
    """Draw the next elements, or return NumPy's error."""
    try:
        return job.draw(shape), None
    except Exception as error:
        return job.empty(shape), error
