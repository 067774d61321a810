"""Counts of blocks that the bridge shares and copies, in calls and bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

__all__ = ["Transfers", "count", "record", "transfers"]

#: Number of open ``transfers()`` blocks, in all threads together. While it is 0, counting costs one
#: test.
watching = 0

_lock = Lock()
_logs: ContextVar[tuple["Transfers", ...]] = ContextVar("distarray_transfers", default=())


class Transfers:
    """Counts of one ``with transfers() as log:`` block, on this rank.

    Attributes
    ----------
    shared, copied, h2d, d2h : int
        Number of blocks that were shared in place, copied within host memory (or within device
        memory), copied from host to device, and copied from device to host.
    shared_bytes, copied_bytes, h2d_bytes, d2h_bytes : int
        Bytes of these blocks.
    """

    __slots__ = (
        "_over",
        "copied",
        "copied_bytes",
        "d2h",
        "d2h_bytes",
        "h2d",
        "h2d_bytes",
        "shared",
        "shared_bytes",
    )

    def __init__(self) -> None:
        self._over = False
        self.shared = self.copied = self.h2d = self.d2h = 0
        self.shared_bytes = self.copied_bytes = self.h2d_bytes = self.d2h_bytes = 0

    def __repr__(self) -> str:
        told = [
            f"{kind} {getattr(self, kind)} ({getattr(self, kind + '_bytes')} bytes)"
            for kind in ("shared", "copied", "h2d", "d2h")
        ]
        return f"<Transfers: {', '.join(told)}>"


@contextmanager
def transfers() -> Iterator[Transfers]:
    """Count the blocks that the bridge shares and copies in the ``with`` block, on this rank.

    Yields
    ------
    Transfers
        Counts and bytes of blocks that were shared, copied, moved to a device and moved back.

    Cost
    ----
    Nothing is sent. Outside of such a ``with`` block nothing is counted.

    Examples
    --------
    >>> import numpy, distarray.torch as dt
    >>> with dt.transfers() as log:
    ...     t = dt.to_torch(numpy.zeros(4))
    >>> log.shared_bytes, log.copied_bytes
    (32, 0)
    """
    global watching
    log = Transfers()
    token = _logs.set((*_logs.get(), log))
    with _lock:
        watching += 1
    try:
        yield log
    finally:
        log._over = True  # a copy of this context may outlive the ``with`` block
        with _lock:
            watching -= 1
        _logs.reset(token)


def record(kind: str, nbytes: int) -> None:
    """Add one event of a kind ("shared", "copied", "h2d", "d2h") to the open logs."""
    for log in _logs.get():
        if not log._over:
            setattr(log, kind, getattr(log, kind) + 1)
            setattr(log, kind + "_bytes", getattr(log, kind + "_bytes") + nbytes)


def count(kind: str, nbytes: int) -> None:
    """Call :func:`record` if a log is open."""
    if watching:
        record(kind, nbytes)
