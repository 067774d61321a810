"""Group for the rehearsal of an operation: it records one rank's messages and sends nothing.

Each rank is rehearsed separately. Data that it would receive are hollow arrays
(:mod:`distarray.engines.rehearsing.hollow`). If an operation depends on values of other ranks, its
rehearsal ends with :class:`~distarray.engines.rehearsing.hollow.Unknown`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from distarray.comm import ledger
from distarray.comm.group import Array, Group, Pair
from distarray.comm.ledger import Note
from distarray.comm.mesh import DeviceMesh
from distarray.comm.progress import unwatched
from distarray.engines.rehearsing import families
from distarray.engines.rehearsing.hollow import Hollow, Unknown, hollow
from distarray.engines.rehearsing.results import HollowModule
from distarray.layout.placement import Fold

__all__ = ["Said", "rehearsed"]

T = TypeVar("T")
#: Module that is imported because it registers rules.
_LOADED = families
_BOOLEAN = (Fold.ANY, Fold.ALL)
#: Notes of allreduces whose result is assumed: no rank has an error, storage orders are equal.
_ALIKE = ("agreement on errors", "storage order")


@dataclass
class Said:
    """One communication call, as the rehearsed rank takes part in it.

    Attributes
    ----------
    kind, note
        Method of the group and purpose, as in the ledger.
    sent : int
        Bytes sent.
    messages : int
        Number of messages, as the ledger counts them.
    received : int
        Bytes received.
    pairs : dict
        Bytes by receiver, for an exchange.
    """

    kind: str
    note: Note
    sent: int
    messages: int
    received: int = 0
    pairs: dict[int, int] = field(default_factory=dict)


class RehearsalGroup(Group):
    """Group of ranks of a mesh, one of which is rehearsed.

    Attributes
    ----------
    book : list of Said
        Communication calls of the rehearsed rank.
    """

    guarded = False
    answers = True

    def __init__(self, rank: int, members: tuple[int, ...], book: list[Said]) -> None:
        super().__init__(rank, len(members))
        self._members, self.book = members, book

    @property
    def world_ranks(self) -> tuple[int, ...]:
        """The members, as ranks of the mesh."""
        return self._members

    def abort(self, code: int = 1) -> None:
        """Do nothing: no rank has failed."""

    def check_talker(self) -> None:
        """Do nothing: no message is sent."""

    def meet_devices(self, xp: Any) -> None:
        """Do nothing: a rehearsal needs no transfer methods between GPUs."""

    def exchange(self, sends: Sequence[Pair], receives: Sequence[Pair], note: Note = None) -> None:
        """Record the exchange."""
        if self.size > 1 and (sends or receives):
            said = Said("exchange", note, 0, len(sends), sum([view.nbytes for _, view in receives]))
            for peer, view in sends:
                whom = self._members[peer]
                said.pairs[whom] = said.pairs.get(whom, 0) + view.nbytes
                said.sent += view.nbytes
            self.book.append(said)
        self._exchange(sends, receives)

    def write(self, kind: str, nbytes: int, note: Note) -> None:
        """Record a collective."""
        if self.size > 1:
            self.book.append(Said(kind, note, nbytes, 1))

    def _landed(self, nbytes: int) -> None:
        """Record the bytes that this rank receives in the last communication call."""
        if self.size > 1:
            self.book[-1].received = nbytes

    def _staged(self, method: Any, block: Array, *args: Any) -> Any:  # type: ignore[override]
        return method(block, *args)

    def _staged_list(  # type: ignore[override]
        self, method: Any, blocks: Sequence[Array], *args: Any
    ) -> Any:
        return method(blocks, *args)

    def allreduce(self, block: Array, fold: Fold, note: Note = None) -> Array:
        """Record the allreduce; the result is hollow, or `block` if ranks are assumed to agree."""
        self.write("allreduce", block.nbytes, note)
        self._landed(block.nbytes)
        if note in _ALIKE or self.size == 1:
            return block
        return hollow(block.shape, bool if fold in _BOOLEAN else block.dtype)

    def _exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> None:
        for _, view in receives:
            _known(view)

    def _allreduce(self, block: Array, fold: Fold) -> Array:
        return block  # called when a mesh is made, with equal blocks on all ranks

    def _allreduce_in_place(self, block: Array, fold: Fold) -> None:
        _known(block)

    def _reduce_scatter(self, blocks: Sequence[Array], fold: Fold) -> Array:
        own = blocks[self.rank]
        self._landed(own.nbytes)
        return hollow(own.shape, bool if fold in _BOOLEAN else own.dtype)

    def _exscan(self, block: Array, fold: Fold, identity: complex | Array) -> Array:
        self._landed(block.nbytes)
        return hollow(block.shape, block.dtype)

    def _broadcast(self, block: Array, root: int) -> None:
        self._landed(0 if root == self.rank else block.nbytes)
        if root != self.rank:
            _known(block)

    def _allgather(self, block: Array) -> Array:
        self._landed((self.size - 1) * block.nbytes)
        return hollow((self.size, *block.shape), block.dtype)

    def _allgather_varied(self, block: Array, counts: Sequence[int] | None) -> list[Array]:
        if counts is None and self.size > 1:
            raise Unknown("how much each rank contributes")
        lengths = [len(block)] if counts is None else counts
        whole = hollow((sum(lengths), *block.shape[1:]), block.dtype)
        self._landed(whole.nbytes - block.nbytes)
        ends = np.cumsum([0, *lengths]).tolist()
        return [whole[a:b] for a, b in pairwise(ends)]

    def _alltoall_varied(self, blocks: Sequence[Array]) -> list[Array]:
        if self.size > 1:
            raise Unknown("how much each rank sends to each")
        return list(blocks)

    def _gather_varied(self, block: Array, root: int) -> list[Array] | None:
        if self.size > 1:
            raise Unknown("how much each rank contributes")
        return [block]

    def _alltoall_counts(self, counts: Array) -> Array:
        raise Unknown("how much each rank sends to each")

    def _allgather_object(self, obj: T) -> list[T]:
        raise Unknown("what the other ranks have")

    def _broadcast_object(self, obj: T | None, root: int) -> T:
        raise Unknown("what another rank has")

    def _barrier(self) -> None:
        pass

    def _subset(self, ranks: tuple[int, ...]) -> "RehearsalGroup":
        members = tuple([self._members[rank] for rank in ranks])
        return RehearsalGroup(ranks.index(self.rank), members, self.book)


def _known(view: Array) -> None:
    """Raise Unknown if the memory of a receive has values, which the program may read later."""
    if not isinstance(view, Hollow):
        raise Unknown("what another rank sends")
    return


@contextmanager
def rehearsed(mesh: DeviceMesh, rank: int) -> Iterator[tuple[DeviceMesh, list[Said]]]:
    """Yield a mesh for the rehearsal of one rank, and the list of its communication calls.

    Within the ``with`` block new arrays are created on this mesh. Nothing is sent, and open traces
    record nothing.
    """
    book: list[Said] = []
    group = RehearsalGroup(rank, tuple(range(mesh.size())), book)
    stage = DeviceMesh(group, mesh.shape, mesh.mesh_dim_names, device_type="cpu")
    stage._xp = HollowModule()
    with ledger.unheard(), unwatched(), stage:
        yield stage, book
