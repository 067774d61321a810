"""Communicators between the ranks' runners, separate from the program's messages."""

from collections.abc import Callable
from time import monotonic, sleep  # the real ones: the program's are replaced
from typing import Any, TypeVar

import numpy as np

from distarray.comm import calls, handshake, hooks
from distarray.comm.mesh import default_mesh
from distarray.comm.waits import watch
from distarray.runner.answers import Answers, Communicator

__all__ = ["Line", "open_answers", "open_line"]

#: This module's functions wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True
T = TypeVar("T")


class Line:
    """Communicator over all ranks for small Python objects; its calls are not in the ledger.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Duplicated, so that its messages are never matched with the program's.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm.Dup()
        self.number = 0
        #: Place of the statement at whose end the ranks synchronize.
        self.statement = ""
        self.among = watch.another_line()
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()

    def barrier(self) -> None:
        """Wait for every rank."""
        calls.note(self, "barrier", None)
        self._comm.Barrier()

    def broadcast_object(self, obj: T, root: int) -> T:
        """Broadcast an object from one rank to all."""
        calls.note(self, "broadcast_object", None)
        received: T = self._comm.bcast(obj, root)
        return received

    def allgather_object(self, obj: T) -> list[T]:
        """Gather the objects of every rank on all ranks."""
        calls.note(self, "allgather_object", None)
        gathered: list[T] = self._comm.allgather(obj)
        return gathered

    def differences(self) -> str:
        """Return the program's settings and modules that now differ between the ranks, in words."""
        calls.note(self, "differences", None)
        return handshake.part(self._comm)

    def send_object(self, obj: object, rank: int) -> None:
        """Send a small object to a rank, which need not be waiting for it."""
        self._comm.isend(obj, rank)

    def received_objects(self) -> list[Any]:
        """Return the objects received from `send_object`, in order for each sender."""
        found = []
        while self._comm.iprobe():
            found.append(self._comm.recv())
        return found

    def any_failed(
        self, failed: bool, seconds: float | None, poke: Callable[[], object]
    ) -> bool | None:
        """Return True if some rank has failed; None if not all ranks arrive within `seconds`.

        It sleeps for shorter times than `all_arrive`, since it runs after each statement of a cell.
        """
        calls.note(self, "any_failed", None)
        mine, count = np.array([failed], np.int32), np.zeros(1, np.int32)
        request = self._comm.Iallreduce(mine, count)
        end = None if seconds is None else monotonic() + seconds
        began = monotonic()
        while not request.Test():
            if end is not None and monotonic() > end:
                return None
            poke()
            sleep(1e-5 if monotonic() - began < 1e-3 else 5e-4)
        return bool(count[0])

    def all_arrive(self, seconds: float | None, poke: Callable[[], object]) -> bool:
        """Return True when every rank has arrived, False after `seconds` (None: no limit).

        Meanwhile `poke` progresses messages that the other ranks may wait for.
        """
        request = self._comm.Ibarrier()
        end = None if seconds is None else monotonic() + seconds
        pause = 1e-4
        while not request.Test():
            if end is not None and monotonic() > end:
                return False
            if poke():
                sleep(pause)
                pause = min(2 * pause, 0.02)
        return True

    def abort(self, code: int) -> None:
        """Abort the job."""
        hooks.abort(self._comm, code)


def open_answers() -> Answers:
    """Create new `Answers` of rank 0 to all ranks; collective."""
    answers = Answers(default_mesh().comm(0), calls.note)
    answers.among = watch.another_line()
    return answers


def open_line() -> Line:
    """Create a new `Line` over all ranks of the job; collective, and the first call starts MPI."""
    return Line(default_mesh().comm(0))
