"""A strict stand-in for nccl4py (`nccl.core` 0.6), beside the one for CuPy.

It has the names and parameters of the real package that are written here, and no others, and takes
what the real one takes: arrays of the device in one piece, of NCCL's data types, on the device of
the communicator. It folds as NCCL may: of a NaN and a number, MIN and MAX give the number. Two
ranks on one GPU get no communicator. Each rank is a thread or an MPI process; the data goes from
rank to rank by what `wires` makes of a unique id.

* After each operation the stream has work for a while: who does not wait for it finds `unfinished`.
* `break_next` lets the next operation of a rank fail later, as a lost connection does: on this rank
  at once, on the others when it has ended its communicator. Until then they wait.

`install()` puts it where ``import nccl.core`` finds it.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import sys
import threading
import types
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import standin

__all__ = ["NCCLError", "break_next", "calls", "install", "refuse_on", "remove", "unfinished"]

#: Seconds that a rank waits for the others.
PATIENCE = 30.0
#: The operations that have been called, by name; all thread ranks together.
calls: Counter[str] = Counter()
_here = threading.local()


class NcclInvalid(Exception):
    """An argument that the Python layer refuses."""


class NCCLError(Exception):
    """What NCCL itself refuses; not among the public names of nccl.core."""


class NcclRedOp(enum.IntEnum):
    SUM = 0
    PROD = 1
    MAX = 2
    MIN = 3
    AVG = 4


_FOLDS = {
    NcclRedOp.SUM: np.add,
    NcclRedOp.PROD: np.multiply,
    NcclRedOp.MAX: np.fmax,
    NcclRedOp.MIN: np.fmin,
}
_DTYPES = frozenset("bBiIlLqQefd?")
_SUCCESS, _SYSTEM, _REMOTE = 0, 2, 6
_TEXTS = {_SYSTEM: "unhandled system error", _REMOTE: "remote process exited"}


# -- the test's hands on it ---------------------------------------------------------------------

_broken: set[int] = set()
_refusing: set[int] = set()


def break_next(rank: int) -> None:
    """Let the next operation of a rank fail, after it has been called."""
    _broken.add(rank)


def refuse_on(rank: int) -> None:
    """Let a rank's next communicator fail to be made."""
    _refusing.add(rank)


def unfinished() -> int:
    """How often this rank's stream is still to be asked before its work is done."""
    return getattr(_here, "busy", 0)


# -- between ranks ------------------------------------------------------------------------------


class _Threads:
    """The wire between thread ranks."""

    rooms: ClassVar[dict[bytes, _Threads]] = {}
    lock = threading.Lock()

    def __init__(self, size: int) -> None:
        self.size = size
        self.condition = threading.Condition()
        self.boxes: dict[tuple[int, int], deque[Any]] = {}
        self.aborted = False

    @classmethod
    def of(cls, uid: bytes, rank: int, size: int) -> _Threads:
        with cls.lock:
            return cls.rooms.setdefault(uid, cls(size))

    def post(self, rank: int, peer: int, value: Any) -> None:
        with self.condition:
            self.boxes.setdefault((rank, peer), deque()).append(value)
            self.condition.notify_all()

    def take(self, peer: int, rank: int) -> Any:
        with self.condition:
            box = self.boxes.setdefault((peer, rank), deque())
            came = self.condition.wait_for(lambda: box or self.aborted, PATIENCE)
            if not came:
                raise TimeoutError(f"rank {rank} waits in NCCL for rank {peer} in vain")
            return box.popleft() if box else None

    def abort(self) -> None:
        with self.condition:
            self.aborted = True
            self.condition.notify_all()

    def free(self) -> None:
        pass


class _Processes:
    """The wire between MPI processes, which rank 0 of a communicator brings together."""

    def __init__(self, uid: bytes, rank: int, size: int) -> None:
        from mpi4py import MPI

        world = MPI.COMM_WORLD
        root, serial = (int.from_bytes(uid[at : at + 4], "little") for at in (0, 4))
        tag = 10_000 + serial % 10_000
        if rank:
            world.send((rank, world.rank), root, tag)
            members = world.recv(source=root, tag=tag)
        else:
            found = dict([world.recv(tag=tag) for _ in range(size - 1)])
            members = [world.rank, *[found[r] for r in range(1, size)]]
            for r in range(1, size):
                world.send(members, found[r], tag)
        ranks = world.Get_group().Incl(members)
        self.size, self.aborted = size, False
        self.comm = world.Create_group(ranks, tag)
        self.pending: list[Any] = []

    @classmethod
    def of(cls, uid: bytes, rank: int, size: int) -> _Processes:
        return cls(uid, rank, size)

    def post(self, rank: int, peer: int, value: Any) -> None:
        self.pending = [request for request in self.pending if not request.Test()]
        self.pending.append(self.comm.isend(value, peer))

    def take(self, peer: int, rank: int) -> Any:
        return self.comm.recv(source=peer)

    def abort(self) -> None:
        pass

    def free(self) -> None:
        for request in self.pending:
            request.Wait()
        self.comm.Free()


def _wire() -> Any:
    from distarray.comm.threads import current_world

    return _Processes if current_world() is None else _Threads


def _process() -> int:
    from mpi4py import MPI

    return MPI.COMM_WORLD.rank


def _own_gpu() -> str:
    """A GPU for each rank: threads are told apart as processes are."""
    from distarray.comm.threads import current_world

    world = current_world()
    if world is None:
        return f"0000:{_process():02x}:00.0"
    return f"0000:{world.rank:02x}:00.0"


# -- nccl.core ----------------------------------------------------------------------------------


class UniqueId:
    def __init__(self, _internal: Any = None) -> None:
        self._internal = _internal

    def __bytes__(self) -> bytes:
        return self._internal

    @staticmethod
    def from_bytes(b: bytes) -> UniqueId:
        assert len(b) == 128
        return UniqueId(bytes(b))


_serial = itertools.count()


def get_unique_id(empty: bool = False) -> UniqueId:
    numbers = (0 if _wire() is _Threads else _process(), next(_serial))
    return UniqueId(b"".join([n.to_bytes(4, "little") for n in numbers]).ljust(128, b"\0"))


def get_version() -> Any:
    return types.SimpleNamespace(libnccl=types.SimpleNamespace(version="2.30.0"))


def get_error_string(nccl_result: int) -> str:
    return _TEXTS[int(nccl_result)]


class Communicator:
    """One rank's end of a communicator."""

    def __init__(self, ptr: int | None = None) -> None:
        self._wire: Any = None
        self._code = _SUCCESS

    @classmethod
    def init(cls, nranks: int, rank: int, unique_id: UniqueId, config: Any = None) -> Communicator:
        comm = cls()
        comm._rank, comm._size = rank, nranks
        comm._wire = _wire().of(bytes(unique_id), rank, nranks)
        gpus = comm._gathered("" if rank in _refusing else standin.gpu())
        if rank in _refusing:
            _refusing.discard(rank)
            raise NCCLError("unhandled cuda error")
        if "" in gpus:
            raise NCCLError(_TEXTS[_REMOTE])
        if len(set(gpus)) < nranks:
            raise NCCLError("invalid usage: Duplicate GPU detected")
        return comm

    def destroy(self) -> None:
        self._wire.free()
        self._wire = None

    def abort(self) -> None:
        if self._wire is not None:
            self._wire.abort()
        self._wire = None
        _here.busy = 0  # what was under way is ended
        _coming().clear()

    def get_async_error(self) -> int:
        self._check_valid()
        if self._code == _SUCCESS and self._wire.aborted:
            self._code = _REMOTE
        return self._code

    def allreduce(
        self, sendbuf: Any, recvbuf: Any, op: NcclRedOp, *, stream: Any = None, config: Any = None
    ) -> None:
        mine, result = self._buffer(sendbuf), self._buffer(recvbuf)
        if mine.dtype != result.dtype or result.size < mine.size:
            raise NcclInvalid("Dtype or buffer count mismatch")

        def act() -> None:
            rows = self._gathered(mine)
            result[: mine.size] = _folded(rows, op)

        self._do("allreduce", act, stream)

    def reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, op: NcclRedOp, *, stream: Any = None, config: Any = None
    ) -> None:
        mine, result = self._buffer(sendbuf), self._buffer(recvbuf)
        count = mine.size // self._size
        if mine.dtype != result.dtype or count < 1 or result.size < count:
            raise NcclInvalid("Dtype or buffer count mismatch")

        def act() -> None:
            rows = self._gathered(mine)
            own = slice(self._rank * count, (self._rank + 1) * count)
            result[:count] = _folded([row[own] for row in rows], op)

        self._do("reduce_scatter", act, stream)

    def allgather(
        self, sendbuf: Any, recvbuf: Any, *, stream: Any = None, config: Any = None
    ) -> None:
        mine, result = self._buffer(sendbuf), self._buffer(recvbuf)
        if mine.dtype != result.dtype or result.size < mine.size * self._size:
            raise NcclInvalid("Dtype or buffer count mismatch")

        def act() -> None:
            result[: mine.size * self._size] = np.concatenate(self._gathered(mine))

        self._do("allgather", act, stream)

    def broadcast(
        self, sendbuf: Any, recvbuf: Any, root: int, *, stream: Any = None, config: Any = None
    ) -> None:
        result = self._buffer(recvbuf)
        mine = self._buffer(sendbuf) if self._rank == root else None
        if mine is not None and (mine.dtype != result.dtype or mine.size != result.size):
            raise NcclInvalid("Dtype or buffer count mismatch")

        def act() -> None:
            for peer in range(self._size) if mine is not None else ():
                self._wire.post(self._rank, peer, mine.copy())
            self._land(self._wire.take(root, self._rank), result)

        self._do("broadcast", act, stream)

    def send(self, sendbuf: Any, peer: int, *, stream: Any = None) -> None:
        mine = self._buffer(sendbuf)
        self._do("send", lambda: self._wire.post(self._rank, peer, mine.copy()), stream)

    def recv(self, recvbuf: Any, peer: int, *, stream: Any = None) -> None:
        result = self._buffer(recvbuf)

        def act() -> None:
            self._land(self._wire.take(peer, self._rank), result)

        self._do("recv", act, stream)

    # -- inside ----------------------------------------------------------------------------------

    def _check_valid(self) -> None:
        if self._wire is None:
            raise NcclInvalid("Communicator not initialized")

    def _buffer(self, block: Any) -> np.ndarray:
        """The memory of a buffer as a line of NCCL's kind of numbers."""
        self._check_valid()
        if not isinstance(block, standin.ndarray):
            raise NcclInvalid(f"{type(block)} is no buffer on a device")
        if not block.flags.c_contiguous:  # NCCL would take the memory for what it is not
            raise NcclInvalid("the buffer is not in one piece")
        if block.dtype.char not in _DTYPES:
            raise NcclInvalid(f"Unsupported data type: numpy dtype {block.dtype}")
        line = block._memory.reshape(-1)
        assert np.shares_memory(line, block._memory) or not line.size
        return line.view("u1") if line.dtype == bool else line

    def _do(self, name: str, act: Any, stream: Any) -> None:
        if type(stream) is not int:
            raise TypeError(f"stream is the handle of CuPy's current one, not {stream!r}")
        calls[name] += 1
        if name != "send" and self._rank in _broken:
            _broken.discard(self._rank)
            self._code = _SYSTEM
            _here.busy = 1 << 60
            return
        if getattr(_here, "group", None) is None:
            self._act([(name, act)])
        else:
            _here.group.append((self, name, act))

    def _act(self, acts: list[tuple[str, Any]]) -> None:
        """Carry out what belongs together: what is received comes once the stream is asked."""
        for name, act in acts:
            if name == "recv":
                _coming().append(act)
            else:
                act()
        _here.busy = 1 << 60 if self._wire.aborted else 3

    def _gathered(self, value: Any) -> list[Any]:
        value = np.copy(value) if isinstance(value, np.ndarray) else value
        for peer in range(self._size):
            self._wire.post(self._rank, peer, value)
        return [self._wire.take(peer, self._rank) for peer in range(self._size)]

    def _land(self, came: Any, result: np.ndarray) -> None:
        if came is None:
            return
        if came.size != result.size or came.dtype != result.dtype:
            raise NCCLError(f"{came.dtype} {came.size} came for {result.dtype} {result.size}")
        result[...] = came


def _folded(rows: list[Any], op: NcclRedOp) -> Any:
    if any(row is None for row in rows):
        return 0
    with np.errstate(all="ignore"):
        return _FOLDS[NcclRedOp(op)].reduce(np.array(rows), axis=0, dtype=rows[0].dtype)


@contextlib.contextmanager
def group() -> Iterator[None]:
    assert getattr(_here, "group", None) is None
    _here.group = []
    try:
        yield
    finally:
        queued, _here.group = _here.group, None
        for comm in {id(comm): comm for comm, _, _ in queued}.values():
            comm._act([(name, act) for owner, name, act in queued if owner is comm])


def _coming() -> deque[Any]:
    """What this rank has begun to receive."""
    if not hasattr(_here, "coming"):
        _here.coming = deque()
    return _here.coming


def _done() -> bool:
    """Whether the work of this rank's stream is done; it takes some asking."""
    while _coming():
        _coming().popleft()()
    _here.busy = max(0, unfinished() - 1)
    return _here.busy == 0


_PUBLIC = (
    Communicator,
    NcclInvalid,
    NcclRedOp,
    UniqueId,
    get_error_string,
    get_unique_id,
    get_version,
    group,
)


def install() -> types.ModuleType:
    """Make ``import nccl.core`` give the stand-in, and each rank a GPU of its own."""
    core = types.ModuleType("nccl.core")
    for thing in _PUBLIC:
        setattr(core, thing.__name__, thing)
    for operation in NcclRedOp:
        setattr(core, operation.name, operation)
    package = types.ModuleType("nccl")
    package.core, package.__path__ = core, []
    sys.modules["nccl"], sys.modules["nccl.core"] = package, core
    standin.gpu, standin.stream_is_done = _own_gpu, _done
    calls.clear()
    return core


def remove() -> None:
    """Take it away again."""
    for name in ("nccl", "nccl.core"):
        sys.modules.pop(name, None)
    standin.gpu, standin.stream_is_done = lambda: "0000:00:00.0", lambda: True
