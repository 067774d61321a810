"""Performance settings of a process: its memory arena and its share of the node's cores."""

import ctypes
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from distarray.config import config

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = [
    "USER_CHOICES",
    "Node",
    "allowed_cores",
    "blas_threads",
    "keep_freed_memory",
    "libraries",
    "one_blas_thread",
    "own_threads",
    "share_of_cores",
    "start",
    "this_node",
    "use_own_gpu",
]

#: True: functions of this module wait for other ranks (see :mod:`distarray.comm.waits.stacks`).
WAITS_FOR_RANKS = True

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_GIB = 1 << 30
_LARGEST = (1 << 31) - 1

#: Variables of the number of threads; if the user has set one, the number is not changed.
USER_CHOICES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

_limiting = Lock()
_limited = 0
_before: Sequence[tuple[Any, int]] = []
_controller: Any = None

_started = False
_node_rank = 0
_node_size = 1
_share = 0
_threads = 0


class Node(NamedTuple):
    """Position of this rank on its node, and its share of the cores.

    Attributes
    ----------
    rank, size : int
        Number of this rank among the job's ranks on this node, and the number of these ranks.
    cores : int
        This rank's share of the node's cores.
    """

    rank: int
    size: int
    cores: int


def start(share: int, least: int) -> None:
    """Tune this process when a program's communicator is first used.

    Parameters
    ----------
    share : int
        This rank's :func:`share_of_cores`.
    least : int
        The smallest share of the communicator's ranks. BLAS gets that many threads on all of them,
        since its rounding depends on the number of threads, and never more for a communicator of
        fewer ranks.

    Notes
    -----
    ``config.arena`` and ``config.blas_threads`` switch the two settings off.
    """
    global _started, _share, _threads
    if not _started and config.arena:
        keep_freed_memory()
    _started = True
    _share = min(_share, share) if _share else share
    _threads = min(_threads, least) if _threads else least
    if own_threads():
        blas_threads(_threads)


def own_threads() -> bool:
    """Return True if the ranks of a node divide its cores, unless the user chose otherwise."""
    return config.blas_threads and not any(name in os.environ for name in USER_CHOICES)


def this_node() -> Node:
    """Return this rank's position on its node; complete once a group has been made."""
    return Node(_node_rank, _node_size, _share or allowed_cores())


def allowed_cores() -> int:
    """Return the number of cores on which this process may run."""
    return len(_allowed_cores())


def keep_freed_memory() -> bool:
    """Let glibc reuse large freed blocks instead of returning them to the kernel.

    Otherwise a new temporary of some MiB costs more in page faults than in arithmetic.

    Returns
    -------
    bool
        True if the setting took effect; False if the C library is not glibc.
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
    """Return this rank's share of cores: each core is divided by the ranks that may use it."""
    from mpi4py import MPI

    global _node_rank, _node_size
    node, mine = comm.Split_type(MPI.COMM_TYPE_SHARED), _allowed_cores()
    _node_rank = max(_node_rank, node.Get_rank())
    try:
        masks = node.allgather(mine)
    finally:
        node.Free()
    _node_size = max(_node_size, len(masks))
    users: dict[int, int] = {}
    for mask in masks:
        for core in mask:
            users[core] = users.get(core, 0) + 1
    return max(1, int(sum(1 / users[core] for core in mine)))


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
    loaded = threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers
    _set_threads([(library, count) for library in loaded])


def _set_threads(counts: Sequence[tuple[Any, int]]) -> None:
    """Set each library's number of threads, from whichever thread calls this.

    For a library that has one pool for all threads, threadpoolctl (from version 3.8 on) obeys only
    the thread that called first, and ignores other threads silently.
    """
    for library, count in counts:
        let_go = getattr(library, "clear_controlling_thread", None)
        if let_go is not None:
            let_go(force=True)
        library.set_num_threads(count)
        if let_go is not None:
            let_go(force=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let BLAS use one thread in a block, since its rounding depends on the number of threads.

    It needs threadpoolctl, as :func:`blas_threads` does. If ranks are threads of one process, the
    last rank to leave the block lifts the limit.
    """
    global _limited, _before
    with _limiting:
        _limited += 1
        if _limited == 1:
            _before = [(library, library.num_threads) for library in libraries()]
        _set_threads([(library, 1) for library, _ in _before])
    try:
        yield
    finally:
        with _limiting:
            _limited -= 1
            # With OpenMP each thread has its own limit, otherwise all threads have one.
            own = [(x, n) for x, n in _before if getattr(x, "threading_layer", "") == "openmp"]
            _set_threads(own if _limited else _before)


def libraries() -> Sequence[Any]:
    """Return the loaded BLAS libraries; none without threadpoolctl."""
    global _controller
    try:
        import threadpoolctl
    except ImportError:
        return []
    if _controller is None:  # the search for libraries takes a millisecond
        _controller = threadpoolctl.ThreadpoolController().select(user_api="blas")
    found: Sequence[Any] = _controller.lib_controllers
    return found


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
