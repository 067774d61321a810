"""NumPy-style distributed arrays over MPI.

Every rank of an MPI job runs the same program; a :class:`DistArray` is one global array of which
each rank holds a block. See :mod:`distarray.numpy` for the drop-in NumPy names.

Names are loaded on first use, and importing starts no MPI.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from distarray.comm.hooks import install_early
from distarray.lazy import load_operations, loader, warn_of_old_project

if TYPE_CHECKING:
    from distarray import checkpoint as checkpoint
    from distarray import io as io
    from distarray import job as job
    from distarray import numpy as numpy
    from distarray import random as random
    from distarray import torch as torch
    from distarray.array import (
        DistArray,
        distribute,
        from_local,
        register_function,
        register_ufunc,
    )
    from distarray.array.fused import fuse
    from distarray.array.visualizing import visualize
    from distarray.comm import (
        DeviceMesh,
        default_mesh,
        forbid_communication,
        init_device_mesh,
        trace,
    )
    from distarray.comm.progress import progress
    from distarray.config import config
    from distarray.engines.mapping.effects import pure
    from distarray.engines.mapping.local_map import local_map
    from distarray.engines.mapping.map_blocks import map_blocks
    from distarray.engines.mapping.map_overlap import map_overlap
    from distarray.layout import Fold, Layout, Partial, Replicate, Shard
    from distarray.ops.explaining import explain
    from distarray.profiling import profile

    distribute_tensor = distribute

__version__ = "0.1.0"

install_early()
warn_of_old_project(__file__)

__all__ = [
    "DeviceMesh",
    "DistArray",
    "Fold",
    "Layout",
    "Partial",
    "Replicate",
    "Shard",
    "config",
    "default_mesh",
    "distribute",
    "distribute_tensor",
    "explain",
    "forbid_communication",
    "from_local",
    "fuse",
    "init_device_mesh",
    "local_map",
    "map_blocks",
    "map_overlap",
    "profile",
    "progress",
    "pure",
    "register_function",
    "register_ufunc",
    "trace",
    "visualize",
]

_HOMES = {
    "DeviceMesh": "distarray.comm",
    "DistArray": "distarray.array",
    "Fold": "distarray.layout",
    "Layout": "distarray.layout",
    "Partial": "distarray.layout",
    "Replicate": "distarray.layout",
    "Shard": "distarray.layout",
    "config": "distarray.config",
    "default_mesh": "distarray.comm",
    "distribute": "distarray.array",
    "distribute_tensor": "distarray.array",
    "explain": "distarray.ops.explaining",
    "forbid_communication": "distarray.comm",
    "from_local": "distarray.array",
    "fuse": "distarray.array.fused",
    "init_device_mesh": "distarray.comm",
    "local_map": "distarray.engines.mapping.local_map",
    "map_blocks": "distarray.engines.mapping.map_blocks",
    "map_overlap": "distarray.engines.mapping.map_overlap",
    "profile": "distarray.profiling",
    "progress": "distarray.comm.progress",
    "pure": "distarray.engines.mapping.effects",
    "register_function": "distarray.array",
    "register_ufunc": "distarray.array",
    "trace": "distarray.comm",
    "visualize": "distarray.array.visualizing",
}

#: Submodules that are imported at the first access of the attribute.
_ROOMS = ("checkpoint", "io", "job", "numpy", "random", "torch")


def _load_operations() -> None:
    import_module("distarray.ops")
    import_module("distarray.io.numpy_functions")


loader[:] = [_load_operations]


def _loaded(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"distarray.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'distarray' has no attribute {name!r}")
    if home == "distarray.array":
        load_operations()
    value = getattr(import_module(home), "distribute" if name == "distribute_tensor" else name)
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # otherwise type checkers would accept any name
    __getattr__ = _loaded


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})


def load_ipython_extension(shell: Any) -> None:
    """Run the cells of a notebook on ranks: ``%load_ext distarray``."""
    import_module("distarray.notebook").load(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Run the cells of a notebook in the kernel again, and end the ranks."""
    import_module("distarray.notebook").unload(shell)
