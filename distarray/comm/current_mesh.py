"""Which mesh new arrays go to: of this rank by itself, that of a ``with mesh:``, or the default.

A rank is by itself in calls of functions of the user's, of which it makes as many as fall to it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from distarray.comm.ledger import forbid_communication
from distarray.comm.processes import is_child
from distarray.config import config

if TYPE_CHECKING:
    from distarray.comm.mesh import DeviceMesh

__all__ = ["alone", "defaults", "entered", "left", "own_mesh", "preferred_mesh"]

_own: ContextVar["DeviceMesh | None"] = ContextVar("distarray_own_mesh", default=None)
_entered: ContextVar[tuple["DeviceMesh", ...]] = ContextVar("distarray_meshes", default=())
#: Of all ranks, by the kind of device.
defaults: dict[str, "DeviceMesh"] = {}
_forked = False


@contextmanager
def alone(mesh: "DeviceMesh") -> Iterator[None]:
    """Run what the ranks of a mesh do each by itself, one more often than another.

    Arrays that are made meanwhile are on a mesh of this rank alone; replicated ones from outside
    may be used. What would need other ranks raises
    :class:`~distarray.errors.CommunicationForbidden`: they are elsewhere, and would not answer.

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> mesh = distarray.default_mesh()
    >>> with distarray.comm.alone(mesh):
    ...     print(np.ones(mesh.rank + 1).sum() == mesh.rank + 1)  # one length a rank
    True
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


def entered(mesh: "DeviceMesh") -> None:
    """Begin a ``with mesh:``."""
    _entered.set((*_entered.get(), mesh))


def left() -> None:
    """End the innermost ``with mesh:``."""
    _entered.set(_entered.get()[:-1])


def preferred_mesh() -> "DeviceMesh | None":
    """The mesh of new arrays, where it is not the default one."""
    own = _own.get()
    if own is not None:
        return own
    meshes = _entered.get()
    return meshes[-1] if meshes else None


def own_mesh() -> "DeviceMesh | None":
    """The mesh of this rank by itself inside :func:`alone`, and in a child; None elsewhere.

    Examples
    --------
    >>> import distarray
    >>> with distarray.comm.alone(distarray.default_mesh()):
    ...     print(own_mesh().size())
    1
    >>> own_mesh() is None
    True
    """
    own = _own.get()
    return defaults.get(config.device) if own is None and _forked else own


def _in_forked_child() -> None:
    """New arrays are on a mesh of this process alone; whole ones of its parent's go with them."""
    global _forked
    defaults.clear()
    _own.set(None)
    _entered.set(())
    _forked = is_child()


os.register_at_fork(after_in_child=_in_forked_child)
