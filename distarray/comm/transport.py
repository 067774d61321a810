"""Interface of a transport between ranks, such as MPI or threads of one process.

Methods take host arrays, which they do not check. A transport implements the abstract methods, and
overrides the other methods if it has a faster implementation.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Protocol, TypeVar

from distarray.comm import algorithms, ledger
from distarray.comm.ledger import Note
from distarray.comm.pending import FINISHED, Pending
from distarray.comm.talkers import MAIN, Talker, check_talker, may_talk
from distarray.layout.placement import Fold
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.comm.group import Group

__all__ = ["Array", "Board", "Pair", "Transport"]

#: Peer and strided view.
Pair = tuple[int, Array]
T = TypeVar("T")


class Board(Protocol):
    """Memory that a group shares: each rank writes its own section, and reads all sections.

    Attributes
    ----------
    slots : list of ndarray
        The bytes of each rank's section, in two rows that are used alternately.
    """

    slots: list[Array]

    def compare(self, count: int, itemsize: int = 0) -> None:
        """Raise DivergenceError if a rank that came earlier passes another number of elements."""

    def begin(self) -> None:
        """Wait for all ranks, and set all marks to zero; each rank has a few marks."""

    def meet(self) -> None:
        """Wait for all ranks; afterwards each rank sees earlier writes of the others."""

    def mark(self, number: int, count: int) -> None:
        """Set a mark of this rank; a rank that sees it also sees everything written before it."""

    def wait_for(self, rank: int, number: int, count: int) -> None:
        """Wait until a mark of a rank has reached a count."""


class Transport(ABC):
    """Communication of a group's ranks, by MPI or threads."""

    rank: int
    size: int
    #: True if `_exchange` takes GPU buffers when MPI is GPU-aware.
    takes_device_buffers: bool = False
    #: Thread that sends and receives.
    talker: Talker = MAIN

    # -- threads that may communicate ---------------------------------------------------------

    @property
    def answers(self) -> bool:
        """True if this thread may communicate with the other ranks, or there are none."""
        return self.size == 1 or self.rank < 0 or may_talk(self.talker)

    def check_talker(self) -> None:
        """Raise CommunicationForbidden, with a remedy, if this thread may not communicate."""
        if self.size > 1 and self.rank >= 0:
            check_talker(self.talker)

    @property
    def guarded(self) -> bool:
        """True if messages may be forbidden here; then ranks that send nothing check, too."""
        return ledger.is_forbidden() or get_ident() != self.talker.thread

    def check_exchange(self, nbytes: int, note: Note) -> None:
        """Raise CommunicationForbidden if `exchange` would, even if this rank sends nothing."""
        self.check_talker()
        ledger.check_allowed("exchange", nbytes, note)

    # -- messages outside of the ledger ---------------------------------------------------------

    def post(self, data: bytes) -> Pending:
        """Begin to send bytes to rank 0, which receives them by `posted`, or never does.

        The ledger does not record them, and no rank waits for them.
        """
        return FINISHED

    def posted(self) -> list[tuple[int, bytes]]:
        """Return posted messages that have arrived, with their ranks; rank 0 does not wait."""
        return []

    # -- communication, implemented by each transport -------------------------------------------

    @abstractmethod
    def _exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> None: ...

    @abstractmethod
    def _allgather(self, block: Array) -> Array: ...

    @abstractmethod
    def _allgather_varied(self, block: Array, counts: Sequence[int] | None) -> list[Array]: ...

    @abstractmethod
    def _broadcast(self, block: Array, root: int) -> None: ...

    @abstractmethod
    def _allgather_object(self, obj: T) -> list[T]: ...

    @abstractmethod
    def _broadcast_object(self, obj: T | None, root: int) -> T: ...

    @abstractmethod
    def _barrier(self) -> None: ...

    @abstractmethod
    def _alltoall_counts(self, counts: Array) -> Array: ...

    @abstractmethod
    def _subset(self, ranks: tuple[int, ...]) -> "Group": ...

    # -- communication built on the methods above; transports may override it ------------------

    def _allreduce(self, block: Array, fold: Fold) -> Array:
        return algorithms.allreduce(self, block, fold)

    def _allreduce_in_place(self, block: Array, fold: Fold) -> None:
        block[...] = self._allreduce(block, fold)

    def _begin_exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> Pending:
        self._exchange(sends, receives)
        return FINISHED

    def _begin_allreduce(self, block: Array, fold: Fold) -> Pending:
        self._allreduce_in_place(block, fold)
        return FINISHED

    def _begin_broadcast(self, block: Array, root: int) -> Pending:
        self._broadcast(block, root)
        return FINISHED

    def _board(self) -> Board | None:
        return None

    def _reduce_scatter(self, blocks: Sequence[Array], fold: Fold) -> Array:
        return algorithms.reduce_scatter(self, blocks, fold)

    def _exscan(self, block: Array, fold: Fold, identity: complex | Array) -> Array:
        return algorithms.exscan(self, block, fold, identity)

    def _alltoall_varied(self, blocks: Sequence[Array]) -> list[Array]:
        return algorithms.alltoall_varied(self, blocks)

    def _gather_varied(self, block: Array, root: int) -> list[Array] | None:
        return algorithms.gather_varied(self, block, root)
