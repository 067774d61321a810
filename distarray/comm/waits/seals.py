"""Sealed messages: bytes that only a process which knows the job's secret can have made.

A message begins with its length, which has its own seal (an authentication code), so that no length
is trusted before it is verified. The contents are interpreted last.
"""

import hashlib
import hmac
import struct

__all__ = ["HEAD", "NONCE", "SEAL", "Seals"]

#: Bytes of a seal, and of a nonce, a number that is used once.
SEAL, NONCE = 32, 16
_LENGTH = struct.Struct("<I")
#: Bytes of the head of a message: its length, and the seal of the length.
HEAD = _LENGTH.size + SEAL


class Seals:
    """Seals of one job.

    Parameters
    ----------
    secret : bytes
        The secret, known to all ranks of the job and to no other process.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def seal(self, data: bytes) -> bytes:
        """Return the seal of some bytes."""
        return hmac.digest(self._secret, data, hashlib.sha256)

    def is_sealed(self, seal: bytes, data: bytes) -> bool:
        """Return True if a seal is the seal of these bytes; all wrong seals take the same time."""
        return hmac.compare_digest(seal, self.seal(data))

    def message(self, data: bytes, about: bytes) -> bytes:
        """Return a whole message; `about` binds it to one exchange, and is not sent."""
        length = _LENGTH.pack(len(data))
        head = length + self.seal(b"length" + about + length)
        return head + self.seal(b"data" + about + data) + data

    def length(self, head: bytes, about: bytes, most: int) -> int:
        """Return the number of bytes that follow a head, with the seal of the data.

        Raises
        ------
        ValueError
            If the head does not come from this job, or its length is too large.
        """
        length, seal = head[: _LENGTH.size], head[_LENGTH.size : HEAD]
        if not self.is_sealed(seal, b"length" + about + length):
            raise ValueError("the message does not come from this job")
        (count,) = _LENGTH.unpack(length)
        if count > most:
            raise ValueError(f"a message of {count} bytes; at most {most} are taken")
        return SEAL + int(count)

    def opened(self, rest: bytes, about: bytes) -> bytes:
        """Return the data of a message whose head has been removed.

        Raises
        ------
        ValueError
            If the data does not come from this job.
        """
        seal, data = rest[:SEAL], rest[SEAL:]
        if not self.is_sealed(seal, b"data" + about + data):
            raise ValueError("the message does not come from this job")
        return data
