"""Communication of a group about blocks in GPU memory, by the transfer method chosen for each.

The ledger has been written when these methods are called. It does not record the transfer method.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple, cast

import numpy as np

from distarray.comm import algorithms, devices, fold_errors, ledger, nccl
from distarray.comm.algorithms import split_views
from distarray.comm.calls import note as remember
from distarray.comm.devices import module_of, on_device
from distarray.comm.nccl import Nccl
from distarray.comm.subsets import Subsets
from distarray.comm.transport import Array, Pair, Transport
from distarray.comm.ways import EXCHANGE, HOST, MPI, NCCL, TOGETHER, Ways, chosen
from distarray.layout.placement import Fold

__all__ = ["DeviceBlocks"]

Result = TypeVar("Result")
Given = TypeVarTuple("Given")
_ndarray = np.ndarray
#: Transfer method, peer and view of a message.
_Routed = tuple[str, int, Array]


class _Near:
    """Group whose messages are GPU buffers, for the algorithms that are made of messages."""

    def __init__(self, group: "DeviceBlocks") -> None:
        self._group = group

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)

    def _exchange(self, sends: Sequence[Pair], receives: Sequence[Pair]) -> None:
        self._group._exchange_on_device(sends, receives, self._group._ways)


class DeviceBlocks(Subsets):
    """Base of :class:`~distarray.comm.group.Group` that passes GPU buffers to the transport."""

    _ways: Ways | None = None

    @property
    def has_met(self) -> bool:
        """True if the methods for messages between GPUs are chosen, or there are no messages."""
        return self._ways is not None or self.size == 1 or self.rank < 0

    def meet_devices(self, xp: Any) -> None:
        """Choose the transfer methods for messages between GPUs in this group.

        Collective the first time. Collective methods call this method by themselves. Methods that
        only some ranks call, such as `exchange`, cannot: before the choice their messages do not
        use NCCL.

        Parameters
        ----------
        xp : module or None
            CuPy, whose current device is the device of the blocks; None if this rank has no CuPy.
        """
        if not self.has_met and not ledger.is_forbidden():
            self.check_talker()
            if self.watched:
                remember(self, "meet_devices", None)
            self._ways = chosen(self, xp)

    @property
    def uses_nccl(self) -> bool:
        """True if NCCL has been chosen for some messages between this group's GPUs."""
        return self._ways is not None and self._ways.nccl is not None

    def free(self) -> None:
        """Free the groups and meshes made of this group, and NCCL's communicator; collective."""
        super().free()
        ways, self._ways = self._ways, None
        if ways is not None and ways.nccl is not None:
            ways.nccl.free()

    # -- point to point -----------------------------------------------------------------------

    def _exchange_on_device(
        self, sends: Sequence[Pair], receives: Sequence[Pair], ways: Ways | None
    ) -> None:
        """Exchange views of which some are on a device: each message by its own transfer method.

        Both sides choose the same method, because it depends only on the size.
        """
        going = [(self._way(view, ways), peer, view) for peer, view in sends]
        coming = [(self._way(view, ways), peer, view) for peer, view in receives]
        near = [
            [(peer, view) for way, peer, view in side if way == NCCL] for side in (going, coming)
        ]
        ready, landing = _by_mpi(going, coming)
        buffers = [(peer, buffer) for peer, buffer, _ in landing]
        if ways is None or ways.nccl is None or not any(near):
            self._exchange(ready, buffers)
        else:
            self.check_talker()
            # Begin all messages before waiting for any: a peer may receive these in several calls.
            sent = self._begin_exchange(ready, [])
            finish = ways.nccl.begin_exchange(*near)
            self._exchange([], buffers)
            sent.wait()
            finish()
        for _, buffer, view in landing:
            devices.arrived(buffer, view)

    def _way(self, view: Array, ways: Ways | None) -> str:
        if not on_device(view):
            return HOST
        if ways is not None:
            return ways.way(EXCHANGE, view.nbytes)
        return MPI if self.takes_device_buffers and devices.gpu_aware() else HOST

    # -- collectives --------------------------------------------------------------------------

    def _has_nccl(self, block: Array) -> bool:
        """Return True if messages about a block may use NCCL; choose at the first collective."""
        if on_device(block):
            self.meet_devices(module_of(block))
            return self.uses_nccl
        return False

    def _nccl(self, block: Array, nbytes: int) -> Nccl | None:
        """Return NCCL if a collective about a block uses it; otherwise None."""
        return self._chosen(nbytes, self._ways) if self._has_nccl(block) else None

    def _chosen(self, nbytes: int, ways: Ways | None) -> Nccl | None:
        if ways is None or ways.nccl is None or ways.way(TOGETHER, nbytes) != NCCL:
            return None
        self.check_talker()
        return ways.nccl

    def _allreduce_staged(self, block: Array, fold: Fold) -> Array:
        if type(block) is _ndarray:
            heard = fold_errors.are_heard(block, fold)
            return (
                fold_errors.allreduce(self, block, fold) if heard else self._allreduce(block, fold)
            )
        return self._fold_on_device(block, fold, self._ways if self._has_nccl(block) else None)

    def _fold_on_device(self, block: Array, fold: Fold, ways: Ways | None) -> Array:
        found = self._chosen(block.nbytes, ways) if nccl.folds(block.dtype, fold) else None
        if found is not None:
            return found.allreduce(block, fold)
        return self._staged(self._allreduce, block, fold)

    def _reduce_scatter_staged(self, blocks: Sequence[Array], fold: Fold) -> Array:
        like = blocks[0]
        if fold_errors.listening and fold_errors.are_heard(like, fold):
            return fold_errors.reduce_scatter(self, blocks, fold)
        found = self._nccl(like, sum([block.nbytes for block in blocks]))
        if found is not None and nccl.folds(like.dtype, fold):
            return found.reduce_scatter(blocks, fold)
        return self._staged_list(self._reduce_scatter, blocks, fold)

    def _broadcast_staged(self, block: Array, root: int) -> None:
        found = self._nccl(block, block.nbytes)
        if found is not None:
            found.broadcast(block, root)
            return
        host = devices.to_host(block) if self.rank == root else devices.host_like(block)
        self._broadcast(host, root)
        if self.rank != root:
            devices.write_back(host, block)

    def _allgather_staged(self, block: Array) -> Array:
        found = self._nccl(block, block.nbytes * self.size)
        return self._staged(self._allgather, block) if found is None else found.allgather(block)

    def _allgather_varied_staged(self, block: Array, counts: Sequence[int] | None) -> list[Array]:
        if on_device(block) and self.size > 1:
            if counts is None:
                counts = self._allgather(np.array(len(block))).tolist()
            row = block.dtype.itemsize * int(np.prod(block.shape[1:]))
            found = self._nccl(block, row * sum(counts))
            if found is not None:
                return found.allgather_varied(block, counts)
        return self._staged(self._allgather_varied, block, counts)

    def _alltoall_varied_staged(self, blocks: Sequence[Array]) -> list[Array]:
        if self._has_nccl(blocks[0]):
            return algorithms.alltoall_varied(self._near, blocks)
        return self._staged_list(self._alltoall_varied, blocks)

    def alltoall_together(
        self, arrays: Sequence[Array], counts: Sequence[int]
    ) -> list[list[Array]]:
        """Send rows of some arrays to each rank; see :meth:`distarray.comm.outbox.Outbox.send`."""
        if all(type(array) is _ndarray for array in arrays):
            return algorithms.alltoall_together(self, arrays, counts)
        each = [self._alltoall_varied_staged(split_views(array, counts)) for array in arrays]
        return [list(rows) for rows in zip(*each, strict=True)]

    def _gather_varied_staged(self, block: Array, root: int) -> list[Array] | None:
        if self._has_nccl(block):
            return algorithms.gather_varied(self._near, block, root)
        return self._staged(self._gather_varied, block, root)

    @property
    def _near(self) -> Transport:
        return cast(Transport, _Near(self))

    # -- via the host -------------------------------------------------------------------------

    def _staged(
        self, method: Callable[[Array, *Given], Result], block: Array, *args: *Given
    ) -> Result:
        """Apply `method` to the block on the host; return the result on the block's device."""
        if type(block) is _ndarray:
            return method(block, *args)
        if not on_device(block):
            return method(np.asarray(block), *args)
        return devices.back(method(devices.to_host(block), *args), block)

    def _staged_list(
        self,
        method: Callable[[Sequence[Array], *Given], Result],
        blocks: Sequence[Array],
        *args: *Given,
    ) -> Result:
        """Apply a method that takes a list of blocks on the host, like `_staged`."""
        like = blocks[0]
        if not on_device(like):
            return method([np.asarray(block) for block in blocks], *args)
        return devices.back(method([devices.to_host(block) for block in blocks], *args), like)


def _by_mpi(
    going: Sequence[_Routed], coming: Sequence[_Routed]
) -> tuple[list[Pair], list[tuple[int, Array, Array]]]:
    """Return the buffers that MPI sends, and the buffers that it fills with their views."""
    ready = [(peer, _going(view, way)) for way, peer, view in going if way != NCCL]
    landing = [(peer, _coming(view, way), view) for way, peer, view in coming if way != NCCL]
    direct = [view for way, _, view in (*going, *coming) if way == MPI]
    if direct:
        devices.settle(direct[0])
    return ready, landing


def _going(view: Array, way: str) -> Array:
    """Return the buffer that MPI sends for a view: dense device memory, or a copy on the host."""
    return devices.dense(view) if way == MPI else devices.to_host(view)


def _coming(view: Array, way: str) -> Array:
    """Return the buffer in which MPI receives a message for a view."""
    return devices.dense_like(view) if way == MPI else devices.host_like(view)
