"""Groups of MPI processes, on mpi4py. Importing this module starts MPI."""

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock, get_ident
from typing import Any, cast
from weakref import WeakSet

import numpy as np

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    error.add_note(
        "mpi4py found no MPI library. pip install 'distarray-mpi[mpich]' brings one; on a cluster "
        "load the MPI that is there (module load ...), in the job as in the shell."
    )
    raise

from distarray.comm import algorithms, hooks, large, objects, processes, tune, watch
from distarray.comm.algorithms import GATHER_BELOW, split_views
from distarray.comm.datatypes import LARGE, carrier, in_place, message, message_parts
from distarray.comm.folding import UFUNCS, averaged, prepared
from distarray.comm.group import Array, Board, Group, Pair
from distarray.comm.lone import become_lone
from distarray.comm.pending import FINISHED, Pending, Requested, Several
from distarray.comm.talkers import MAIN, Talker, check_talker, talker_here
from distarray.errors import DivergenceError, MeshError
from distarray.layout.placement import Fold

__all__ = ["MPIGroup", "group_of"]

#: Its functions wait for other ranks (see :mod:`distarray.comm.stacks`).
WAITS_FOR_RANKS = True

_TAG = 7
_SUBSET_TAG = 8
_BROADCAST_TAG = 9
#: Up to so many ranks that share memory each takes by itself what one of them begins to broadcast.
DIRECT = 16
_Waitall = MPI.Request.Waitall
_IN_PLACE = MPI.IN_PLACE


def _native_folds() -> dict[str, dict[np.dtype[Any], tuple[MPI.Op, MPI.Datatype]]]:
    """The folds that MPI does as NumPy does them: by fold and dtype, the operation and type.

    Not among them: MIN and MAX of floats (MPI may lose a NaN), products of complex numbers (C and
    NumPy differ at infinities), half and extended precision, times; and sums of integers of 8 and
    16 bits, which wrap around in NumPy and saturate in Open MPI's vectorised loops.
    """
    integers = {np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)}
    types = {dtype: carrier(dtype).mpi_type for dtype in integers}
    wide = {dtype: kind for dtype, kind in types.items() if dtype.itemsize >= 4}
    floats = {np.dtype(name): carrier(np.dtype(name)).mpi_type for name in ("f4", "f8")}
    complexes = {np.dtype(name): carrier(np.dtype(name)).mpi_type for name in ("c8", "c16")}
    boolean = {np.dtype(bool): MPI.C_BOOL}

    def table(operation: MPI.Op, *groups: dict[Any, Any]) -> dict[Any, Any]:
        return {dtype: (operation, kind) for group in groups for dtype, kind in group.items()}

    return {
        Fold.SUM.value: table(MPI.SUM, wide, floats, complexes) | table(MPI.LOR, boolean),
        Fold.PROD.value: table(MPI.PROD, types, floats) | table(MPI.LAND, boolean),
        Fold.MIN.value: table(MPI.MIN, types) | table(MPI.LAND, boolean),
        Fold.MAX.value: table(MPI.MAX, types) | table(MPI.LOR, boolean),
        Fold.ANY.value: table(MPI.LOR, boolean),
        Fold.ALL.value: table(MPI.LAND, boolean),
        Fold.BAND.value: table(MPI.BAND, types) | table(MPI.LAND, boolean),
        Fold.BOR.value: table(MPI.BOR, types) | table(MPI.LOR, boolean),
        Fold.BXOR.value: table(MPI.BXOR, types) | table(MPI.LXOR, boolean),
        Fold.AVG.value: {},
    }


_NATIVE = _native_folds()
_NOTHING: dict[Any, Any] = {}
#: MIN and MAX of these floats, if small: gathered by MPI and folded by NumPy, NaN and all.
_GATHERED = {
    fold.value: {
        np.dtype(name): (UFUNCS[fold].reduce, carrier(np.dtype(name)).mpi_type)
        for name in ("f4", "f8")
    }
    for fold in (Fold.MIN, Fold.MAX)
}


class MPIGroup(Group):
    """The ranks of an MPI communicator; made by :func:`group_of`.

    Attributes
    ----------
    comm : mpi4py.MPI.Intracomm
        The library's own communicator, a duplicate: its messages never meet the program's.
    is_world : bool
        Whether it was made of COMM_WORLD.
    """

    takes_device_buffers = True
    is_world = False

    def __init__(self, comm: MPI.Intracomm, talker: Talker) -> None:
        super().__init__(comm.Get_rank(), comm.Get_size())
        self._comm = comm
        self.talker = talker
        self.watched = self.size > 1
        #: Whose ranks these are, of those that watch one another; set where that is known.
        self.among: watch.Among | None = None
        comm.Set_attr(_keyval, self)
        _groups.add(self)

    @property
    def comm(self) -> MPI.Intracomm:
        """What all that is said goes through: refused to a thread that does not talk here."""
        if get_ident() != self.talker.thread:
            self.check_talker()
        return self._comm

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
        comm = self.comm
        coming = [Requested(comm.Irecv(message(v), peer, _TAG), v) for peer, v in receives]
        going = [Requested(comm.Isend(message(v), peer, _TAG), v) for peer, v in sends]
        return Several([*going, *coming])

    def _allreduce(self, block: Array, fold: Fold) -> Array:
        rule = _NATIVE[fold._value_].get(block.dtype)
        if rule is None:
            return self._allreduce_otherwise(block, fold)
        if self._is_large(block):
            return self._fold_large(block, None, fold)
        total = block.copy()
        if self.size > 1:
            if total.size > LARGE:
                self._in_pieces(self.comm.Allreduce, total, rule)
            else:
                try:
                    self.comm.Allreduce(_IN_PLACE, (total, rule[1]), rule[0])
                except MPI.Exception as error:
                    raise _explained(error, "allreduce", block) from error
        return total

    @cached_property
    def _on_one_node(self) -> bool:
        """Whether several ranks, all of them, share memory; collective when first asked."""
        near = self.comm.Split_type(MPI.COMM_TYPE_SHARED)
        try:
            return near.size == self.size > 1
        finally:
            near.Free()

    @property
    def _shared(self) -> large.Shared | None:
        """Memory in which the ranks can fold, if there is; collective when first asked."""
        if get_ident() != self.talker.thread:
            self.check_talker()
        return self._memory

    @cached_property
    def _memory(self) -> large.Shared | None:
        # Ranks that fold a smaller block meanwhile would wait for this one: as in `Shared`.
        self.comm.Allreduce(_IN_PLACE, np.zeros(2))
        return large.shared_by(self.comm) if self._on_one_node else None

    def _board(self) -> Board | None:
        return self._shared

    def _is_large(self, block: Array) -> bool:
        """Whether the ranks fold such blocks in memory that they share."""
        return block.nbytes >= large.FROM and self._shared is not None

    def _fold_large(self, block: Array, total: Array | None, fold: Fold) -> Array:
        assert self._shared is not None
        block = np.ascontiguousarray(block)
        total = np.empty(block.shape, block.dtype) if total is None else total
        self._shared.allreduce(block, total, UFUNCS[fold])
        return total

    def _allreduce_in_place(self, block: Array, fold: Fold) -> None:
        rule = _NATIVE[fold._value_].get(block.dtype)
        if rule is None or block.size > LARGE:
            block[...] = self._allreduce(block, fold)
        elif self._is_large(block):
            self._fold_large(block, block, fold)
        elif self.size > 1:
            try:
                self.comm.Allreduce(_IN_PLACE, (block, rule[1]), rule[0])
            except MPI.Exception as error:
                raise _explained(error, "allreduce", block) from error

    def _begin_allreduce(self, block: Array, fold: Fold) -> Pending:
        if self.size == 1 and fold is not Fold.AVG:
            return FINISHED
        rule = _NATIVE[fold._value_].get(block.dtype)
        if rule is None or block.size > LARGE:
            return super()._begin_allreduce(block, fold)
        request = self.comm.Iallreduce(_IN_PLACE, (block, rule[1]), rule[0])
        return Requested(request, block)

    def _in_pieces(
        self, call: Callable[..., None], total: Array, rule: tuple[MPI.Op, MPI.Datatype]
    ) -> None:
        """A fold in place of more elements than one call can count."""
        flat = total.reshape(-1)
        for start in range(0, flat.size, LARGE):
            call(_IN_PLACE, (flat[start : start + LARGE], rule[1]), rule[0])

    def _allreduce_otherwise(self, block: Array, fold: Fold) -> Array:
        quick = _GATHERED.get(fold._value_, _NOTHING).get(block.dtype)
        if quick is not None and self.size > 1 and block.nbytes * self.size <= GATHER_BELOW:
            rows = np.empty((self.size, *block.shape), block.dtype)
            self.comm.Allgather(message(block), (rows, block.size, quick[1]))
            return np.asarray(quick[0](rows, 0))
        ready = prepared(block, fold)
        if ready is not block and ready.dtype in _NATIVE[fold._value_]:
            return self._allreduce(ready, fold)
        if fold is Fold.AVG and ready.dtype in _NATIVE[Fold.SUM.value] and ready.dtype != bool:
            return averaged(self._allreduce(ready, Fold.SUM), self.size, fold)
        plain = fold is not Fold.AVG and not ready.dtype.hasobject
        if plain and self._is_large(ready):
            return self._fold_large(ready, None, fold)
        return algorithms.allreduce(self, ready, fold)

    def _reduce_scatter(self, blocks: Sequence[Array], fold: Fold) -> Array:
        ready = [prepared(block, fold) for block in blocks]
        own = ready[self.rank]
        rule = _NATIVE[fold._value_].get(own.dtype)
        if rule is None or self.size == 1 or sum([block.size for block in ready]) > LARGE:
            return algorithms.reduce_scatter(self, ready, fold)
        if sum([block.nbytes for block in ready]) > GATHER_BELOW and self._on_one_node:
            return algorithms.reduce_scatter(self, ready, fold)  # without packing
        operation, kind = rule
        packed = np.concatenate([block.reshape(-1) for block in ready])
        total = np.empty(own.shape, own.dtype)
        counts = [block.size for block in ready]
        try:
            self.comm.Reduce_scatter((packed, kind), (total, kind), counts, operation)
        except MPI.Exception as error:
            raise _explained(error, "reduce_scatter", packed) from error
        return total

    def _exscan(self, block: Array, fold: Fold, identity: Array) -> Array:
        ready = prepared(block, fold)
        rule = _NATIVE[fold._value_].get(ready.dtype)
        if rule is None or self.size == 1:
            return algorithms.exscan(self, ready, fold, identity)
        total = ready.copy()
        self._in_pieces(self.comm.Exscan, total, rule)
        if self.rank == 0:
            total[...] = identity
        return total

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
        # MPICH's goes by way of rank 0, and only while root is asking for it: root cannot compute.
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
        # MPICH's Allgatherv goes in pieces of 32 KiB, each of which waits for all ranks.
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
        """Everybody's block into the views, one message a pair."""
        others = [(rank, view) for rank, view in enumerate(views) if rank != self.rank]
        views[self.rank][...] = block
        self._exchange(
            [(rank, block) for rank, _ in others if block.size],
            [(rank, view) for rank, view in others if view.size],
        )

    def _allgather_object(self, obj: Any) -> list[Any]:
        return self.comm.allgather(obj)

    def _broadcast_object(self, obj: Any, root: int) -> Any:
        return self.comm.bcast(obj, root)

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
            group._comm.Set_errhandler(MPI.ERRORS_RETURN)  # which MPICH does not hand on
            group.among = None if self.among is None else self.among.part(ranks)
            return group
        finally:
            members.Free()
            mine.Free()

    def abort(self, code: int = 1) -> None:
        """End all ranks of the world."""
        MPI.COMM_WORLD.Abort(code)

    def free(self) -> None:
        """Free the communicators below this one and its own; collective."""
        super().free()
        if (shared := self.__dict__.pop("_memory", None)) is not None:
            shared.free()
        if self._comm != MPI.COMM_NULL:
            self._comm.Free()


def _explained(error: MPI.Exception, call: str, block: Array) -> Exception:
    """What MPI's error means where ranks bring arrays of different sizes; other errors as is."""
    if error.Get_error_class() != MPI.ERR_TRUNCATE:
        return error
    return DivergenceError(
        f"{call}: the ranks bring different numbers of elements, this one an array of shape "
        f"{block.shape}. With config.check (DISTARRAY_CHECK=1) they compare what they bring before "
        "they send it, and say which rank brings what"
    )


def _delete(comm: MPI.Comm, keyval: int, group: MPIGroup) -> None:
    """The program frees a communicator: free what was made of it (every member does, in step)."""
    if not MPI.Is_finalized() and group._comm != MPI.COMM_NULL and group._comm != comm:
        group.free()


#: All that live: a forked child must not use their communicators.
_groups: WeakSet[MPIGroup] = WeakSet()
_making = Lock()
_keyval = MPI.Comm.Create_keyval(delete_fn=_delete)


def group_of(comm: MPI.Intracomm | None = None) -> MPIGroup:
    """The library's group on a communicator; collective over it the first time.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm, optional
        COMM_WORLD by default. The library works on a duplicate, which lives as long as `comm`.

    Raises
    ------
    CommunicationForbidden
        If it is COMM_WORLD, of which the main thread makes the group, and this is another thread.
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
    with _making:  # alone, several threads may come here at the same time
        found = comm.Get_attr(_keyval)
        return _made(comm, talker) if found is None else cast("MPIGroup", found)


def _made(comm: MPI.Intracomm, talker: Talker) -> MPIGroup:
    if talker is not MAIN and MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise MeshError("this MPI was not started for several threads: make meshes in the main one")
    hooks.install()
    processes.note_start(MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size)
    watch.before_meeting(comm)
    group = MPIGroup(comm.Dup(), talker)
    group._comm.Set_errhandler(MPI.ERRORS_RETURN)
    group.is_world = comm == MPI.COMM_WORLD
    comm.Set_attr(_keyval, group)
    tune.start(group._comm)
    watch.join(group)
    return group


def _in_forked_child() -> None:
    """Groups of one rank go on without MPI; those of more have lost the others."""
    for group in [group for group in _groups if group.size == 1]:
        become_lone(group, world=group.is_world)


os.register_at_fork(after_in_child=_in_forked_child)
