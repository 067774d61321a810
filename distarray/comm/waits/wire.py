"""The wire between nodes: questions over TCP about what their ranks do, and answers.

Each rank listens, and answers for all ranks of its node; the first answer is taken. A closed port
shows that its process has ended, or will not answer again; before that it has sent its last words
to the first nodes, in a datagram that nobody waits for. All messages are signed with a secret of
the job.
"""

import contextlib
import hashlib
import hmac
import json
import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from distarray.comm import thread_start
from distarray.comm.network import addresses

__all__ = ["WORDS", "Node", "Wire", "listener"]

_SEAL = 32
_NONCE = 16
_LENGTH = struct.Struct("<I")
#: Seconds to wait for a connection, and for an answer: ranks that are busy in Python answer late.
_CONNECT, _ANSWER = 0.5, 1.0
#: How many unanswered ports make a node unreachable, and the most bytes of a question.
_DEAF, _QUESTION = 4, 64
#: Seconds between checks whether the answering thread is to end.
_PAUSE = 0.2
_SIOCGIFADDR = 0x8915
#: The most bytes of last words.
WORDS = 512
Tables = dict[int, dict[str, Any]]


class Node(NamedTuple):
    """The addresses of a node, and a port of each of its ranks.

    Attributes
    ----------
    ranks : sequence of int
    addresses : sequence of str
    ports : sequence of int
    """

    ranks: Sequence[int]
    addresses: Sequence[str]
    ports: Sequence[int]


class Wire:
    """This rank's end of the wire.

    Parameters
    ----------
    door : socket.socket
        The socket of :func:`listener`.
    secret : bytes
        The job's secret.
    answer : callable
        Returns the answer to a question.
    heed : callable
        Takes the last words of a rank of another node.
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
        self._secret = secret
        self._answer = answer
        self._heed = heed
        self._own = addresses()
        self._thread: threading.Thread | None = None
        self._stopping = False

    @property
    def door(self) -> int:
        """The descriptor to close when this process will not answer any more."""
        return self._door.fileno()

    def start(self) -> None:
        """Answer questions in a thread of its own, so that two ranks can ask each other."""
        self._stopping = False
        thread = threading.Thread(target=self._run, name="distarray-wire", daemon=True)
        if thread_start.try_start(thread) is None:  # else other ranks of the node answer
            self._thread = thread

    def stop(self) -> None:
        """Stop answering, until `start`."""
        if self._thread is not None:
            self._stopping = True
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the main thread's
        poll = select.poll()
        poll.register(self._door, select.POLLIN)
        poll.register(self._ear, select.POLLIN)
        ear = self._ear.fileno()
        while not self._stopping:
            for file, event in poll.poll(1000 * _PAUSE):
                if event & select.POLLNVAL:  # the program has closed a socket that is not its own
                    return
                if file == ear:
                    self._hear()
                else:
                    self._serve()

    def _serve(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            guest, _ = self._door.accept()
            with guest:
                guest.settimeout(_ANSWER)
                nonce = _exactly(guest, _NONCE)
                question = self._opened(guest, b"question" + nonce, _QUESTION)
                told = json.dumps(self._answer(question.decode())).encode()
                self._send(guest, told, b"answer" + nonce)

    def _hear(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            data = self._ear.recv(_SEAL + WORDS + 1, socket.MSG_DONTWAIT)
            if hmac.compare_digest(data[:_SEAL], self._seal(b"last" + data[_SEAL:])):
                self._heed(data[_SEAL:])

    def send(self, node: Node, words: bytes) -> None:
        """Send last words to a node; nobody waits for them, and they may be lost."""
        for host in node.addresses if node.ports else ():
            with contextlib.suppress(OSError):
                data = self._seal(b"last" + words) + words
                self._ear.sendto(data, socket.MSG_DONTWAIT, (host, node.ports[0]))

    def ask(self, node: Node, question: str) -> dict[str, Any] | None:
        """A node's answer; None if no rank answers, empty if all its ranks have ended."""
        hosts = [host for host in node.addresses if host not in self._own]
        closed, deaf = [], 0
        for port in node.ports:
            if deaf == _DEAF:
                break
            for host in hosts:
                try:
                    return self._ask(host, port, question)
                except ConnectionRefusedError:
                    closed.append((host, port))
                except (OSError, ValueError):  # the address is another host's, or the rank is busy
                    deaf += 1
        return {} if len(closed) == len(hosts) * len(node.ports) > 0 else None

    def _ask(self, host: str, port: int, question: str) -> dict[str, Any]:
        with socket.create_connection((host, port), _CONNECT) as line:
            line.settimeout(_ANSWER)
            nonce = os.urandom(_NONCE)
            line.sendall(nonce)
            self._send(line, question.encode(), b"question" + nonce)
            found: dict[str, Any] = json.loads(self._opened(line, b"answer" + nonce))
            return found

    def _send(self, line: socket.socket, data: bytes, about: bytes) -> None:
        line.sendall(_LENGTH.pack(len(data)) + self._seal(about + data) + data)

    def _opened(self, line: socket.socket, about: bytes, most: int = 1 << 30) -> bytes:
        (length,) = _LENGTH.unpack(_exactly(line, _LENGTH.size))
        if length > most:
            raise ValueError("the message is too long to come from this job")
        seal = _exactly(line, _SEAL)
        data = _exactly(line, length)
        if not hmac.compare_digest(seal, self._seal(about + data)):
            raise ValueError("the message does not come from this job")
        return data

    def _seal(self, data: bytes) -> bytes:
        return hmac.digest(self._secret, data, hashlib.sha256)

    def close(self) -> None:
        """Stop answering for good."""
        self._door.close()
        self._ear.close()


def listener() -> socket.socket:
    """A listening socket that other nodes can reach."""
    door = socket.socket()
    try:
        door.bind(("", 0))
        door.listen(64)
        door.settimeout(_ANSWER)
    except OSError:
        door.close()
        raise
    return door


def _ear(door: socket.socket) -> socket.socket:
    """A socket for datagrams at the door's port; if that is taken, one that receives none."""
    ear = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with contextlib.suppress(OSError):
        ear.bind(("", door.getsockname()[1]))
    return ear


def _exactly(line: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = line.recv(count - len(data))
        if not part:
            raise ValueError("the other side has closed the connection")
        data += part
    return data
