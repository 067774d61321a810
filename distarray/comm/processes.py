"""Processes: detection of ranks of a job, and of children of ranks.

A launcher passes a process its rank in environment variables. Children inherit them and would claim
their parent's rank, which MPI accepts only once. So these variables are removed once MPI has read
them. Until then a marker variable names the process that they belong to. A child is a world of its
own, with one rank and without MPI.
"""

import os
import sys

__all__ = ["child_of", "is_child", "mpi_is_the_parents", "note_start"]

#: Variables by which a process reaches its launcher.
_PLACES = ("PMI_FD", "PMI_PORT", "PMIX_NAMESPACE")
_PREFIX = "PMIX_SERVER_URI"
#: Variables that number the rank and the job; they are kept for people and programs to read.
_NUMBERS = (
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PALS_RANKID", "PMIX_RANK", "PMI_RANK",
    "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_ID",
)  # fmt: skip
#: Variable that marks a rank: its process id, the values of `_NUMBERS`, and its rank as text once
#: MPI has started.
_MARK = "DISTARRAY_RANK"

_parent: str | None = None
_inherited = False


def is_child() -> bool:
    """Return True if this process is a world of its own: its parent is a rank, or started MPI."""
    return _parent is not None or _inherited


def child_of() -> str:
    """Return the parent of this process as text: "rank 1 of 4"."""
    return _parent or "a process with MPI"


def mpi_is_the_parents() -> bool:
    """Return True if the parent started the MPI in this memory; this process must not use it."""
    return _inherited


def note_start(rank: int, size: int) -> None:
    """Hide the launcher's variables from children, now that MPI has started and read them."""
    if _MARK in os.environ:
        _mark(f"rank {rank} of {size}")


def _mark(who: str = "") -> None:
    """Mark the environment of children; with `who`, also remove the launcher's variables."""
    if who:
        for name in list(os.environ):
            if name in _PLACES or name.startswith(_PREFIX):
                del os.environ[name]
    os.environ[_MARK] = f"{os.getpid()};{_numbers()};{who}"


def _numbers() -> str:
    return ",".join([os.environ.get(name, "") for name in _NUMBERS])


def _look() -> None:
    """Determine at import whether this process is a child.

    A process that becomes another program (``exec``) keeps its process id, and is still the same
    rank. If a rank starts a job after MPI has started, the ranks of that job inherit its mark, but
    have `_PLACES` of their own or other `_NUMBERS`.
    """
    launched = any(name in os.environ for name in _PLACES)
    process, _, rest = os.environ.get(_MARK, "").partition(";")
    numbers, _, who = rest.partition(";")
    inherited = process not in ("", str(os.getpid())) and numbers == _numbers()
    if inherited and not (launched and who):
        _become_child(who)
    elif launched:
        _mark()


def _become_child(who: str) -> None:
    global _parent
    _parent = who or "a rank"
    _mark(_parent)


def _in_forked_child() -> None:
    global _inherited
    module = sys.modules.get("mpi4py.MPI")
    _inherited = module is not None and module.Is_initialized() and not module.Is_finalized()
    if _MARK in os.environ:
        _become_child(os.environ[_MARK].rpartition(";")[2])


_look()
os.register_at_fork(after_in_child=_in_forked_child)
