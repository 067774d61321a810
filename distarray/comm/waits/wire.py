"""Connections between nodes: questions over TCP about the activity of their ranks.

Each rank listens at its node's address towards the other nodes, and responds for all ranks of its
node; the first response is taken. A closed port shows that its process has ended, or will not
respond again. Before that the process has sent its final report to the first nodes, in a datagram
that no rank waits for. All messages are sealed with a secret of the job. Other processes get no
response, and cannot delay responses: see :mod:`distarray.comm.waits.guests`.
"""

import contextlib
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from distarray.comm import thread_start
from distarray.comm.waits.channel import SLOT
from distarray.comm.waits.guests import Guests
from distarray.comm.waits.seals import HEAD, NONCE, SEAL, Seals

__all__ = ["WORDS", "Node", "Wire", "listener"]

#: Seconds to wait for a connection, for a response's beginning (ranks that are busy in Python
#: respond late), and for the whole response.
_CONNECT, _ANSWER, _WHOLE = 0.5, 1.0, 3.0
#: Number of ports without a response that make a node unreachable.
_DEAF = 4
#: Seconds between checks whether the responding thread has to end, and the number of events that it
#: handles in a tenth of a second: a flood of events must not take the program's time.
_PAUSE, _BREATH, _EVENTS = 0.2, 0.1, 200
#: Number of datagrams that are read at a time.
_AT_ONCE = 16
#: Largest number of bytes of a final report.
WORDS = 512
_now = time.monotonic


class Node(NamedTuple):
    """Address of a node towards the other nodes, and a port of each of its ranks.

    Attributes
    ----------
    ranks : sequence of int
    address : str
    ports : sequence of int
    """

    ranks: Sequence[int]
    address: str
    ports: Sequence[int]


class Wire:
    """This rank's sockets for questions between nodes.

    Parameters
    ----------
    door : socket.socket
        The socket of :func:`listener`.
    secret : bytes
        The job's secret.
    answer : callable
        Returns the response to a question.
    heed : callable
        Takes the final report of a rank of another node.
    """

    def __init__(
        self,
        door: socket.socket,
        secret: bytes,
        answer: Callable[[str], Mapping[Any, Any]],
        heed: Callable[[bytes], None],
    ) -> None:
        self._door = door
        self._ear = _ear(door)
        self._seals = Seals(secret)
        self._answer = answer
        self._heed = heed
        self._own: str = door.getsockname()[0]
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def door(self) -> int:
        """Descriptor to close when this process will not respond any more."""
        return self._door.fileno()

    def start(self) -> None:
        """Respond to questions in a separate thread, so that two ranks can ask each other."""
        self._stopping = False
        thread = threading.Thread(target=self._run, name="distarray-wire", daemon=True)
        if thread_start.try_start(thread) is None:  # else other ranks of the node respond
            self._thread = thread

    def stop(self) -> None:
        """Stop responding, until `start`."""
        if self._thread is not None:
            self._stopping = True
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # left to the main thread
        poll = select.poll()
        poll.register(self._door, select.POLLIN)
        poll.register(self._ear, select.POLLIN)
        guests = Guests(self._door, self._seals, self._answered, poll)
        try:
            self._attend(poll, guests)
        finally:
            guests.close()

    def _attend(self, poll: select.poll, guests: Guests) -> None:
        door, ear = self._door.fileno(), self._ear.fileno()
        began, events = _now(), 0
        while not self._stopping:
            for file, event in poll.poll(1000 * _PAUSE):
                if file not in (door, ear):
                    events += 1
                    guests.attend(file)
                elif event & select.POLLNVAL:  # the program has closed this descriptor
                    return
                else:
                    events += guests.let_in() if file == door else self._hear()
            guests.expire()
            if _now() - began > _BREATH:
                began, events = _now(), 0
            elif events > _EVENTS:
                time.sleep(_BREATH)

    def _answered(self, question: bytes) -> bytes:
        return json.dumps(self._answer(question.decode())).encode()

    def _hear(self) -> int:
        """Receive final reports that have arrived; return how many datagrams were read."""
        for count in range(_AT_ONCE):
            try:
                data = self._ear.recv(SEAL + WORDS + 1)
            except OSError:
                return count
            if self._seals.is_sealed(data[:SEAL], b"last" + data[SEAL:]):
                with contextlib.suppress(OSError, ValueError):
                    self._heed(data[SEAL:])
        return _AT_ONCE

    def send(self, node: Node, words: bytes) -> None:
        """Send a final report to a node; no rank waits for it, and it may be lost."""
        if node.ports:
            with contextlib.suppress(OSError):
                data = self._seals.seal(b"last" + words) + words
                self._ear.sendto(data, (node.address, node.ports[0]))

    def ask(self, node: Node, question: str) -> dict[str, Any] | None:
        """Return a node's response; None if no rank responds, empty if all its ranks have ended."""
        closed = deaf = 0
        for port in node.ports if node.address != self._own else ():
            if deaf == _DEAF:
                break
            try:
                return self._ask(node, port, question)
            except ConnectionRefusedError:
                closed += 1
            except (OSError, ValueError):  # the address is another host's, or the rank is busy
                deaf += 1
        return {} if closed == len(node.ports) > 0 else None

    def _ask(self, node: Node, port: int, question: str) -> dict[str, Any]:
        with socket.create_connection((node.address, port), _CONNECT) as line:
            until = _now() + _ANSWER
            nonces = _exactly(line, NONCE, until) + os.urandom(NONCE)
            asked = self._seals.message(question.encode(), b"question" + nonces)
            line.sendall(nonces[NONCE:] + asked)
            head = _exactly(line, HEAD, until)
            # A report fits a slot of the channel; written as JSON once more it may be longer.
            most = 2 * SLOT * (1 + len(node.ranks))
            length = self._seals.length(head, b"answer" + nonces, most)
            rest = _exactly(line, length, until + _WHOLE - _ANSWER)
            found: dict[str, Any] = json.loads(self._seals.opened(rest, b"answer" + nonces))
            return found

    def close(self) -> None:
        """Stop responding for good."""
        self._door.close()
        self._ear.close()


def listener(address: str) -> socket.socket:
    """Return a listening socket at one address of this host."""
    door = socket.socket(_family(address))
    try:
        door.bind((address, 0))
        door.listen(64)
        door.setblocking(False)
    except OSError:
        door.close()
        raise
    return door


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _ear(door: socket.socket) -> socket.socket:
    """Return a datagram socket at the listening address; if its port is taken, it gets none."""
    ear = socket.socket(door.family, socket.SOCK_DGRAM)
    ear.setblocking(False)
    with contextlib.suppress(OSError):
        ear.bind(door.getsockname())
    return ear


def _exactly(line: socket.socket, count: int, until: float) -> bytes:
    """Receive `count` bytes until a point in time."""
    data = bytearray()
    while len(data) < count:
        line.settimeout(max(0.001, until - _now()))
        part = line.recv(count - len(data))
        if not part:
            raise ValueError("the other side has closed the connection")
        if _now() > until:
            raise TimeoutError("the other side is too slow")
        data += part
    return bytes(data)
