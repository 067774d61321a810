"""Which process this is: a rank of a job, or the child of one.

A launcher tells a process by environment variables which rank it is. Children inherit them, and
would take themselves for their parent's rank, of which MPI knows one. So these variables are
removed once MPI has read them; until then a mark beside them says whose they are. A child is a
world of its own, of one rank and without MPI.
"""

import os
import sys

__all__ = ["child_of", "is_child", "mpi_is_the_parents", "note_start"]

#: How a process reaches the launcher that has started it.
_PLACES = ("PMI_FD", "PMI_PORT", "PMIX_NAMESPACE")
_PREFIX = "PMIX_SERVER_URI"
#: Which rank of which job it is; this stays for people and programs to read.
_NUMBERS = (
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PALS_RANKID", "PMIX_RANK", "PMI_RANK",
    "PMI_SIZE", "SLURM_PROCID", "SLURM_STEP_ID",
)  # fmt: skip
#: A rank's process number, its numbers, and once MPI has started, which rank it is.
_MARK = "DISTARRAY_RANK"

_parent: str | None = None
_inherited = False


def is_child() -> bool:
    """Whether this process is a world of its own, since its parent is a rank or has started MPI."""
    return _parent is not None or _inherited


def child_of() -> str:
    """Whose child this process is, for people: "rank 1 of 4"."""
    return _parent or "a process with MPI"


def mpi_is_the_parents() -> bool:
    """Whether the MPI in this memory has been started by the parent, and is not to be touched."""
    return _inherited


def note_start(rank: int, size: int) -> None:
    """MPI has started, and has read what its launcher says: children shall not read it."""
    if _MARK in os.environ:
        _mark(f"rank {rank} of {size}")


def _mark(who: str = "") -> None:
    """Mark the environment of children; with `who`, they find no launcher in it."""
    if who:
        for name in list(os.environ):
            if name in _PLACES or name.startswith(_PREFIX):
                del os.environ[name]
    os.environ[_MARK] = f"{os.getpid()};{_numbers()};{who}"


def _numbers() -> str:
    return ",".join([os.environ.get(name, "") for name in _NUMBERS])


def _look() -> None:
    """Find out at the import. A process that goes on as another program (``exec``) is who it was.

    The ranks of a job that a rank has started after MPI have its mark and places of their own, or
    other numbers.
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
