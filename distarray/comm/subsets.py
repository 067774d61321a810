"""Subsets: some ranks of a group as a group of their own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from distarray.comm.calls import note as remember
from distarray.comm.transport import Transport

if TYPE_CHECKING:
    from distarray.comm.group import Group
    from distarray.comm.mesh import DeviceMesh
    from distarray.comm.mesh_definition import Definition

__all__ = ["Subsets"]


class Subsets(Transport):
    """Ranks of a group, and the groups and meshes that are made of them."""

    #: True if its communication calls are recorded (:mod:`distarray.comm.calls`), to explain long
    #: waits.
    watched: bool = False
    #: The node of each rank, by number; None if all ranks are on one node.
    nodes: Sequence[int] | None = None

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        #: Number of communication calls of the whole group so far (see ``distarray.comm.calls``).
        self.number = 0
        #: Meshes made on this group (see ``distarray.comm.mesh``).
        self.meshes: dict[Definition, DeviceMesh] = {}
        self._children: dict[tuple[int, ...], Group | None] = {}

    def split(self, color: int | None, key: int = 0) -> "Group | None":
        """Return the group of ranks of equal color, by key and rank; None for ``color=None``.

        Groups are cached by their ranks: splitting in a loop makes no new communicators.
        """
        whole = cast("Group", self)
        entries = whole.allgather_object((color, key), "split")
        if color is None:
            return None
        members = [(k, rank) for rank, (c, k) in enumerate(entries) if c == color]
        return self.subset(tuple(rank for _, rank in sorted(members)))

    def subset(self, ranks: Sequence[int]) -> "Group | None":
        """Return the group of these ranks, in this order; None on other ranks.

        Collective over `ranks` alone at the first call; later calls do not communicate. The group
        is cached as long as this group exists.
        """
        key = tuple(ranks)
        if key not in self._children:
            if self.rank not in key:
                return None
            whole = key == tuple(range(self.size))
            if self.watched and not whole:
                remember(self, "subset", key, 0)
            made = cast("Group", self) if whole else self._subset(key)
            self._children.setdefault(key, made)
        return self._children[key]

    def free(self) -> None:
        """Free this group's meshes and the groups made of its ranks; collective."""
        children, self._children = self._children, {}
        self.meshes.clear()
        for child in children.values():
            if child is not None and child is not self:
                child.free()
