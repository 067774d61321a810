"""Root groups, over which meshes are made: the group of the world, or of a communicator."""

from typing import TYPE_CHECKING

from distarray.comm import processes
from distarray.comm.group import Group
from distarray.comm.lone import lone_group
from distarray.comm.outside import OutsideGroup
from distarray.comm.threads import current_world
from distarray.errors import MeshError

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["root_group", "world_group"]


def world_group() -> Group:
    """Return the group of all ranks: the thread world of this thread if there is one, else MPI's.

    A child of a rank is a world of its own.

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
    if processes.is_child():
        return lone_group()
    from distarray.comm.mpi import group_of

    return group_of()


def root_group(comm: "MPI.Intracomm | Group | None") -> Group | None:
    """Return the group of a communicator; None for COMM_NULL."""
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
    if processes.mpi_is_the_parents():
        if comm.Get_size() == 1:
            return lone_group()
        raise MeshError(
            f"DeviceMesh(comm): this process is a child of {processes.child_of()}; the other ranks "
            "of the communicator do not answer it. Its own meshes have one rank"
        )
    from distarray.comm.mpi import group_of

    return group_of(comm)
