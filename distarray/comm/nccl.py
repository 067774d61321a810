"""Messages between GPUs by NCCL, through NVIDIA's package nccl4py.

NCCL copies any data, and folds numbers of a few kinds. Folds in which NCCL and NumPy differ are
left to the other transfer methods (:mod:`distarray.comm.ways`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from distarray.comm import devices
from distarray.comm.algorithms import split_views
from distarray.comm.folding import averaged, prepared
from distarray.errors import MessageError
from distarray.layout.placement import Fold
from distarray.typing import Array

if TYPE_CHECKING:
    from distarray.comm.device_blocks import DeviceBlocks
    from distarray.comm.transport import Pair

__all__ = ["Nccl", "Seat", "folds", "meet", "obstacle", "seat"]

#: True: functions of this module wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True

_DType = np.dtype[Any]
#: NCCL's codes (nccl.h) that are no errors: success, and work in progress.
_FINE = (0, 7)


def _rules() -> dict[Fold, dict[_DType, tuple[_DType, str]]]:
    """Return the folds in which NCCL agrees with NumPy: the dtype given to NCCL, and its operation.

    The rules have no MIN and MAX of floats (a NaN would be lost), no products of complex numbers,
    no integers of 16 bits, which NCCL does not support, and no half precision, which NCCL would
    round at every step.
    """
    integers: set[_DType] = {np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 4, 8)}
    floats: set[_DType] = {np.dtype("f4"), np.dtype("f8")}
    pairs = {np.dtype("c8"): np.dtype("f4"), np.dtype("c16"): np.dtype("f8")}
    boolean, byte = np.dtype(bool), np.dtype("u1")

    def same(operation: str, *kinds: set[_DType]) -> dict[Any, Any]:
        return {dtype: (dtype, operation) for group in kinds for dtype in group}

    sums = same("SUM", integers, floats) | {kind: (part, "SUM") for kind, part in pairs.items()}
    either, both = {boolean: (byte, "MAX")}, {boolean: (byte, "MIN")}
    return {
        Fold.SUM: sums | either,
        Fold.AVG: sums,
        Fold.PROD: same("PROD", integers, floats) | both,
        Fold.MIN: same("MIN", integers) | both,
        Fold.MAX: same("MAX", integers) | either,
        Fold.ANY: either,
        Fold.ALL: both,
        Fold.BAND: both,
        Fold.BOR: either,
        Fold.BXOR: {},
    }


_RULES = _rules()


def folds(dtype: _DType, fold: Fold) -> bool:
    """Return True if NCCL folds numbers of this dtype as NumPy does."""
    return fold in (Fold.ANY, Fold.ALL) or dtype in _RULES[fold]


class Seat(NamedTuple):
    """Ability of a rank to use NCCL, which all ranks of a group exchange.

    Attributes
    ----------
    missing : str
        Reason why the rank cannot use NCCL; empty if it can.
    gpu : str
        Bus address of the rank's GPU on its node.
    """

    missing: str
    gpu: str


def seat(xp: Any) -> Seat:
    """Return this rank's ability to use NCCL."""
    if xp is None:
        return Seat("CuPy is not installed", "")
    try:
        core: Any = import_module("nccl.core")
        if core.get_version().libnccl is None:
            return Seat("it finds no libnccl", "")
        return Seat("", str(xp.cuda.Device().pci_bus_id))
    except Exception as error:  # not only ImportError: it loads the libraries of CUDA
        return Seat(f"{type(error).__name__}: {error}", "")


def obstacle(seats: Sequence[Seat], nodes: Sequence[int] | None) -> str:
    """Return the reason why ranks cannot use NCCL, the same on all; empty if they can."""
    for rank, (missing, _) in enumerate(seats):
        if missing:
            return f"rank {rank} cannot use nccl4py ({missing})"
    taken: dict[tuple[int, str], int] = {}
    for rank, (_, gpu) in enumerate(seats):
        place = (0 if nodes is None else nodes[rank], gpu)
        if place in taken:
            return f"ranks {taken[place]} and {rank} are on one GPU, {gpu}"
        taken[place] = rank
    return ""


def meet(group: "DeviceBlocks", xp: Any) -> "Nccl | str":
    """Make NCCL's communicator over a group's ranks; if one rank fails, return its reason on all.

    Collective; the ranks have found no obstacle. The ledger records nothing. If a rank fails after
    NCCL has connected the ranks, NCCL reports that to the other ranks. Before that the other ranks
    wait, and the limit on waits ends the job with every rank's line.
    """
    core: Any = import_module("nccl.core")
    made, failure = None, ""
    mine: bytes | str | None = None
    try:
        mine = bytes(core.get_unique_id()) if group.rank == 0 else None
    except Exception as error:
        mine = f"{type(error).__name__}: {error}"
    found = group._broadcast_object(mine, 0)
    if isinstance(found, str):
        return f"rank 0: {found}"
    try:
        made = core.Communicator.init(group.size, group.rank, core.UniqueId.from_bytes(found))
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    failures = group._allgather_object(failure)
    for rank, failure in enumerate(failures):
        if failure:
            if made is not None:
                with suppress(Exception):
                    made.abort()
            return f"rank {rank}: {failure}"
    return Nccl(core, made, xp, group.rank, group.size)


class Nccl:
    """Communication of a group by NCCL, on blocks in GPU memory.

    Calls run on the current stream of CuPy, and return when that stream has done its work. So the
    blocks can be used at once on any stream, and an error is raised by the call that caused it. All
    ranks of the group make every call except `exchange`.

    Raises
    ------
    MessageError
        In all calls, if NCCL fails. The rank that sees the error first aborts the communicator, so
        that the other ranks see the error, too.
    """

    def __init__(self, core: Any, communicator: Any, xp: Any, rank: int, size: int) -> None:
        self._core, self._comm, self._xp = core, communicator, xp
        self._rank, self._size = rank, size
        self._device = xp.cuda.Device()
        self._failure: MessageError | None = None

    def exchange(self, sends: "Sequence[Pair]", receives: "Sequence[Pair]") -> None:
        """Send and receive views, point to point, as :meth:`Group.exchange` does."""
        self.begin_exchange(sends, receives)()

    def begin_exchange(
        self, sends: "Sequence[Pair]", receives: "Sequence[Pair]"
    ) -> Callable[[], None]:
        """Begin an `exchange`; return a function that waits for its end."""
        with self._calling() as stream:
            ready = [(peer, devices.dense(view)) for peer, view in sends]
            landing = [(peer, devices.dense_like(view), view) for peer, view in receives]
            with self._core.group():
                for peer, block in ready:
                    self._comm.send(_bytes(block), peer, stream=stream)
                for peer, block, _ in landing:
                    self._comm.recv(_bytes(block), peer, stream=stream)

        def finish() -> None:
            with self._calling():
                self._wait()
                for _, block, view in landing:
                    devices.arrived(block, view)
            ready.clear()  # until here these buffers had to exist

        return finish

    def allreduce(self, block: Array, fold: Fold) -> Array:
        """Fold the ranks' blocks; every rank gets the same bits."""
        block = prepared(block, fold)
        shown, operation = self._rule(block, fold)
        with self._talking() as stream:
            total: Array = self._xp.empty(block.shape, block.dtype)
            if block.size:
                mine, result = _as(devices.dense(block), shown), _as(total, shown)
                self._comm.allreduce(mine, result, operation, stream=stream)
            return averaged(total, self._size, fold)

    def reduce_scatter(self, blocks: Sequence[Array], fold: Fold) -> Array:
        """Fold all ranks' contributions for this rank.

        NCCL takes contributions of one length. Shorter contributions are padded; the blocks of a
        cut hardly differ in length.
        """
        ready = [prepared(block, fold) for block in blocks]
        own, longest = ready[self._rank], max([block.size for block in ready])
        shown, operation = self._rule(own, fold)
        with self._talking() as stream:
            packed = self._xp.zeros((self._size, longest), own.dtype)
            total: Array = self._xp.empty((longest,), own.dtype)
            for rank, block in enumerate(ready):
                packed[rank, : block.size] = block.reshape(-1)
            if longest:
                mine, result = _as(packed, shown), _as(total, shown)
                self._comm.reduce_scatter(mine, result, operation, stream=stream)
            return averaged(total[: own.size].reshape(own.shape), self._size, fold)

    def broadcast(self, block: Array, root: int) -> None:
        """Fill `block`, strided or not, with root's values."""
        if not block.size:
            return
        with self._talking() as stream:
            dense = (devices.dense if self._rank == root else devices.dense_like)(block)
            self._comm.broadcast(_bytes(dense), _bytes(dense), root, stream=stream)
            if self._rank != root:
                devices.arrived(dense, block)

    def allgather(self, block: Array) -> Array:
        """Stack the ranks' blocks, which have one shape."""
        with self._talking() as stream:
            result: Array = self._xp.empty((self._size, *block.shape), block.dtype)
            if block.size:
                self._comm.allgather(_bytes(devices.dense(block)), _bytes(result), stream=stream)
            return result

    def allgather_varied(self, block: Array, counts: Sequence[int]) -> list[Array]:
        """Gather all ranks' blocks, of these lengths, as views of one new array."""
        with self._talking() as stream:
            whole = self._xp.empty((sum(counts), *block.shape[1:]), block.dtype)
            views = split_views(whole, counts)
            if whole.size and min(counts) == max(counts):
                self._comm.allgather(_bytes(devices.dense(block)), _bytes(whole), stream=stream)
                return views
            views[self._rank][...] = block
            with self._core.group():
                for rank, view in enumerate(views):
                    if view.size:
                        flat = _bytes(view)
                        self._comm.broadcast(flat, flat, rank, stream=stream)
            return views

    def free(self) -> None:
        """Free the communicator; collective."""
        if self._failure is None:
            self._failure = MessageError("this group of ranks has been freed")
            self._comm.destroy()

    def _rule(self, block: Array, fold: Fold) -> tuple[_DType, Any]:
        shown, operation = _RULES[fold][block.dtype]
        return shown, getattr(self._core, operation)

    @contextmanager
    def _talking(self) -> Iterator[int]:
        """Yield the stream's handle, and wait for the work that is begun on the stream."""
        with self._calling() as stream:
            yield stream
            self._wait()

    @contextmanager
    def _calling(self) -> Iterator[int]:
        """Yield the handle of the device's current stream; an error ends the communicator."""
        if self._failure is not None:
            raise self._failure
        try:
            with self._device:
                yield self._xp.cuda.get_current_stream().ptr
        except Exception as error:
            self._failure = MessageError(
                "a message between GPUs by NCCL failed, and the ranks' blocks may have been "
                f"overwritten in part: {error}. NCCL_DEBUG=INFO makes NCCL say more, and "
                "DISTARRAY_GPU_MESSAGES=host does without it"
            )
            with suppress(Exception):
                self._comm.abort()
            raise self._failure from error

    def _wait(self) -> None:
        """Wait for the stream's work, and raise an error that NCCL reports."""
        stream = self._xp.cuda.get_current_stream()
        while not stream.done:  # the error of another rank leaves it waiting for ever
            self._look()
        self._look()

    def _look(self) -> None:
        """Raise if NCCL has had an error since the last call."""
        code = int(self._comm.get_async_error())
        if code not in _FINE:
            raise MessageError(self._core.get_error_string(code))


def _as(block: Array, dtype: _DType) -> Array:
    """Return a dense block's memory as a 1-d array of another dtype."""
    return block.reshape(-1).view(dtype)


def _bytes(block: Array) -> Array:
    return _as(block, np.dtype(np.uint8))
