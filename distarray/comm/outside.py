"""Group of a mesh that this rank is not in: its methods send and receive nothing."""

from collections.abc import Sequence
from typing import TypeVar

from distarray.comm.group import Array, Group, Pair
from distarray.comm.ledger import Note
from distarray.comm.pending import FINISHED, Pending
from distarray.layout.placement import Fold

__all__ = ["OutsideGroup"]

T = TypeVar("T")


class OutsideGroup(Group):
    """Group on a rank that does not belong to it: nothing is ever sent.

    Methods that fold or fill return their argument; methods that collect return this rank's
    contribution. `rank` is -1.
    """

    takes_device_buffers = True

    def __init__(self, size: int, world_ranks: tuple[int, ...] = ()) -> None:
        super().__init__(-1, size)
        self._world_ranks = world_ranks

    @property
    def world_ranks(self) -> tuple[int, ...]:
        """Members as ranks of the world, if they are known here."""
        return self._world_ranks

    def exchange(self, sends: Sequence[Pair], receives: Sequence[Pair], note: Note = None) -> None:
        """Do nothing."""

    def allreduce(self, block: Array, fold: Fold, note: Note = None) -> Array:
        """Return the block."""
        return block

    def allreduce_in_place(self, block: Array, fold: Fold, note: Note = None) -> None:
        """Do nothing: the block is unchanged."""

    def begin_allreduce(self, block: Array, fold: Fold, note: Note = None) -> Pending:
        """Do nothing: the block is unchanged."""
        return FINISHED

    def reduce_scatter(self, blocks: Sequence[Array], fold: Fold, note: Note = None) -> Array:
        """Return the first block."""
        return blocks[0]

    def exscan(
        self, block: Array, fold: Fold, identity: complex | Array, note: Note = None
    ) -> Array:
        """Return the block."""
        return block

    def broadcast(self, block: Array, root: int, note: Note = None) -> Array:
        """Return the block."""
        return block

    def begin_broadcast(self, block: Array, root: int, note: Note = None) -> Pending:
        """Do nothing: the block is unchanged."""
        return FINISHED

    def allgather(self, block: Array, note: Note = None) -> Array:
        """Return the block, as a stack of one."""
        return block[None]

    def allgather_varied(
        self, block: Array, counts: Sequence[int] | None = None, note: Note = None
    ) -> list[Array]:
        """Return the block in a list."""
        return [block]

    def alltoall_varied(self, blocks: Sequence[Array], note: Note = None) -> list[Array]:
        """Return the blocks."""
        return list(blocks)

    def gather_varied(self, block: Array, root: int = 0, note: Note = None) -> list[Array] | None:
        """Return None."""
        return None

    def scatter(
        self, blocks: Sequence[Array] | None, block: Array, root: int = 0, note: Note = None
    ) -> Array:
        """Return the block."""
        return block

    def allgather_object(self, obj: T, note: Note = None) -> list[T]:
        """Return the object in a list."""
        return [obj]

    def broadcast_object(self, obj: T | None, root: int = 0, note: Note = None) -> T:
        """Return the object."""
        return obj  # type: ignore[return-value]

    def split(self, color: int | None, key: int = 0) -> "Group | None":
        """Return None."""
        return None

    def subset(self, ranks: Sequence[int]) -> "Group | None":
        """Return None."""
        return None

    def barrier(self) -> None:
        """Do nothing."""

    def abort(self, code: int = 1) -> None:
        """End this process; there is no group to end."""
        raise SystemExit(code)

    def _exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> None:
        raise NotImplementedError

    _allgather = _allgather_varied = _broadcast = _allgather_object = _exchange  # type: ignore[assignment]
    _broadcast_object = _barrier = _alltoall_counts = _subset = _exchange  # type: ignore[assignment]
