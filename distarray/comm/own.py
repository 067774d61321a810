"""What each rank does by itself: calls of functions of the user's, as many as fall to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from distarray.comm.ledger import forbid_communication

if TYPE_CHECKING:
    from distarray.comm.mesh import DeviceMesh

__all__ = ["alone", "own_mesh"]

_own: ContextVar["DeviceMesh | None"] = ContextVar("distarray_own_mesh", default=None)


@contextmanager
def alone(mesh: "DeviceMesh") -> Iterator[None]:
    """Run what the ranks of a mesh do each by itself, one more often than another.

    Arrays that are made meanwhile are on a mesh of this rank alone; replicated ones from outside
    may be used. What would need other ranks raises
    :class:`~distarray.errors.CommunicationForbidden`: they are elsewhere, and would not answer.
    """
    if mesh.coords is None or mesh._root is None:
        yield
        return
    token = _own.set(mesh._relative((1,), None, (mesh._root.rank,)))
    try:
        with forbid_communication():
            yield
    finally:
        _own.reset(token)


def own_mesh() -> "DeviceMesh | None":
    """The mesh of this rank by itself inside :func:`alone`; None elsewhere."""
    return _own.get()
