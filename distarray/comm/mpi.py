"""Groups of MPI processes, on mpi4py. Importing this module starts MPI."""

import atexit
import os
from array import array
from collections.abc import Sequence
from threading import Lock
from typing import Any, TypeVar, cast
from weakref import WeakSet

import numpy as np

from distarray.comm import shm_size

try:
    shm_size.tell_if_small()
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    error.add_note(
        "mpi4py found no MPI library. pip install 'distarray-mpi[mpich]' brings one; on a cluster "
        "load the site's MPI (module load ...), in the job script as well as in the shell."
    )
    raise

from distarray.comm import handshake, hooks, objects, processes, tune
from distarray.comm.algorithms import GATHER_BELOW, split_views
from distarray.comm.datatypes import LARGE, in_place, message, message_parts
from distarray.comm.group import Array, Pair
from distarray.comm.lone import become_lone
from distarray.comm.mpi_folds import MPIFolds
from distarray.comm.pending import Pending, Requested, Several, end_lasting
from distarray.comm.talkers import MAIN, Talker, check_talker, talker_here
from distarray.comm.waits import watch
from distarray.errors import MeshError

__all__ = ["MPIGroup", "group_of"]

#: True: functions of this module wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True

T = TypeVar("T")
_TAG = 7
_SUBSET_TAG = 8
_BROADCAST_TAG = 9
_POST_TAG = 10
#: Largest number of ranks on one node to each of which `begin_broadcast` sends a message.
DIRECT = 16
_ANY_THREAD = MPI.Query_thread() == MPI.THREAD_MULTIPLE
_Waitall = MPI.Request.Waitall
_IN_PLACE = MPI.IN_PLACE


class MPIGroup(MPIFolds):
    """Group of the ranks of an MPI communicator; made by :func:`group_of`.

    Attributes
    ----------
    is_world : bool
        True if the group was made of COMM_WORLD.
    """

    takes_device_buffers = True
    is_world = False

    def __init__(self, comm: MPI.Intracomm, talker: Talker) -> None:
        super().__init__(comm, talker)
        self.watched = self.size > 1
        #: Ranks of this group among the ranks that watch each other; set once it is known.
        self.among: watch.Among | None = None
        comm.Set_attr(_keyval, self)
        _groups.add(self)

    @property
    def world_ranks(self) -> tuple[int, ...]:
        """The members as ranks of COMM_WORLD."""
        world = MPI.COMM_WORLD.Get_group()
        mine = self.comm.Get_group()
        try:
            return tuple(mine.Translate_ranks(None, world))
        finally:
            mine.Free()
            world.Free()

    def post(self, data: bytes) -> Pending:
        """Begin to send bytes to rank 0; complete once rank 0 receives them."""
        kept = np.frombuffer(data, np.uint8)
        return Requested(self.comm.Issend(message(kept), 0, _POST_TAG), kept)

    def posted(self) -> list[tuple[int, bytes]]:
        """Return the posted messages that have arrived, each with its rank."""
        found, status = [], MPI.Status()
        while self.comm.Iprobe(MPI.ANY_SOURCE, _POST_TAG, status):
            landing = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            self.comm.Recv(message(landing), status.Get_source(), _POST_TAG)
            found.append((status.Get_source(), landing.tobytes()))
        return found

    def _exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> None:
        if (sends or receives) and (sends or receives)[0][1].dtype.hasobject:
            objects.exchange(self, sends, receives)
            return
        comm = self.comm
        requests = []
        packed = []
        for peer, view in receives:
            into = in_place(view)
            if into is None:
                landing = np.empty(view.shape, view.dtype)
                packed.append((view, landing))
                into = in_place(landing)
            requests.append(comm.Irecv(into, peer, _TAG))
        for peer, view in sends:
            requests.append(comm.Isend(message(view), peer, _TAG))
        _Waitall(requests)
        for view, landing in packed:
            view[...] = landing

    def _begin_exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> Pending:
        if not _ANY_THREAD:  # another thread may wait than the one that began
            return super()._begin_exchange(sends, receives)
        comm = self.comm
        coming = [Requested(comm.Irecv(message(v), peer, _TAG), v) for peer, v in receives]
        going = [Requested(comm.Isend(message(v), peer, _TAG), v) for peer, v in sends]
        return Several([*going, *coming])

    def _broadcast(self, block: Array, root: int) -> None:
        if self.size == 1 or not block.nbytes:
            return
        if block.dtype.hasobject:
            objects.broadcast(self, block, root)
            return
        whole = in_place(block)
        if whole is not None:
            self.comm.Bcast(whole, root)
            return
        packed = block.copy()
        self.comm.Bcast(in_place(packed), root)
        if self.rank != root:
            block[...] = packed

    def _begin_broadcast(self, block: Array, root: int) -> Pending:
        whole = None if self.size == 1 or block.dtype.hasobject else in_place(block)
        if whole is None or not block.nbytes:
            return super()._begin_broadcast(block, root)
        if self.size > DIRECT or not self._on_one_node:
            return Requested(self.comm.Ibcast(whole, root), block)
        # MPICH's Ibcast goes through rank 0, and progresses only in root's calls of MPI, not
        # meanwhile.
        if self.rank != root:
            return Requested(self.comm.Irecv(whole, root, _BROADCAST_TAG), block)
        others = [rank for rank in range(self.size) if rank != root]
        going = [self.comm.Isend(whole, rank, _BROADCAST_TAG) for rank in others]
        return Several([Requested(request, block) for request in going])

    def _allgather(self, block: Array) -> Array:
        if block.dtype.hasobject:
            return np.stack(objects.allgather(self, block))
        result = np.empty((self.size, *block.shape), block.dtype)
        if not block.nbytes:
            return result
        if result.nbytes > LARGE:
            self._gather_large(block, [result[rank, ...] for rank in range(self.size)])
            return result
        if not block.flags.c_contiguous:
            block = block.copy()
        buffer, count, kind = message_parts(result)
        self.comm.Allgather(message(block), (buffer, count // self.size, kind))
        return result

    def _allgather_varied(self, block: Array, counts: Sequence[int] | None) -> list[Array]:
        if block.dtype.hasobject:
            parts = objects.allgather(self, block)
            return split_views(np.concatenate(parts), [len(part) for part in parts])
        if counts is None:
            counts = self._allgather(np.array(len(block))).tolist()
        whole = np.empty((sum(counts), *block.shape[1:]), block.dtype)
        views = split_views(whole, counts)
        even = min(counts) == max(counts)
        # MPICH's Allgatherv sends pieces of 32 KiB, each of which waits for all ranks.
        slow = not even and whole.nbytes > GATHER_BELOW and self._on_one_node
        if slow or whole.nbytes > LARGE:
            self._gather_large(block, views)
            return views
        views[self.rank][...] = block
        if whole.nbytes:
            buffer, length, kind = message_parts(whole)
            if even:
                self.comm.Allgather(_IN_PLACE, (buffer, length // self.size, kind))
                return views
            row = length // len(whole)
            self.comm.Allgatherv(_IN_PLACE, (buffer, [row * count for count in counts], kind))
        return views

    def _gather_large(self, block: Array, views: Sequence[Array]) -> None:
        """Gather all ranks' blocks into the views, with one message per pair of ranks."""
        others = [(rank, view) for rank, view in enumerate(views) if rank != self.rank]
        views[self.rank][...] = block
        self._exchange(
            [(rank, block) for rank, _ in others if block.size],
            [(rank, view) for rank, view in others if view.size],
        )

    def _allgather_object(self, obj: T) -> list[T]:
        return self.comm.allgather(obj)

    def _broadcast_object(self, obj: T | None, root: int) -> T:
        found: T = self.comm.bcast(obj, root)
        return found

    def _barrier(self) -> None:
        self.comm.Barrier()

    def _alltoall_counts(self, counts: Array) -> Array:
        received = np.empty_like(counts)
        self.comm.Alltoall(counts, received)
        return received

    def _subset(self, ranks: tuple[int, ...]) -> "MPIGroup":
        mine = self.comm.Get_group()
        members = mine.Incl(ranks)
        try:
            group = MPIGroup(self.comm.Create_group(members, _SUBSET_TAG), self.talker)
            group._comm.Set_errhandler(MPI.ERRORS_RETURN)  # MPICH does not inherit it
            group.among = None if self.among is None else self.among.part(ranks)
            if self.nodes is not None:
                group.nodes = _several([self.nodes[rank] for rank in ranks])
            return group
        finally:
            members.Free()
            mine.Free()

    def abort(self, code: int = 1) -> None:
        """End all ranks of the world."""
        MPI.COMM_WORLD.Abort(code)

    def free(self) -> None:
        """Free the communicators of this group and of the groups made of its ranks; collective."""
        super().free()
        if (shared := self.__dict__.pop("_memory", None)) is not None:
            shared.free()
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()


def _delete(comm: MPI.Comm, keyval: int, group: MPIGroup) -> None:
    """Free the groups made of a communicator that the program frees, which is collective."""
    if not MPI.Is_finalized() and group._comm != MPI.COMM_NULL and group._comm != comm:
        group.free()


#: All existing groups: a forked child must not use their communicators.
_groups: WeakSet[MPIGroup] = WeakSet()
_making = Lock()
_keyval = MPI.Comm.Create_keyval(delete_fn=_delete)


def group_of(comm: MPI.Intracomm | None = None) -> MPIGroup:
    """Return the library's group on a communicator; collective over it the first time.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        COMM_WORLD by default. The library uses a duplicate, which exists as long as `comm`.

    Raises
    ------
    CommunicationForbidden
        If it is COMM_WORLD and this is not the main thread, which alone makes the world's group.
    """
    comm = MPI.COMM_WORLD if comm is None else comm
    found: Any = comm.Get_attr(_keyval)
    if found is not None:
        return cast("MPIGroup", found)
    if comm.Is_inter():
        raise MeshError("a mesh needs an intracommunicator; this one joins two groups of processes")
    talker = MAIN if comm == MPI.COMM_WORLD else talker_here()
    if comm.size > 1:
        check_talker(talker)
        return _made(comm, talker)
    with _making:  # several threads of a process may come here at the same time
        found = comm.Get_attr(_keyval)
        return _made(comm, talker) if found is None else cast("MPIGroup", found)


def _made(comm: MPI.Intracomm, talker: Talker) -> MPIGroup:
    if talker is not MAIN and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise MeshError("MPI was not started for several threads: make meshes in the main thread")
    hooks.install()
    processes.note_start(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    watch.before_meeting(comm)
    share = tune.share_of_cores(comm)
    tune.start(share, share if comm.size == 1 else handshake.meet(comm, share))
    group = MPIGroup(comm.Dup(), talker)
    group._comm.Set_errhandler(MPI.ERRORS_RETURN)
    group.is_world = comm == MPI.COMM_WORLD
    comm.Set_attr(_keyval, group)
    group.nodes = _nodes_of(group._comm) if talker is MAIN else _known_nodes(group)
    watch.join(group)
    return group


def _nodes_of(comm: MPI.Intracomm) -> Sequence[int] | None:
    """Return the node of each rank, numbered by its first rank; None if all are on one node."""
    near = comm.Split_type(MPI.COMM_TYPE_SHARED)
    first = near.allreduce(comm.rank, MPI.MIN)
    near.Free()
    found = np.empty(comm.size, np.int32)
    comm.Allgather(np.array([first], np.int32), found)
    return _several(found.tolist())


def _known_nodes(group: MPIGroup) -> Sequence[int] | None:
    """Return the node of each rank if the world's group knows it; else a node for each rank.

    This function sends nothing: several threads that split communicators at the same time can block
    each other in MPICH.
    """
    world = cast("MPIGroup | None", MPI.COMM_WORLD.Get_attr(_keyval))
    if world is None:
        return _several(range(group.size))
    nodes = world.nodes
    return None if nodes is None else _several([nodes[rank] for rank in group.world_ranks])


def _several(nodes: Sequence[int]) -> Sequence[int] | None:
    return array("i", nodes) if len(set(nodes)) > 1 else None


def _in_forked_child() -> None:
    """Let groups of one rank work without MPI; larger groups have lost their other ranks."""
    for group in [group for group in _groups if group.size == 1]:
        become_lone(group, world=group.is_world)


os.register_at_fork(after_in_child=_in_forked_child)
atexit.register(end_lasting)
