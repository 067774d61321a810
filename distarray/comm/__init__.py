"""Communication layer: meshes, groups of ranks, and the messages between them.

Importing this package starts no MPI: mpi4py is loaded when the first mesh is made.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distarray.comm.current_mesh import alone as alone
    from distarray.comm.current_mesh import own_mesh as own_mesh
    from distarray.comm.group import Group as Group
    from distarray.comm.ledger import Event as Event
    from distarray.comm.ledger import Trace as Trace
    from distarray.comm.ledger import forbid_communication as forbid_communication
    from distarray.comm.ledger import trace as trace
    from distarray.comm.mesh import DeviceMesh as DeviceMesh
    from distarray.comm.mesh import default_mesh as default_mesh
    from distarray.comm.mesh import init_device_mesh as init_device_mesh
    from distarray.comm.roots import world_group as world_group
    from distarray.comm.threads import current_world as current_world
    from distarray.comm.threads import run_threads as run_threads

_WHERE = {
    "DeviceMesh": "mesh",
    "Event": "ledger",
    "Group": "group",
    "Trace": "ledger",
    "alone": "current_mesh",
    "current_world": "threads",
    "default_mesh": "mesh",
    "forbid_communication": "ledger",
    "init_device_mesh": "mesh",
    "own_mesh": "current_mesh",
    "run_threads": "threads",
    "trace": "ledger",
    "world_group": "roots",
}

__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
