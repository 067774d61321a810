"""Group of a process that is a world by itself, without MPI."""

import os
from collections.abc import Sequence
from threading import Lock
from typing import TypeVar

import numpy as np

from distarray.comm.algorithms import split_views
from distarray.comm.group import Array, Group, Pair

__all__ = ["LoneGroup", "lone_group"]

T = TypeVar("T")
_lone: "LoneGroup | None" = None
_making = Lock()


class LoneGroup(Group):
    """Group of one rank, which needs no transport."""

    takes_device_buffers = True

    def __init__(self) -> None:
        super().__init__(0, 1)

    @property
    def world_ranks(self) -> tuple[int, ...]:
        """The only rank of this group."""
        return (0,)

    def abort(self, code: int = 1) -> None:
        """End this process."""
        os._exit(code)

    def _exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> None:
        pass

    def _allgather(self, block: Array) -> Array:
        return np.stack([block])

    def _allgather_varied(self, block: Array, counts: Sequence[int] | None) -> list[Array]:
        return split_views(block.copy(), [len(block)])

    def _broadcast(self, block: Array, root: int) -> None:
        pass

    def _allgather_object(self, obj: T) -> list[T]:
        return [obj]

    def _broadcast_object(self, obj: T | None, root: int) -> T:
        return obj  # type: ignore[return-value]

    def _barrier(self) -> None:
        pass

    def _alltoall_counts(self, counts: Array) -> Array:
        return counts.copy()

    def _subset(self, ranks: tuple[int, ...]) -> "LoneGroup":
        return LoneGroup()


def lone_group() -> LoneGroup:
    """Return the lone group of this process."""
    global _lone
    with _making:
        if _lone is None:
            _lone = LoneGroup()
        return _lone


def become_lone(group: Group, *, world: bool = False) -> None:
    """Make a group of one rank, which may be the world's group, work without its transport."""
    global _lone
    group.__class__ = LoneGroup
    if world and isinstance(group, LoneGroup):
        _lone = group


def _in_forked_child() -> None:
    global _making
    _making = Lock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_in_forked_child)
