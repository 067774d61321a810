"""Groups of ranks: the narrow interface between the library and MPI.

The public methods of :class:`Group` write the ledger, handle GPU buffers
(:mod:`distarray.comm.device_blocks`), and call the methods of
:class:`distarray.comm.transport.Transport`. The latter are implemented on mpi4py by
:class:`distarray.comm.mpi.MPIGroup` and on threads by :class:`distarray.comm.threads.ThreadGroup`.
Methods do not check their arguments: the caller has compared them with values that all ranks know.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from distarray.comm import fold_errors, ledger, records
from distarray.comm.calls import note as remember
from distarray.comm.device_blocks import DeviceBlocks
from distarray.comm.ledger import Note
from distarray.comm.outbox import Outbox, room_for
from distarray.comm.pending import FINISHED, Pending
from distarray.comm.transport import Array, Board, Pair
from distarray.layout.placement import Fold

__all__ = ["Array", "Board", "Group", "Pair"]

T = TypeVar("T")
_ndarray = np.ndarray


class Group(DeviceBlocks):
    """Ordered set of ranks, with the collectives and messages between them.

    Every method except `exchange` and `subset` is collective over the group.

    Attributes
    ----------
    rank : int
        This rank's number in the group.
    size : int
        Number of ranks.

    Examples
    --------
    >>> import numpy, distarray
    >>> group = distarray.default_mesh().group
    >>> group.allgather_object(group.rank) == list(range(group.size))
    True
    >>> group.allreduce(numpy.ones(2), distarray.Fold.SUM).tolist() == [group.size, group.size]
    True
    """

    #: Key that distinguishes worlds of the same ranks, and the thread ranks of one process.
    place: tuple[int, int] | None = None
    #: True if the ranks are threads of one process.
    in_one_process = False

    # -- point to point -----------------------------------------------------------------------

    def exchange(self, sends: Sequence[Pair], receives: Sequence[Pair], note: Note = None) -> None:
        """Send and receive strided views, point to point.

        Parameters
        ----------
        sends, receives : sequence of (int, array)
            Peer and view. Both sides of a message have equal dtype and number of elements, in C
            order of the view. The view is on the host on both sides, or on a GPU on both. Several
            messages between two ranks, in one call or in several, arrive in the order in which both
            sides list them. The caller leaves out empty views and the rank's own elements.
        note : Note
            The purpose, for the ledger.
        """
        if ledger.watching and sends:
            self._write_messages(sends, note)
        if self.watched:
            remember(self, "exchange", note, 0)
        for _, view in sends:
            if type(view) is not _ndarray:
                return self._exchange_on_device(sends, receives, self._ways)
        for _, view in receives:
            if type(view) is not _ndarray:
                return self._exchange_on_device(sends, receives, self._ways)
            if view.dtype.names is not None:
                return records.exchange(self, sends, receives)
        return self._exchange(sends, receives)

    def begin_exchange(
        self, sends: Sequence[Pair], receives: Sequence[Pair], note: Note = None, kind: str = ""
    ) -> Pending:
        """Begin an `exchange` of C-contiguous arrays of numbers.

        The ledger records it as a collective of that `kind`, if one is given.

        The arrays must not be touched until the end; see `begin_allreduce`. Between GPUs the
        exchange is complete when this method returns.
        """
        if ledger.watching and kind:
            self.write(kind, sum(view.nbytes for _, view in sends), note)
        elif ledger.watching and sends:
            self._write_messages(sends, note)
        if self.watched:
            remember(self, "begin_exchange", note, 0)
        if any(type(view) is not _ndarray for _, view in (*sends, *receives)):
            self._exchange_on_device(sends, receives, self._ways)
            return FINISHED
        return self._begin_exchange(sends, receives)

    def board(self) -> Board | None:
        """Return memory that all ranks of the group share, or None; collective the first time.

        The ranks synchronize before they write to the memory, and again after they have read it.
        """
        return self._board()

    def outbox(self, rows: int, arrays: Sequence[Array]) -> Outbox:
        """Return memory for rows like those of some arrays, for several ranks; collective.

        Parameters
        ----------
        rows : int
            Largest number of rows of each array that a rank sends; the same on every rank.
        arrays : sequence of array
            Arrays whose dtypes and row shapes are equal on all ranks.
        """
        if self.size > 1 and self.guarded:
            self.check_exchange(sum([array.nbytes for array in arrays]), "rows for other ranks")
        return Outbox(self, room_for(self, rows, arrays))

    # -- folds --------------------------------------------------------------------------------

    def allreduce(self, block: Array, fold: Fold, note: Note = None) -> Array:
        """Fold the ranks' blocks; every rank gets the same bits.

        Parameters
        ----------
        block : array
            Equal shape and dtype on every rank; left unchanged.
        fold : Fold
            ANY and ALL return bool. NaN and NaT win MIN and MAX, as in NumPy.
        note : Note
            The purpose, for the ledger.

        Returns
        -------
        array
            New, C-contiguous, with the shape of `block`.
        """
        if ledger.watching:
            self.write("allreduce", block.nbytes, note)
        if self.watched:
            remember(self, "allreduce", (block.shape, fold))
        if type(block) is not _ndarray or fold_errors.listening:
            return self._allreduce_staged(block, fold)
        return self._allreduce(block, fold)

    def allreduce_in_place(self, block: Array, fold: Fold, note: Note = None) -> None:
        """Fold the ranks' blocks in place: `begin_allreduce` and `wait` in one call."""
        if ledger.watching:
            self.write("allreduce", block.nbytes, note)
        if self.watched:
            remember(self, "allreduce_in_place", (block.shape, fold))
        if type(block) is not _ndarray or fold_errors.listening:
            block[...] = self._allreduce_staged(block, fold)
            return
        self._allreduce_in_place(block, fold)

    def begin_allreduce(self, block: Array, fold: Fold, note: Note = None) -> Pending:
        """Begin to fold the ranks' blocks in place.

        Parameters
        ----------
        block : ndarray
            C-contiguous memory of equal shape and dtype on every rank, and of a dtype that the fold
            keeps. It must not be touched until `wait` returns; between GPUs the fold is complete at
            once.
        fold : Fold
            As for `allreduce`.
        note : Note
            The purpose, for the ledger.

        Returns
        -------
        Pending
            After its `wait` the block holds the result, the same bits on every rank. Several can
            be pending if all ranks begin them in the same order.
        """
        if ledger.watching:
            self.write("allreduce", block.nbytes, note)
        if self.watched:
            remember(self, "begin_allreduce", (block.shape, fold))
        if type(block) is not _ndarray or fold_errors.listening:
            block[...] = self._allreduce_staged(block, fold)
            return FINISHED
        return self._begin_allreduce(block, fold)

    def reduce_scatter(self, blocks: Sequence[Array], fold: Fold, note: Note = None) -> Array:
        """Fold ``blocks[i]`` of all ranks on rank i.

        Parameters
        ----------
        blocks : sequence of array
            One contribution for each rank; ``blocks[i].shape`` is equal on all ranks.
        fold : Fold
            As for `allreduce`.
        note : Note
            The purpose, for the ledger.

        Returns
        -------
        array
            New: the fold of all ranks' contributions for this rank.
        """
        if ledger.watching:
            own = blocks[self.rank].nbytes
            self.write("reduce_scatter", sum(b.nbytes for b in blocks) - own, note)
        if self.watched:
            remember(self, "reduce_scatter", fold)
        return self._reduce_scatter_staged(blocks, fold)

    def exscan(
        self, block: Array, fold: Fold, identity: complex | Array, note: Note = None
    ) -> Array:
        """Fold the blocks of all lower ranks.

        Parameters
        ----------
        block : array
            Equal shape and dtype on every rank.
        fold : Fold
            As for `allreduce`, except AVG.
        identity : array or scalar
            The result on rank 0, broadcast to the shape of `block`.
        note : Note
            The purpose, for the ledger.
        """
        if ledger.watching:
            self.write("exscan", block.nbytes, note)
        if self.watched:
            remember(self, "exscan", (block.shape, fold))
        if fold_errors.listening and fold_errors.are_heard(block, fold):
            return fold_errors.exscan(self, block, fold, identity)
        return self._staged(self._exscan, block, fold, identity)

    # -- copies -------------------------------------------------------------------------------

    def broadcast(self, block: Array, root: int, note: Note = None) -> Array:
        """Fill `block` on every rank with root's values.

        Parameters
        ----------
        block : array
            Equal shape and dtype on every rank; overwritten except on `root`. May be strided.
        root : int
            The rank that has the values.
        note : Note
            The purpose, for the ledger.

        Returns
        -------
        array
            `block` itself.
        """
        if ledger.watching:
            self.write("broadcast", block.nbytes if self.rank == root else 0, note)
        if self.watched:
            remember(self, "broadcast", block.shape)
        if type(block) is _ndarray:
            self._broadcast(block, root)
        else:
            self._broadcast_staged(block, root)
        return block

    def begin_broadcast(self, block: Array, root: int, note: Note = None) -> Pending:
        """Begin to fill `block` on every rank with root's values.

        Parameters
        ----------
        block, root, note
            As for `broadcast`. The block must not be touched until the end, except that root may
            read it.

        Returns
        -------
        Pending
            As for `begin_allreduce`; already complete for blocks on a device.
        """
        if type(block) is not _ndarray:
            self.broadcast(block, root, note)
            return FINISHED
        if ledger.watching:
            self.write("broadcast", block.nbytes if self.rank == root else 0, note)
        if self.watched:
            remember(self, "begin_broadcast", block.shape)
        return self._begin_broadcast(block, root)

    def allgather(self, block: Array, note: Note = None) -> Array:
        """Stack the ranks' blocks: shape ``(size, *block.shape)``; shapes are equal."""
        if ledger.watching:
            self.write("allgather", block.nbytes, note)
        if self.watched:
            remember(self, "allgather", block.shape)
        if type(block) is _ndarray:
            return self._allgather(block)
        return self._allgather_staged(block)

    def allgather_varied(
        self, block: Array, counts: Sequence[int] | None = None, note: Note = None
    ) -> list[Array]:
        """Gather all ranks' blocks, which may differ in length along axis 0.

        Parameters
        ----------
        block : array
            At least 1-d; dtype and trailing shape equal on every rank.
        counts : sequence of int, optional
            The lengths along axis 0, in rank order; exchanged if not given.
        note : Note
            The purpose, for the ledger.

        Returns
        -------
        list of array
            In rank order: consecutive views of one new array, their common ``.base``.
        """
        if ledger.watching:
            self.write("allgather", block.nbytes, note)
        if self.watched:
            remember(self, "allgather_varied", None)
        if type(block) is _ndarray:
            return self._allgather_varied(block, counts)
        return self._allgather_varied_staged(block, counts)

    def alltoall_varied(self, blocks: Sequence[Array], note: Note = None) -> list[Array]:
        """Send ``blocks[i]`` to rank i.

        Parameters
        ----------
        blocks : sequence of array
            At least 1-d, one for each rank; dtype and trailing shape equal everywhere, lengths
            along axis 0 free.
        note : Note
            The purpose, for the ledger.

        Returns
        -------
        list of array
            The blocks that all ranks sent here, in rank order: consecutive views of one new array.
        """
        if ledger.watching:
            own = blocks[self.rank].nbytes
            self.write("alltoall", sum(b.nbytes for b in blocks) - own, note)
        if self.watched:
            remember(self, "alltoall_varied", None)
        return self._alltoall_varied_staged(blocks)

    def gather_varied(self, block: Array, root: int = 0, note: Note = None) -> list[Array] | None:
        """Return all ranks' blocks on `root`, None elsewhere; shapes as for `allgather_varied`."""
        if ledger.watching:
            self.write("gather", 0 if self.rank == root else block.nbytes, note)
        if self.watched:
            remember(self, "gather_varied", None)
        return self._gather_varied_staged(block, root)

    def scatter(
        self, blocks: Sequence[Array] | None, block: Array, root: int = 0, note: Note = None
    ) -> Array:
        """Fill `block` on rank i with root's ``blocks[i]``.

        Parameters
        ----------
        blocks : sequence of array or None
            On root one view for each rank, strided or not; not read elsewhere.
        block : array
            Destination; its shape and dtype are those of root's ``blocks[rank]``.
        root : int
            The rank that has the blocks.
        note : Note
            The purpose, for the ledger.

        Returns
        -------
        array
            `block` itself.
        """
        if self.rank != root:
            self.exchange([], [(root, block)] if block.nbytes else [], note)
            return block
        if blocks is None:
            raise ValueError("scatter: root must pass the blocks")
        sends = [(r, b) for r, b in enumerate(blocks) if r != root and b.nbytes]
        self.exchange(sends, [], note)
        if blocks[root] is not block:
            block[...] = blocks[root]
        return block

    # -- small Python objects -----------------------------------------------------------------

    def allgather_object(self, obj: T, note: Note = None) -> list[T]:
        """Return every rank's (picklable, small) object, in rank order."""
        if ledger.watching:
            self.write("allgather_object", 0, note)
        if self.watched:
            remember(self, "allgather_object", None)
        return [obj] if self.size == 1 else self._allgather_object(obj)

    def broadcast_object(self, obj: T | None, root: int = 0, note: Note = None) -> T:
        """Return root's (picklable, small) object on every rank; other ranks can pass None."""
        if ledger.watching:
            self.write("broadcast_object", 0, note)
        if self.watched:
            remember(self, "broadcast_object", None)
        if self.size == 1:
            return obj  # type: ignore[return-value]
        return self._broadcast_object(obj, root)

    # -- the whole group -----------------------------------------------------------------------

    def barrier(self) -> None:
        """Wait for all ranks."""
        if ledger.watching:
            self.write("barrier", 0, None)
        if self.watched:
            remember(self, "barrier", None)
        self._barrier()

    @property
    @abstractmethod
    def world_ranks(self) -> tuple[int, ...]:
        """The members as ranks of the world."""

    @abstractmethod
    def abort(self, code: int = 1) -> None:
        """End all ranks of the world."""

    # -- bookkeeping --------------------------------------------------------------------------

    def write(self, kind: str, nbytes: int, note: Note) -> None:
        """Record a collective in the ledger."""
        if self.size > 1:
            ledger.record(kind, nbytes, 1, range(self.size), note, int(self.nodes is not None))

    def _write_messages(self, sends: Sequence[Pair], note: Note) -> None:
        peers = tuple(peer for peer, _ in sends)
        nbytes = sum(view.nbytes for _, view in sends)
        ledger.record("exchange", nbytes, len(sends), peers, note, self._away(peers))

    def _away(self, peers: Sequence[int]) -> int:
        """Return the number of these ranks that are on other nodes."""
        nodes = self.nodes
        return 0 if nodes is None else sum(nodes[peer] != nodes[self.rank] for peer in peers)
