"""What a way of talking between ranks has to offer: MPI, or threads of one process.

Methods take host arrays, and trust them. A transport implements the abstract ones; what follows
from those is overridden where it knows better.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from distarray.comm import algorithms, ledger
from distarray.comm.pending import FINISHED, Pending
from distarray.comm.talkers import MAIN, Talker, check_talker, may_talk
from distarray.layout.placement import Fold
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.comm.group import Group

__all__ = ["Array", "Board", "Pair", "Transport"]

#: (peer, strided view)
Pair = tuple[int, Array]


class Board(Protocol):
    """Memory of which each rank of a group fills its own part, and reads all.

    Attributes
    ----------
    slots : list of ndarray
        The bytes of each rank's part: a row for every other turn.
    """

    slots: list[Array]

    def compare(self, count: int, itemsize: int = 0) -> None:
        """Raise DivergenceError if a rank brings another number of elements, as the later one."""

    def begin(self) -> None:
        """Wait for all ranks, and set their marks, of which each has a few, to zero."""

    def meet(self) -> None:
        """Wait for all ranks; what each has written before, all others see afterwards."""

    def mark(self, number: int, count: int) -> None:
        """Set a mark of this rank's; who sees it sees all that the rank has written before."""

    def wait_for(self, rank: int, number: int, count: int) -> None:
        """Wait until a mark of a rank's has come to a count."""


class Transport(ABC):
    """The conversations of a group's ranks, as MPI or threads hold them."""

    rank: int
    size: int
    #: The thread that talks to the other ranks.
    talker: Talker = MAIN

    # -- who may talk -------------------------------------------------------------------------

    @property
    def answers(self) -> bool:
        """Whether this thread of this process can talk to the other ranks, if there are any."""
        return self.size == 1 or self.rank < 0 or may_talk(self.talker)

    def check_talker(self) -> None:
        """Raise CommunicationForbidden, with the way out, where this thread cannot."""
        if self.size > 1 and self.rank >= 0:
            check_talker(self.talker)

    @property
    def guarded(self) -> bool:
        """Whether messages may be forbidden here; who has none to send then asks all the same."""
        return ledger.watching > 0 or get_ident() != self.talker.thread

    def check_exchange(self, nbytes: int, note: object) -> None:
        """Raise CommunicationForbidden if an `exchange` is, also if this rank sends nothing."""
        self.check_talker()
        ledger.check_allowed("exchange", nbytes, note)

    @abstractmethod
    def _exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> None: ...

    @abstractmethod
    def _allgather(self, block: Array) -> Array: ...

    @abstractmethod
    def _allgather_varied(self, block: Array, counts: Sequence[int] | None) -> list[Array]: ...

    @abstractmethod
    def _broadcast(self, block: Array, root: int) -> None: ...

    @abstractmethod
    def _allgather_object(self, obj: Any) -> list[Any]: ...

    @abstractmethod
    def _broadcast_object(self, obj: Any, root: int) -> Any: ...

    @abstractmethod
    def _barrier(self) -> None: ...

    @abstractmethod
    def _alltoall_counts(self, counts: Array) -> Array: ...

    @abstractmethod
    def _subset(self, ranks: tuple[int, ...]) -> "Group": ...

    # -- what follows from it; transports override where they know better ----------------------

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

    def _exscan(self, block: Array, fold: Fold, identity: Array) -> Array:
        return algorithms.exscan(self, block, fold, identity)

    def _alltoall_varied(self, blocks: Sequence[Array]) -> list[Array]:
        return algorithms.alltoall_varied(self, blocks)

    def _gather_varied(self, block: Array, root: int) -> list[Array] | None:
        return algorithms.gather_varied(self, block, root)
