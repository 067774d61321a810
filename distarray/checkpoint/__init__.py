"""Checkpoints: the state of a program on disk, from which any number of ranks can continue.

:func:`save` writes nested dicts and lists of arrays and numbers, completely or not at all.
:func:`load` loads them on any mesh with any placements. A checkpoint is a Zarr v3 group, whose
arrays any Zarr reader can open. It contains no pickles, and loading it runs no code.

Names are loaded on first use. Importing this package starts no MPI.
"""

from typing import TYPE_CHECKING

from distarray.checkpoint import adapters
from distarray.lazy import lazy_names

if TYPE_CHECKING:
    from distarray.checkpoint.adapters import register
    from distarray.checkpoint.background import Saving
    from distarray.checkpoint.integrity import verify
    from distarray.checkpoint.listing import latest, steps
    from distarray.checkpoint.loading import load
    from distarray.checkpoint.saving import save
    from distarray.errors import CheckpointError

__all__ = ["CheckpointError", "Saving", "latest", "load", "register", "save", "steps", "verify"]

#: Prefix of this package's functions in reports (see :mod:`distarray.comm.waits.stacks`).
SHOWN_AS = "distarray.checkpoint."

_HOMES = {
    "CheckpointError": "distarray.errors",
    "Saving": "distarray.checkpoint.background",
    "latest": "distarray.checkpoint.listing",
    "load": "distarray.checkpoint.loading",
    "register": "distarray.checkpoint.adapters",
    "save": "distarray.checkpoint.saving",
    "steps": "distarray.checkpoint.listing",
    "verify": "distarray.checkpoint.integrity",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)

adapters.adapted_in("torch", "distarray.torch.parameters.checkpointing")
