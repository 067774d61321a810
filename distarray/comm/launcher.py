"""Launcher that started this process as one of several ranks, and end of its job without MPI.

A rank that fails before it has started MPI would leave the other ranks waiting for it in MPI_Init:
the launcher of MPICH ignores the exit of a process that has not called MPI yet.
"""

import os
import socket
import stat
import threading
import time

__all__ = ["end_job", "patience", "rank", "size"]

#: Variables in which launchers pass a process the number of ranks, and its own rank.
_NUMBERS = (
    ("PMI_SIZE", "PMI_RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
#: Variable with the descriptor of the connection to a launcher that uses PMI 1 (MPICH's, Slurm's).
_LINE = "PMI_FD"
_HELLO = b"cmd=init pmi_version=1 pmi_subversion=1\n"
#: Seconds for the launcher's reply, for the launcher to end this process, and for MPI to start and
#: end the job.
_ANSWER, _ENDING, _START = 1.0, 5.0, 20.0
#: Seconds that a rank waits for each lower rank under Open MPI, and the most ranks to wait for.
_RANK_STEP, _LAST_RANK = 0.5, 10


def _line() -> tuple[int, tuple[int, int]] | None:
    """Return descriptor and identity of the connection; None if there is none, or it is closed."""
    try:
        descriptor = int(os.environ.get(_LINE, ""))
        found = os.fstat(descriptor)
    except (ValueError, OSError):
        return None
    return (descriptor, (found.st_dev, found.st_ino)) if stat.S_ISSOCK(found.st_mode) else None


def _numbers() -> tuple[int, int]:
    """Return the number of ranks and this process's rank; (1, 0) if no launcher has set them.

    A child of a rank inherits variables, but not the connection.
    """
    if _LINE in os.environ and _known is None:
        return 1, 0
    for names in _NUMBERS:
        try:
            size, rank = (int(os.environ[name]) for name in names)
        except (KeyError, ValueError):
            continue
        return size, rank
    return 1, 0


# Values at the import of the package: MPI's start hides them, and a program may close files.
_exit = os._exit
_known = _line()
size, rank = _numbers()


def patience(rank: int) -> float:
    """Return the seconds that a rank leaves to lower ranks, which may be ending the job.

    Open MPI's daemon ends the other ranks some tenths of a second after one has failed.
    """
    return _RANK_STEP * min(rank, _LAST_RANK) if "OMPI_COMM_WORLD_SIZE" in os.environ else 0.0


def end_job(code: int) -> None:
    """End all ranks, without MPI having been started here; do not return.

    Use the launcher's own protocol if there is one. Otherwise exit, if the launcher ends a job of
    which one process fails (Open MPI's); or start MPI, for which the other ranks wait, and abort.
    """
    if _known is not None:
        _abort_by_line(*_known, code)
    elif "OMPI_COMM_WORLD_SIZE" not in os.environ:
        threading.Thread(target=_abort_by_mpi, args=(code,), daemon=True).start()
        time.sleep(_START)
    _exit(code)


def _abort_by_line(descriptor: int, identity: tuple[int, int], code: int) -> None:
    try:
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != identity:
            return  # the program has closed files that are not its own
        with socket.socket(fileno=os.dup(descriptor)) as line:
            line.settimeout(_ANSWER)
            line.sendall(_HELLO)
            line.recv(1024)
            line.sendall(b"cmd=abort exitcode=%d\n" % code)
    except OSError:
        return
    time.sleep(_ENDING)


def _abort_by_mpi(code: int) -> None:
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError):
        _exit(code)
    MPI.COMM_WORLD.Abort(code)
