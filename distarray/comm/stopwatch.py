"""Timing of communication calls while a listener measures.

While a rank measures, the methods by which transports communicate are replaced by methods that
record when a communication call began and ended. Otherwise nothing is replaced, and there is no
cost.
"""

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from threading import Lock, get_ident
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from distarray.comm.group import Group
from distarray.comm.pending import Requested
from distarray.comm.transport import Pair

__all__ = ["Listener", "Talk", "start", "stop", "talking_since"]

#: Methods that are replaced at present, by class and name; the values are the originals.
_replaced: dict[tuple[type, str], Any] = {}
_lock = Lock()


class Talk(NamedTuple):
    """One communication call that has ended.

    Attributes
    ----------
    group : Group or None
        None for the wait for an earlier communication call.
    kind : str
        The kind of call, such as "exchange" or "allreduce".
    start, stop : float
        Times of this process's clock (`time.perf_counter`).
    sends, receives : sequence of (int, int)
        Peer and bytes of each point-to-point message.
    received : int
        Bytes that other ranks sent to this rank.
    """

    group: Group | None
    kind: str
    start: float
    stop: float
    sends: Sequence[tuple[int, int]]
    receives: Sequence[tuple[int, int]]
    received: int


class Listener(Protocol):
    """Receiver of reports on communication calls."""

    def talked(self, talk: Talk) -> None:
        """Record a communication call of this thread that has ended."""


class _Watch:
    """Listeners of a thread's rank, and the start of its current communication call."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.since: float | None = None


_watches: dict[int, _Watch] = {}


def talking_since(thread: int) -> float | None:
    """Return when a thread's rank began its current communication call; None outside of one."""
    watch = _watches.get(thread)
    return None if watch is None else watch.since


def start(listener: Listener) -> None:
    """Report the communication calls of this thread to a listener, from now on."""
    with _lock:
        watch = _watches.setdefault(get_ident(), _Watch())
        watch.listeners.append(listener)
        _replace_all()


def stop(listener: Listener) -> None:
    """Stop reporting to a listener; the last one to stop restores the methods."""
    with _lock:
        for thread, watch in list(_watches.items()):
            if listener in watch.listeners:
                watch.listeners.remove(listener)
                if not watch.listeners:
                    del _watches[thread]
        if not _watches:
            _restore_all()


# -- received bytes --------------------------------------------------------------------------------


def _nothing(group: Group, args: tuple[Any, ...], result: Any) -> int:
    return 0


def _as_much(group: Group, args: tuple[Any, ...], result: Any) -> int:
    return int(args[0].nbytes)


def _of_broadcast(group: Group, args: tuple[Any, ...], result: Any) -> int:
    return 0 if args[1] == group.rank else int(args[0].nbytes)


def _of_parts(group: Group, args: tuple[Any, ...], result: Any) -> int:
    parts = () if result is None else result
    return sum([part.nbytes for rank, part in enumerate(parts) if rank != group.rank])


def _of_shares(group: Group, args: tuple[Any, ...], result: Any) -> int:
    return int(result.nbytes) * (group.size - 1)


def _of_scan(group: Group, args: tuple[Any, ...], result: Any) -> int:
    return int(args[0].nbytes) if group.rank else 0


_KINDS: dict[str, Callable[[Group, tuple[Any, ...], Any], int]] = {
    "_exchange": _nothing,
    "_begin_exchange": _nothing,
    "_allreduce": _as_much,
    "_allreduce_in_place": _as_much,
    "_begin_allreduce": _as_much,
    "_reduce_scatter": _of_shares,
    "_exscan": _of_scan,
    "_broadcast": _of_broadcast,
    "_begin_broadcast": _of_broadcast,
    "_allgather": _of_parts,
    "_allgather_varied": _of_parts,
    "_alltoall_varied": _of_parts,
    "_gather_varied": _of_parts,
    "_allgather_object": _nothing,
    "_broadcast_object": _nothing,
    "_barrier": _nothing,
}


# -- replacements of the methods -------------------------------------------------------------------


def _sizes(pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    return [(peer, view.nbytes) for peer, view in pairs]


def _timed(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wrap a method of a transport so that it reports to the listeners of its thread."""
    kind, received = name.removeprefix("_").removeprefix("begin_"), _KINDS[name]
    by_message = kind == "exchange"

    @wraps(method)
    def talk(self: Group, *args: Any) -> Any:
        watch = _watches.get(get_ident())
        if watch is None or watch.since is not None or self.size == 1:
            return method(self, *args)
        begun = watch.since = perf_counter()
        try:
            result = method(self, *args)
        finally:
            watch.since = None
        ended = perf_counter()
        sends, receives = map(_sizes, args) if by_message else ((), ())
        nbytes = sum([n for _, n in receives]) if by_message else received(self, args, result)
        for listener in watch.listeners:
            listener.talked(Talk(self, kind, begun, ended, sends, receives, nbytes))
        return result

    return talk


def _timed_wait(method: Callable[[Requested], None]) -> Callable[[Requested], None]:
    @wraps(method)
    def wait(self: Requested) -> None:
        watch = _watches.get(get_ident())
        if watch is None or watch.since is not None:
            return method(self)
        begun = watch.since = perf_counter()
        try:
            method(self)
        finally:
            watch.since = None
        for listener in watch.listeners:
            listener.talked(Talk(None, "wait", begun, perf_counter(), (), (), 0))
        return None

    return wait


def _transports() -> list[type[Group]]:
    """Return the transports that are loaded."""
    homes = (("distarray.comm.mpi", "MPIGroup"), ("distarray.comm.threads", "ThreadGroup"))
    return [getattr(sys.modules[home], name) for home, name in homes if home in sys.modules]


def _replace_all() -> None:
    for kind in _transports():
        for name in _KINDS:
            if (kind, name) not in _replaced:
                _replaced[kind, name] = kind.__dict__.get(name)
                setattr(kind, name, _timed(getattr(kind, name), name))
    if (Requested, "wait") not in _replaced:
        _replaced[Requested, "wait"] = Requested.wait
        setattr(Requested, "wait", _timed_wait(Requested.wait))  # noqa: B010 (mypy takes it so)


def _restore_all() -> None:
    while _replaced:
        (kind, name), method = _replaced.popitem()
        if method is None:
            delattr(kind, name)  # the method is inherited
        else:
            setattr(kind, name, method)
