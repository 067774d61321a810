"""Lines between the ranks' runners, apart from the program's messages."""

from collections.abc import Callable
from time import monotonic, sleep  # as they are: the program's own are replaced
from typing import Any, TypeVar

import numpy as np

from distarray.comm import calls, handshake, hooks
from distarray.comm.mesh import default_mesh
from distarray.comm.waits import watch
from distarray.runner.answers import Answers, Communicator

__all__ = ["Line", "open_answers", "open_line"]

#: Its functions wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True
T = TypeVar("T")


class Line:
    """A communicator over all ranks for small Python objects; it does not enter the ledger.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Duplicated: messages here never meet the program's.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm.Dup()
        self.number = 0
        #: Where the statement is at whose end the ranks meet.
        self.statement = ""
        self.among = watch.another_line()
        self.rank: int = comm.Get_rank()
        self.size: int = comm.Get_size()

    def barrier(self) -> None:
        """Wait for every rank."""
        calls.note(self, "barrier", None)
        self._comm.Barrier()

    def broadcast_object(self, obj: T, root: int) -> T:
        """Hand one rank's object to all."""
        calls.note(self, "broadcast_object", None)
        received: T = self._comm.bcast(obj, root)
        return received

    def allgather_object(self, obj: T) -> list[T]:
        """Hand every rank's object to all."""
        calls.note(self, "allgather_object", None)
        gathered: list[T] = self._comm.allgather(obj)
        return gathered

    def differences(self) -> str:
        """Settings and modules of the program that differ between the ranks by now, in words."""
        calls.note(self, "differences", None)
        return handshake.part(self._comm)

    def send_object(self, obj: object, rank: int) -> None:
        """Send a small object to a rank, which need not be waiting for it."""
        self._comm.isend(obj, rank)

    def received_objects(self) -> list[Any]:
        """The objects that have come by `send_object`, those of each rank in order."""
        found = []
        while self._comm.iprobe():
            found.append(self._comm.recv())
        return found

    def any_failed(
        self, failed: bool, seconds: float | None, poke: Callable[[], object]
    ) -> bool | None:
        """Whether some rank has failed; None if not all come within `seconds`.

        It sleeps more shortly than `all_arrive`, as each statement of a cell comes here.
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
        """Whether every rank comes here, at most `seconds` after this one; None waits on.

        Meanwhile `poke` lets messages go on that the others may wait for.
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
        """End the job."""
        hooks.abort(self._comm, code)


def open_answers() -> Answers:
    """New answers of rank 0 to all ranks; collective."""
    answers = Answers(default_mesh().comm(0), calls.note)
    answers.among = watch.another_line()
    return answers


def open_line() -> Line:
    """A new line over all ranks of the job; collective, and the first call starts MPI."""
    return Line(default_mesh().comm(0))
