"""The launcher that started this process as one of several ranks, and ending its job without MPI.

A rank that fails before it has started MPI would leave the others waiting for it in MPI_Init: the
launcher of MPICH ignores the exit of a process that has not called MPI yet.
"""

import os
import socket
import stat
import threading
import time

__all__ = ["end_job", "rank", "size"]

#: The variables in which launchers tell a process the number of ranks, and its own.
_NUMBERS = (
    ("PMI_SIZE", "PMI_RANK"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)
#: The variable with the descriptor of the line to a launcher that speaks PMI 1 (MPICH's, Slurm's).
_LINE = "PMI_FD"
_HELLO = b"cmd=init pmi_version=1 pmi_subversion=1\n"
#: Seconds for the launcher's answer, for it to end this process, and for MPI to start and do so.
_ANSWER, _ENDING, _START = 1.0, 5.0, 20.0


def _line() -> tuple[int, tuple[int, int]] | None:
    """The descriptor of the line and its identity; None if there is none, or it is closed."""
    try:
        descriptor = int(os.environ.get(_LINE, ""))
        found = os.fstat(descriptor)
    except (ValueError, OSError):
        return None
    return (descriptor, (found.st_dev, found.st_ino)) if stat.S_ISSOCK(found.st_mode) else None


def _numbers() -> tuple[int, int]:
    """The number of ranks and this one's; (1, 0) if no launcher has said so to this process.

    A child of a rank inherits variables, but not the line.
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


# As they are when the package is imported: MPI's start hides them, and a program may close files.
_exit = os._exit
_known = _line()
size, rank = _numbers()


def end_job(code: int) -> None:
    """End all ranks, without MPI having been started here; does not return.

    By the launcher's own protocol; or by this process's exit, if the launcher ends a job of which
    one process fails (Open MPI's); or by starting MPI, for which the others wait.
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
