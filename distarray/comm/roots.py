"""The ranks that a mesh is made over: those of the world, or of a communicator."""

from typing import Any

from distarray.comm.group import Group
from distarray.comm.outside import OutsideGroup
from distarray.comm.threads import current_world
from distarray.errors import MeshError

__all__ = ["root_group", "world_group"]


def world_group() -> Group:
    """All ranks: of this thread's world if it is a rank of one, of MPI's otherwise.

    Examples
    --------
    >>> import distarray
    >>> group = distarray.comm.world_group()
    >>> 0 <= group.rank < group.size
    True
    """
    world = current_world()
    if world is not None:
        return world
    from distarray.comm.mpi import group_of

    return group_of()


def root_group(comm: Any) -> Group | None:
    """The group of a communicator; None for COMM_NULL."""
    if comm is None:
        return world_group()
    if isinstance(comm, OutsideGroup):
        return None
    if isinstance(comm, Group):
        return comm
    if not hasattr(comm, "Get_rank"):
        raise MeshError(
            f"DeviceMesh(comm, shape): comm is an mpi4py communicator, not {type(comm).__name__}; "
            'init_device_mesh("cpu", shape) makes a mesh over all ranks'
        )
    if not comm:
        return None
    from distarray.comm.mpi import group_of

    return group_of(comm)
