"""Communication ledger: the ranks' communication calls, each with the line of the program.

Every public method of :class:`distarray.comm.group.Group` writes here. Without an open trace that
costs one test of :data:`watching`.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from distarray.comm.user_lines import user_line
from distarray.errors import CommunicationForbidden

if TYPE_CHECKING:
    from distarray.plan.exchange import Route

__all__ = [
    "Event",
    "Note",
    "Trace",
    "check_allowed",
    "forbid_communication",
    "is_forbidden",
    "listening",
    "note",
    "record",
    "size_text",
    "trace",
    "unheard",
]

#: Purpose of a message; it becomes text only inside of traces.
Note: TypeAlias = "str | Route | None"
T = TypeVar("T")
Book = TypeVar("Book", bound="Trace")

#: Number of open ``trace()`` and ``forbid_communication()`` blocks, in all threads together.
watching = 0

_lock = threading.Lock()
_traces: ContextVar[tuple["Trace", ...]] = ContextVar("distarray_traces", default=())
_forbidden: ContextVar[bool] = ContextVar("distarray_forbidden", default=False)
_note: ContextVar[Note] = ContextVar("distarray_note", default=None)


class Event(NamedTuple):
    """One communication call, as this rank took part in it.

    Attributes
    ----------
    kind : str
        The method of the group: "exchange", "allreduce", "allgather", ...; or "library", which
        sends nothing and means that the calls after it gather an array for a library.
    bytes : int
        Bytes that this rank contributed for other ranks; bytes that it received count as theirs.
    messages : int
        Messages that this rank sent: each point-to-point message, and a collective as one.
    peers : sequence of int
        Ranks of the group that this rank sent to.
    note : str
        Purpose of the call, such as source and target placements; empty if none was given.
    where : str
        ``file:line`` of the user's program.
    away : int
        Number of the messages to other nodes; a collective of ranks on several nodes counts as one.
    route : Route or None
        Source and target layouts, if an array is redistributed.

    Examples
    --------
    >>> import numpy, distarray
    >>> def program(group):
    ...     with distarray.trace() as t:
    ...         group.allreduce(numpy.ones(2), distarray.Fold.SUM, "the total")
    ...     return [(event.kind, event.bytes, event.note) for event in t]
    >>> distarray.comm.run_threads(2, program)[0]
    [('allreduce', 16, 'the total')]
    """

    kind: str
    bytes: int
    messages: int
    peers: Sequence[int]
    note: str
    where: str
    away: int = 0
    route: "Route | None" = None

    def __str__(self) -> str:
        sent = f"{size_text(self.bytes):>10} {self.messages:>4}"
        return f"{self.kind:<16} {sent}  {self.where}  {self.note}"


class Trace:
    """Events of one ``with trace() as t:`` block, on this rank.

    Attributes
    ----------
    events : list of Event
        Events in the order in which they happened.
    asks_where : bool
        True if events record the line of the program, which takes a while to find.

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> def program(group):
    ...     x = np.arange(12.0).redistribute(placements=[distarray.Shard(0)])
    ...     with distarray.trace() as t:
    ...         total = float((x + x).sum())
    ...     return t.count("exchange"), t.count("allreduce"), t.bytes
    >>> distarray.comm.run_threads(2, program)[0]
    (0, 1, 8)
    """

    __slots__ = ("_over", "events")
    asks_where = True

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._over = False

    @property
    def messages(self) -> int:
        """Messages sent by this rank; a collective counts as one."""
        return sum(event.messages for event in self.events)

    @property
    def bytes(self) -> int:
        """Bytes sent by this rank."""
        return sum(event.bytes for event in self.events)

    @property
    def away(self) -> int:
        """Messages sent by this rank to other nodes; a collective counts as one."""
        return sum(event.away for event in self.events)

    def count(self, kind: str) -> int:
        """Count the events of one kind."""
        return sum(event.kind == kind for event in self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __str__(self) -> str:
        head = f"{'kind':<16} {'sent':>10} {'msgs':>4}  line  note"
        total = f"{'total':<16} {size_text(self.bytes):>10} {self.messages:>4}"
        if self.away:
            total += f"  {self.away} to other nodes"
        return "\n".join([head, *map(str, self.events), total])

    def __repr__(self) -> str:
        return (
            f"<Trace: {len(self.events)} events, {self.messages} messages, {size_text(self.bytes)}>"
        )


@contextmanager
def _watched(variable: ContextVar[T], value: T) -> Iterator[None]:
    global watching
    token = variable.set(value)
    with _lock:
        watching += 1
    try:
        yield
    finally:
        with _lock:
            watching -= 1
        variable.reset(token)


@contextmanager
def trace() -> Iterator[Trace]:
    """Collect this rank's messages and collectives.

    Yields
    ------
    Trace
        Filled while the block runs; print it for a table.

    Examples
    --------
    >>> from distarray.comm.ledger import trace
    >>> with trace() as t:
    ...     pass
    >>> t.messages, t.bytes
    (0, 0)
    """
    with listening(Trace()) as book:
        yield book


@contextmanager
def listening(book: Book) -> Iterator[Book]:
    """Collect events as :func:`trace` does, in a trace that the caller passes.

    Parameters
    ----------
    book : Trace
        The caller's trace; its `events` may be any object that has `append`.
    """
    books: tuple[Trace, ...] = (*_traces.get(), book)
    with _watched(_traces, books):
        try:
            yield book
        finally:
            book._over = True  # copies of this context may outlive the block


@contextmanager
def forbid_communication() -> Iterator[None]:
    """Raise :class:`~distarray.errors.CommunicationForbidden` instead of sending anything.

    Examples
    --------
    >>> import distarray
    >>> import distarray.numpy as np
    >>> x = np.arange(100_000.0)
    >>> with distarray.forbid_communication():
    ...     y = 2 * x[1:] + 1
    """
    with _watched(_forbidden, True):
        yield


@contextmanager
def unheard() -> Iterator[None]:
    """Suspend traces and bans on communication for a dry run, which sends nothing."""
    token = _traces.set(())
    try:
        with _watched(_forbidden, False):
            yield
    finally:
        _traces.reset(token)


@contextmanager
def note(text: Note) -> Iterator[None]:
    """Give a purpose to the messages of the block that have none of their own."""
    token = _note.set(text)
    try:
        yield
    finally:
        _note.reset(token)


def is_forbidden() -> bool:
    """Return True if communication is forbidden here."""
    return watching > 0 and _forbidden.get()


def check_allowed(kind: str, nbytes: int, text: Note = None) -> None:
    """Raise if communication is forbidden here, before anything has been sent.

    Parameters
    ----------
    kind : str
        The method of the group.
    nbytes : int
        Bytes that this rank would send.
    text : Note
        Purpose of the bytes.
    """
    if is_forbidden():
        purpose = f" ({text})" if text is not None else ""
        raise CommunicationForbidden(
            f"{kind}{purpose} would send {size_text(nbytes)} from this rank inside "
            f"forbid_communication(), at {user_line()}"
        )


def record(
    kind: str,
    nbytes: int,
    messages: int,
    peers: Sequence[int],
    text: Note = None,
    away: int = 0,
) -> None:
    """Record an event in the open traces, or raise; called only if :data:`watching`."""
    if text is None:
        text = _note.get()
    check_allowed(kind, nbytes, text)
    traces = _traces.get()
    if traces:
        words = "" if text is None else str(text)
        route: Any = text if hasattr(text, "src") else None
        where = user_line() if any(book.asks_where for book in traces) else ""
        event = Event(kind, int(nbytes), messages, peers, words, where, away, route)
        for book in traces:
            if not book._over:
                book.events.append(event)


def size_text(nbytes: int) -> str:
    """Return a number of bytes as text: ``48.0 MiB``."""
    if nbytes < 1024:
        return f"{nbytes} B"
    size = float(nbytes)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"
