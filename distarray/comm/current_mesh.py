"""Mesh of new arrays: this rank alone, the mesh of a ``with mesh:`` block, or the default mesh.

A rank is alone while it runs user functions that every rank calls by itself.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING

from distarray.comm.chance import apart
from distarray.comm.ledger import forbid_communication
from distarray.comm.processes import is_child
from distarray.config import config

if TYPE_CHECKING:
    from distarray.comm.mesh import DeviceMesh

__all__ = ["alone", "defaults", "entered", "left", "own_mesh", "preferred_mesh"]

_own: ContextVar["DeviceMesh | None"] = ContextVar("distarray_own_mesh", default=None)
_entered: ContextVar[tuple["DeviceMesh", ...]] = ContextVar("distarray_meshes", default=())
#: Meshes over all ranks, by device type.
defaults: dict[str, "DeviceMesh"] = {}
_forked = False


@contextmanager
def alone(mesh: "DeviceMesh", alike: bool = False) -> Iterator[None]:
    """Run a block that each rank of a mesh runs alone, perhaps more often than other ranks.

    `alike` is True if all ranks do the same in the block. Otherwise drawing from a generator made
    outside of the block raises :class:`~distarray.errors.ChanceError`.

    Arrays made in the block are on a mesh of this rank alone. Replicated arrays from outside can be
    used. Operations that need other ranks raise :class:`~distarray.errors.CommunicationForbidden`,
    since the other ranks would not take part.

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
    world, nested = mesh._root.size, _own.get() is not None
    steady = nested or world == 1 or (alike and mesh.size() == world)
    token = _own.set(mesh._relative((1,), None, (mesh._root.rank,)))
    try:
        with forbid_communication(), nullcontext() if steady else apart():
            yield
    finally:
        _own.reset(token)


def entered(mesh: "DeviceMesh") -> None:
    """Begin a ``with mesh:`` block."""
    _entered.set((*_entered.get(), mesh))


def left() -> None:
    """End the innermost ``with mesh:`` block."""
    _entered.set(_entered.get()[:-1])


def preferred_mesh() -> "DeviceMesh | None":
    """Return the mesh of new arrays; None for the default mesh."""
    own = _own.get()
    if own is not None:
        return own
    meshes = _entered.get()
    return meshes[-1] if meshes else None


def own_mesh() -> "DeviceMesh | None":
    """Return the mesh of this rank alone, inside :func:`alone` and in a child process; else None.

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
    """Put new arrays on a mesh of this process alone; the parent's whole arrays work with them."""
    global _forked
    defaults.clear()
    _own.set(None)
    _entered.set(())
    _forked = is_child()


os.register_at_fork(after_in_child=_in_forked_child)
