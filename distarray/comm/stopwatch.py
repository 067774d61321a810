"""Timing conversations while somebody measures.

While a rank measures, the methods by which transports talk are replaced by ones that note when a
conversation began and ended. Outside of that nothing is there, and nothing is paid.
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

#: How often each method is replaced by now, by class and name; what was there before.
_replaced: dict[tuple[type, str], Any] = {}
_lock = Lock()


class Talk(NamedTuple):
    """One conversation that has ended.

    Attributes
    ----------
    group : Group or None
        None for the wait for a conversation that was begun before.
    kind : str
        Such as "exchange" or "allreduce".
    start, stop : float
        By this process's clock (`time.perf_counter`).
    sends, receives : sequence of (int, int)
        Peer and bytes of each message, of those from rank to rank.
    received : int
        Bytes that others sent here.
    """

    group: Group | None
    kind: str
    start: float
    stop: float
    sends: Sequence[tuple[int, int]]
    receives: Sequence[tuple[int, int]]
    received: int


class Listener(Protocol):
    """Who wants to know of conversations."""

    def talked(self, talk: Talk) -> None:
        """Take note of a conversation of this thread that has ended."""


class _Watch:
    """What a thread's rank measures."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.since: float | None = None


_watches: dict[int, _Watch] = {}


def talking_since(thread: int) -> float | None:
    """When the conversation began that a thread's rank is in; None outside of one."""
    watch = _watches.get(thread)
    return None if watch is None else watch.since


def start(listener: Listener) -> None:
    """Tell a listener of the conversations of this thread, from now on."""
    with _lock:
        watch = _watches.setdefault(get_ident(), _Watch())
        watch.listeners.append(listener)
        _replace_all()


def stop(listener: Listener) -> None:
    """Tell it no more; the last one to stop puts the methods back."""
    with _lock:
        for thread, watch in list(_watches.items()):
            if listener in watch.listeners:
                watch.listeners.remove(listener)
                if not watch.listeners:
                    del _watches[thread]
        if not _watches:
            _restore_all()


# -- what was received -----------------------------------------------------------------------------


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


# -- in the methods' place -------------------------------------------------------------------------


def _sizes(pairs: Sequence[Pair]) -> list[tuple[int, int]]:
    return [(peer, view.nbytes) for peer, view in pairs]


def _timed(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A method of a transport that tells the listeners of its thread."""
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
    """The transports that are loaded."""
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
