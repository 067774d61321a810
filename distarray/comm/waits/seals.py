"""Sealed messages: bytes that only a process which knows the job's secret can have made.

A message begins with its length under a seal of its own, so that nobody's claim of a length is
believed before it is proven; what the bytes mean is looked at last.
"""

import hashlib
import hmac
import struct

__all__ = ["HEAD", "NONCE", "SEAL", "Seals"]

#: Bytes of a seal, and of a number that is used once.
SEAL, NONCE = 32, 16
_LENGTH = struct.Struct("<I")
#: Bytes of the head of a message: its length, sealed.
HEAD = _LENGTH.size + SEAL


class Seals:
    """The seals of one job.

    Parameters
    ----------
    secret : bytes
        Known to all ranks of the job, and to nobody else.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seal(self, data: bytes) -> bytes:
        """The seal of some bytes."""
        return hmac.digest(self._secret, data, hashlib.sha256)

    def is_sealed(self, seal: bytes, data: bytes) -> bool:
        """Whether this is the seal of these bytes; takes the same time for every wrong one."""
        return hmac.compare_digest(seal, self.seal(data))

    def message(self, data: bytes, about: bytes) -> bytes:
        """A whole message; `about` says what it answers, and is not sent."""
        length = _LENGTH.pack(len(data))
        head = length + self.seal(b"length" + about + length)
        return head + self.seal(b"data" + about + data) + data

    def length(self, head: bytes, about: bytes, most: int) -> int:
        """How many bytes follow a head, the seal of the data included.

        Raises
        ------
        ValueError
            If the head does not come from this job, or promises too much.
        """
        length, seal = head[: _LENGTH.size], head[_LENGTH.size : HEAD]
        if not self.is_sealed(seal, b"length" + about + length):
            raise ValueError("the message does not come from this job")
        (count,) = _LENGTH.unpack(length)
        if count > most:
            raise ValueError(f"a message of {count} bytes; at most {most} are taken")
        return SEAL + int(count)

    def opened(self, rest: bytes, about: bytes) -> bytes:
        """The data of a message, of which the head has been taken off.

        Raises
        ------
        ValueError
            If they do not come from this job.
        """
        seal, data = rest[:SEAL], rest[SEAL:]
        if not self.is_sealed(seal, b"data" + about + data):
            raise ValueError("the message does not come from this job")
        return data
