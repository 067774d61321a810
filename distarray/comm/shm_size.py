"""Warning before MPI starts if a node's /dev/shm is too small for MPI.

MPICH uses its memory in /dev/shm without reserving it. If there is less than it needs, as in many
containers, the kernel ends the process without a reason. Open MPI reports this by itself, and uses
TCP.
"""

import os

from distarray.comm import hooks

__all__ = ["tell_if_small"]

_SHM = "/dev/shm"
#: Bytes that MPICH takes for each rank of a node, with UCX, which is included in its wheel.
_RANK = 5.3 * (1 << 20)
#: The variables by which MPICH's launcher numbers the ranks of a node.
_RANKS, _NUMBER = "MPI_LOCALNRANKS", "MPI_LOCALRANKID"
#: Variables that make MPICH take less memory.
_LESS = {"UCX_TLS": "self,tcp", "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS": "8"}


def tell_if_small() -> None:
    """Warn on the first rank of a node if MPICH may find too little room in /dev/shm."""
    text = os.environ.get(_RANKS, "")
    ranks = int(text) if text.isdecimal() else 0
    if ranks < 2 or os.environ.get(_NUMBER) != "0" or any(name in os.environ for name in _LESS):
        return
    try:
        found = os.statvfs(_SHM)
    except OSError:
        return
    size = found.f_blocks * found.f_frsize
    if 0 < size < ranks * _RANK:
        less = " ".join([f"{name}={value}" for name, value in _LESS.items()])
        hooks.say(
            f"{_SHM} has {size / (1 << 20):.3g} MiB, and MPICH takes up to "
            f"{ranks * _RANK / (1 << 20):.3g} MiB of it for the {ranks} ranks of this node: it may "
            "be ended by SIGBUS or SIGSEGV when it starts. The cure: a larger one (docker run "
            f"--shm-size=1g); or, on one node, {less}"
        )
