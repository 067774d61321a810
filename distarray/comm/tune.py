"""Performance settings of a process: its memory arena and its share of the node's cores."""

import ctypes
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from distarray.config import config

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "Node",
    "blas_threads",
    "keep_freed_memory",
    "one_blas_thread",
    "own_threads",
    "share_of_cores",
    "start",
    "this_node",
    "use_own_gpu",
]

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_GIB = 1 << 30
_LARGEST = (1 << 31) - 1

#: If the user has set one of these, the number of threads is not changed.
_USER_CHOICES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

_limiting = Lock()
_limited = 0
_limit: Any = None
_controller: Any = None

_started = False
_node_rank = 0
_node_size = 1
_share = 0


class Node(NamedTuple):
    """This rank's part of its node.

    Attributes
    ----------
    rank, size : int
        Its number among the job's ranks on this node, and their number.
    cores : int
        Its share of the node's cores.
    """

    rank: int
    size: int
    cores: int


def start(comm: "MPI.Intracomm") -> None:
    """Tune this process when a program's communicator is first used; collective over it.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
        Its ranks on this node share the cores.

    Notes
    -----
    ``config.arena`` and ``config.blas_threads`` switch the two parts off.
    """
    global _started, _share
    if not _started and config.arena:
        keep_freed_memory()
    _started = True
    share = share_of_cores(comm)
    _share = min(_share, share) if _share else share
    if own_threads():
        blas_threads(share)


def own_threads() -> bool:
    """Whether the ranks of a node divide its cores: yes, unless the user has chosen otherwise."""
    return config.blas_threads and not any(name in os.environ for name in _USER_CHOICES)


def this_node() -> Node:
    """This rank's part of its node; complete once a group has been made."""
    return Node(_node_rank, _node_size, _share or len(_allowed_cores()))


def keep_freed_memory() -> bool:
    """Let glibc reuse large freed blocks instead of returning them to the kernel.

    Otherwise a new temporary of some MiB costs more in page faults than in arithmetic.

    Returns
    -------
    bool
        Whether it took effect; False if the C library is not glibc.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
    kept = mallopt(_M_MMAP_THRESHOLD, _GIB) and mallopt(_M_TRIM_THRESHOLD, _LARGEST)
    return bool(kept)


def share_of_cores(comm: "MPI.Intracomm") -> int:
    """Cores for this rank: each core it may run on, divided by the ranks that may run there."""
    from mpi4py import MPI

    global _node_rank, _node_size
    node = comm.Split_type(MPI.COMM_TYPE_SHARED)
    _node_rank = max(_node_rank, node.Get_rank())
    try:
        masks = node.allgather(_allowed_cores())
    finally:
        node.Free()
    _node_size = max(_node_size, len(masks))
    users: dict[int, int] = {}
    for mask in masks:
        for core in mask:
            users[core] = users.get(core, 0) + 1
    return max(1, int(sum(1 / users[core] for core in _allowed_cores())))


def _allowed_cores() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(os.sched_getaffinity(0))
    return tuple(range(os.cpu_count() or 1))


def blas_threads(count: int) -> None:
    """Let the loaded BLAS libraries use `count` threads, if threadpoolctl is installed."""
    try:
        import threadpoolctl
    except ImportError:
        return
    threadpoolctl.threadpool_limits(count, user_api="blas")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread in a block, since its rounding depends on the number of threads.

    Needs threadpoolctl, as :func:`blas_threads` does. If ranks are threads of one process, the last
    one to leave the block lifts the limit.
    """
    global _limited, _limit
    with _limiting:
        _limited += 1
        if _limited == 1:
            _limit = _limiter()
    try:
        yield
    finally:
        with _limiting:
            _limited -= 1
            if not _limited and _limit is not None:
                _limit.restore_original_limits()


def _limiter() -> Any:
    """A limit of one thread, in force until it is lifted; None without threadpoolctl."""
    global _controller
    try:
        import threadpoolctl
    except ImportError:
        return None
    if _controller is None:
        _controller = threadpoolctl.ThreadpoolController()  # looks for libraries: a millisecond
    return _controller.limit(limits=1, user_api="blas")


def use_own_gpu(cupy: ModuleType) -> None:
    """Give the ranks of a node different GPUs, unless one has been chosen already.

    Parameters
    ----------
    cupy : module
        CuPy, as imported.
    """
    runtime = getattr(cupy.cuda, "runtime", None)
    if runtime is None or runtime.getDevice() != 0:
        return
    cupy.cuda.Device(_node_rank % runtime.getDeviceCount()).use()
