"""Client connections to a rank's listening socket; only processes of the job get a response.

All connections are served at the same time, and the server waits for none of them. A connection
without an authenticated question within a second is closed. If there are too many connections, the
oldest unauthenticated connection is closed first.
"""

import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from distarray.comm.waits.seals import HEAD, NONCE, SEAL, Seals

__all__ = ["QUESTION", "Guests"]

#: Seconds for sending a response, connections at the same time, and new connections at a time.
_STAY, _MOST, _AT_ONCE = 2.0, 128, 16
#: Seconds until a question must be authenticated, and the largest number of bytes of one.
_PROOF, QUESTION = 1.0, 64
_now = time.monotonic


class _Guest:
    """One connection."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.nonce = os.urandom(NONCE)
        self.until = _now() + _PROOF
        self.heard = b""
        self.answer: memoryview | None = None


class Guests:
    """Connections to one listening socket.

    Parameters
    ----------
    door : socket.socket
        Listening socket, which does not block.
    seals : Seals
    answer : callable
        Returns the response to an authenticated question.
    poll : select.poll
        Poll object of the connections.
    """

    def __init__(
        self,
        door: socket.socket,
        seals: Seals,
        answer: Callable[[bytes], bytes],
        poll: select.poll,
    ) -> None:
        self._door, self._seals, self._answer, self._poll = door, seals, answer, poll
        self._here: dict[int, _Guest] = {}

    def let_in(self) -> int:
        """Accept new connections, and send each a nonce that its question must include.

        Returns
        -------
        int
            Number of connections that have been accepted, or at least attempted.
        """
        for count in range(_AT_ONCE):
            try:
                line, _ = self._door.accept()
            except OSError:  # there is no other connection; or no descriptor is left
                return max(1, count)
            line.setblocking(False)
            guest = self._here[line.fileno()] = _Guest(line)
            self._poll.register(line, select.POLLIN)
            with suppress(OSError):
                line.send(guest.nonce)
            if len(self._here) > _MOST:
                unproven = [file for file, other in self._here.items() if other.answer is None]
                self._send_away(next(iter(unproven or self._here)))
        return _AT_ONCE

    def attend(self, file: int) -> None:
        """Continue with the connection of this descriptor."""
        guest = self._here.get(file)
        if guest is None:  # closed meanwhile
            return
        try:
            if guest.answer is None:
                self._listen(guest, file)
            if guest.answer is not None:
                guest.answer = guest.answer[guest.line.send(guest.answer) :]
                if not guest.answer:
                    self._send_away(file)
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            self._send_away(file)

    def _listen(self, guest: _Guest, file: int) -> None:
        """Receive more of the question; prepare the response once it is whole and proven."""
        whole = NONCE + HEAD + QUESTION + SEAL
        data = guest.line.recv(whole + 1)
        guest.heard += data
        if not data or len(guest.heard) > whole:
            raise ValueError("it has left, or says too much")
        start = NONCE + HEAD
        if len(guest.heard) < start:
            return
        nonces = guest.nonce + guest.heard[:NONCE]
        about = b"question" + nonces
        length = self._seals.length(guest.heard[NONCE:start], about, QUESTION)
        if len(guest.heard) < start + length:
            return
        question = self._seals.opened(guest.heard[start:], about)
        told = self._seals.message(self._answer(question), b"answer" + nonces)
        guest.answer, guest.until = memoryview(told), _now() + _STAY
        self._poll.modify(file, select.POLLOUT)

    def expire(self) -> None:
        """Close connections that have been open too long."""
        now = _now()
        for file in [file for file, guest in self._here.items() if now > guest.until]:
            self._send_away(file)

    def close(self) -> None:
        """Close all connections."""
        for file in list(self._here):
            self._send_away(file)

    def _send_away(self, file: int) -> None:
        guest = self._here.pop(file)
        with suppress(KeyError, OSError):
            self._poll.unregister(file)
        guest.line.close()
