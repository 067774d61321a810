"""Scopes: the ranks of a communicator that watch each other, on one node or on several."""

import json
import os
import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakSet

from distarray.comm.calls import Call
from distarray.comm.network import address_towards, addresses
from distarray.comm.waits.channel import Channel, open_channel
from distarray.comm.waits.verdict import Entry, Report
from distarray.comm.waits.wire import WORDS, Node, Wire, listener

if TYPE_CHECKING:
    from mpi4py import MPI

    from distarray.comm.mpi import MPIGroup

__all__ = ["Among", "Scope", "entry_of", "make_scope"]

#: Communication calls of only some ranks of a group; they are compared by their purpose: shapes,
#: layouts and ranks.
_CHECKED = frozenset({"begin_exchange", "exchange", "subset"})
#: Number of other nodes that get a rank's final report: the lowest, since the lowest rank reports.
_TOLD = 8
#: Number of other nodes that are tried to find the address by which this node is reached.
_NEIGHBOURS = 16
_now = time.monotonic


class Among(NamedTuple):
    """Some of the ranks that watch each other.

    Attributes
    ----------
    scope : Scope
    key : str
        Key that is equal on these ranks, and different for any other set of ranks.
    members : tuple of int
        Numbers of these ranks in the scope.
    """

    scope: "Scope"
    key: str
    members: tuple[int, ...]

    def part(self, ranks: Sequence[int]) -> "Among":
        """Return some of these ranks, given by their indices in `members`."""
        members = tuple([self.members[rank] for rank in ranks])
        return Among(self.scope, f"{self.key}.{zlib.crc32(repr(members).encode()):x}", members)


class Scope:
    """Ranks of a communicator that watch each other; made by :func:`make_scope`.

    Attributes
    ----------
    labels : tuple of int
        The names of the ranks: their numbers in the world.
    rank : int
        This rank's number in the scope.
    channel : Channel
        Channel to the ranks of this node.
    wire : Wire or None
        Connections to other nodes, if there are any.
    """

    def __init__(self, labels: tuple[int, ...], rank: int, channel: Channel) -> None:
        self.labels = labels
        self.rank = rank
        self.channel = channel
        self.wire: Wire | None = None
        self._nodes: tuple[int, int] = (0, 0)
        #: Groups made of the program's communicators, as long as they exist.
        self._roots: WeakSet[MPIGroup] = WeakSet()
        self._changing = Lock()
        self._known: dict[tuple[str, tuple[int, ...]], int] = {}

    # -- its ranks and nodes ---------------------------------------------------------------------

    def among(self, labels: Sequence[int], kind: str = "") -> Among | None:
        """Return the ranks of a communicator, if all are in the scope; the same on all of them.

        Call this method once for each communicator, in the same order on all its ranks.
        """
        place = {label: number for number, label in enumerate(self.labels)}
        if not all(label in place and label >= 0 for label in labels):
            return None
        members = tuple([place[label] for label in labels])
        number = self._known[kind, members] = self._known.get((kind, members), 0) + 1
        return Among(self, f"{kind}{number}.{zlib.crc32(repr(members).encode()):x}", members)

    def keep_nodes(self, nodes: Sequence[Node], place: tuple[int, int] | None) -> tuple[int, int]:
        """Store the addresses of all nodes, once on each node."""
        if place is None:
            place = self.channel.append(json.dumps(nodes).encode())
        self._nodes = place
        return place

    def keep(self, group: "MPIGroup") -> None:
        """Count the communication calls of a group made of one of the program's communicators."""
        with self._changing:
            self._roots.add(group)

    def roots(self) -> list["MPIGroup"]:
        """Return the groups passed to `keep` that still exist."""
        with self._changing:
            return list(self._roots)

    def other_nodes(self) -> list[Node]:
        """Return all nodes except this one, in order of their lowest ranks."""
        if self.wire is None:
            return []
        nodes = [Node(*entry) for entry in json.loads(self.channel.kept(self._nodes))]
        return [node for node in nodes if node.ranks[0] not in self.channel.ranks]

    # -- activities of its ranks -----------------------------------------------------------------

    def ask(self, late: bool = False) -> None:
        """Ask all ranks to write their activity."""
        self.channel.ask(late)
        for node in self.other_nodes():
            assert self.wire is not None
            self.wire.ask(node, "late" if late else "ask")

    def reports(self, stale: float) -> dict[int, Report]:
        """Return the reports of all ranks on their activity.

        A rank that has written nothing for `stale` seconds is reported as silent.
        """
        found = {rank: Report(rank, "silent") for rank in range(len(self.labels))}
        found |= self.here(stale)
        for node in self.other_nodes():
            assert self.wire is not None
            answer = self.wire.ask(node, "table")
            for rank in node.ranks:
                if answer:
                    found[rank] = _report(rank, answer[str(rank)], stale, self)
                elif answer is not None:
                    found[rank] = self._last_of(rank)
        return found

    def _last_of(self, rank: int) -> Report:
        """Return the report of a rank on a node that no longer responds."""
        with suppress(ValueError):
            call, path, last = json.loads(self.channel.words_of(rank))
            recent = () if last is None else (Entry(*last),)
            return Report(rank, "gone", call=call, path=tuple(path), recent=recent)
        return Report(rank, "gone")

    def take_leave(self, call: str, path: Sequence[str], last: Entry | None) -> None:
        """Send this rank's final report to other nodes: later no rank here may respond."""
        words = f"{self.rank} {json.dumps((call, path, last))}".encode()
        if len(words) > WORDS:
            words = f"{self.rank} {json.dumps((call[:60], path, None))}".encode()
        for node in self.other_nodes()[:_TOLD] if len(words) <= WORDS else ():
            assert self.wire is not None
            self.wire.send(node, words)

    def heed(self, words: bytes) -> None:
        """Store the final report of a rank of another node."""
        rank, _, text = words.partition(b" ")
        self.channel.keep_words(int(rank), text)

    def here(self, stale: float) -> dict[int, Report]:
        """Return the reports of the ranks of this node."""
        slots = self.channel.read()
        return {rank: _report(rank, words, stale, self) for rank, words in slots.items()}

    def answer(self, question: str) -> dict[Any, Any]:
        """Return the response to another node's question: the reports of the ranks here."""
        if question in ("ask", "late"):
            self.channel.ask(question == "late")
        return self.channel.read()

    def lower_waits(self, stale: float) -> bool:
        """Return True if a lower rank waits on another node; then ask that node to report."""
        for node in self.other_nodes():
            assert self.wire is not None
            if node.ranks[0] < self.rank:
                answer = self.wire.ask(node, "late") or {}
                waiting = [
                    int(rank)
                    for rank, words in answer.items()
                    if _report(int(rank), words, stale, self).doing == "waits"
                ]
                if min(waiting, default=self.rank) < self.rank:
                    return True
        return False

    def close(self) -> None:
        """Close channel and wire, in a forked child."""
        self.channel.close()
        if self.wire is not None:
            self.wire.close()


def _report(rank: int, words: dict[str, Any], stale: float, scope: Scope) -> Report:
    """Convert the data that a rank has written to a report."""
    moves = words["moves"]
    fields: dict[str, Any] = {key: words[key] for key in ("call", "arguments") if key in words}
    if "recent" in words:
        fields["recent"] = tuple([Entry(*entry) for entry in words["recent"]])
        fields["counts"] = words["counts"]
        fields["whole"] = words["whole"]
        fields["handled"] = words["handled"]
    if words.get("doing") == "left" and words["still"]:
        return Report(rank, "left", words["age"], path=tuple(words["path"]), moves=moves, **fields)
    if words["gone"]:
        return Report(rank, "gone", moves=moves)
    if words["since_beat"] > stale:
        return Report(rank, "stopped" if words.get("stopped") else "silent", moves=moves)
    if not words.get("still"):
        path = tuple(words.get("path", ()))
        return Report(rank, "goes on", path=path, moves=moves)
    entry = Entry(*words["entry"]) if words["entry"] else None
    needs = words["needs"]
    everybody = ((0, len(scope.labels), 1),)
    return Report(
        rank,
        words["doing"],
        words["age"],
        path=tuple(words["path"]),
        entry=entry,
        needs=everybody if needs is None else tuple([tuple(span) for span in needs]),
        size=words["size"],
        aside=words["aside"],
        moves=moves,
        **fields,
    )


def entry_of(call: Call, scope: Scope) -> Entry | None:
    """Convert a communication call to a report entry; None if its group is not in the scope."""
    among = call.group.among
    if among is None or among.scope is not scope:
        return None
    what = "" if call.note is None else str(call.note)
    if call.kind in _CHECKED and what:
        what += f" {zlib.crc32(repr(call.note).encode()):x}"
    together = call.kind not in _CHECKED
    return Entry(among.key, call.number, together, call.kind, call.name, call.where, what[:200])


def make_scope(comm: "MPI.Intracomm", labels: tuple[int, ...], watching: bool) -> Scope | None:
    """Let the ranks of a communicator watch each other; collective.

    Parameters
    ----------
    comm : mpi4py.MPI.Intracomm
    labels : tuple of int
        The names of its ranks.
    watching : bool
        True if this rank takes part; all ranks must take part.

    Returns
    -------
    Scope or None
        None on all ranks, if one of them does not take part or has no channel.
    """
    from mpi4py import MPI

    rank: int = comm.Get_rank()
    near = _near(comm)
    try:
        channel = open_channel(near, rank)
        if not comm.allreduce(channel is not None and watching, MPI.LAND):
            if channel is not None:
                channel.close()
            return None
        assert channel is not None
        scope = Scope(labels, rank, channel)
        if near.Get_size() < comm.Get_size():
            _connect(scope, comm, near)
        return scope
    finally:
        near.Free()


def _near(comm: "MPI.Intracomm") -> "MPI.Intracomm":
    """Return the communicator of the ranks on this node."""
    from mpi4py import MPI

    return cast("MPI.Intracomm", comm.Split_type(MPI.COMM_TYPE_SHARED))


def _connect(scope: Scope, comm: "MPI.Intracomm", near: "MPI.Intracomm") -> None:
    """Exchange the addresses of all nodes, and listen at this node's address towards the others."""
    from mpi4py import MPI

    leaders = comm.Split(0 if near.Get_rank() == 0 else MPI.UNDEFINED)
    address, place, door = "", None, None
    if leaders != MPI.COMM_NULL:
        hosts, here = leaders.allgather(addresses()), leaders.Get_rank()
        address = address_towards([*hosts[here + 1 :], *hosts[:here]][:_NEIGHBOURS])
    address = near.bcast(address)
    with suppress(OSError):
        door = listener(address) if address else None
    ports = near.allgather(door.getsockname()[1] if door is not None else 0)
    secret = comm.bcast(os.urandom(32))
    if leaders != MPI.COMM_NULL:
        node = Node(scope.channel.ranks, address, [port for port in ports if port])
        place = scope.keep_nodes(leaders.allgather(node), None)
        leaders.Free()
    scope.keep_nodes((), near.bcast(place))
    if comm.allreduce(door is not None, MPI.LAND) and door is not None:
        scope.wire = Wire(door, secret, scope.answer, scope.heed)
    elif door is not None:
        door.close()
