"""A line between the driver and a rank: JSON values, one a text line, over a socket."""

import json
import socket
from contextlib import suppress
from typing import Any

__all__ = ["Line"]


class Line:
    """One end of it; waiting costs no processor time.

    Parameters
    ----------
    end : socket.socket
    limit : float, optional
        Seconds to wait for the other end; for ever if not given.
    """

    def __init__(self, end: socket.socket, limit: float | None = None) -> None:
        end.settimeout(limit)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._end = end
        self._text = end.makefile("rw", encoding="utf-8")

    def send(self, value: Any) -> None:
        """Send a value that JSON can write."""
        self._text.write(json.dumps(value) + "\n")
        self._text.flush()

    def receive(self) -> Any:
        """The next value; EOFError when the other end has hung up."""
        text = self._text.readline()
        if not text:
            raise EOFError("the other end has hung up")
        return json.loads(text)

    def close(self) -> None:
        """Hang up."""
        with suppress(OSError):  # what was not sent yet, to someone who is gone
            self._text.close()
        self._end.close()
