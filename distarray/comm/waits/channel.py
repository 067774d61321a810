"""Channel between the ranks of a node without MPI: a file in memory with a slot for each rank.

Each rank writes its own slot and reads all slots. A lock on one byte, which the kernel releases
with the process, shows that a rank is alive.
"""

import contextlib
import fcntl
import json
import os
import struct
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distarray.comm.nameless_file import open_together

if TYPE_CHECKING:
    from mpi4py import MPI

__all__ = ["Channel", "open_channel"]

#: Bytes of a slot; only bytes that are written take memory. The first slot belongs to all ranks.
SLOT = 1 << 16
#: Number of bytes of a slot that are read first: a report without hundreds of communicators.
_FIRST = 1 << 13
#: Limits of a report that is too long: characters of each text, lines of its path, and spans of
#: ranks. A rank that needs more spans is taken to need all ranks.
_TEXT, _LINES, _SPANS = 1000, 20, 200
#: Seconds without a heartbeat after which a process may have been stopped.
_QUIET = 1.0
#: Time of the last heartbeat, the rank's moves, and length and checksum of its report.
_HEAD = struct.Struct("<dqII")
#: Times at which ranks were last asked for reports, and a rank was last found to wait too long.
_CALL = struct.Struct("<dd")
#: Offset of the final reports of ranks of other nodes, and the bytes of each.
_FAREWELLS, _FAREWELL = 1 << 36, 512
#: Offset of the locks, beyond all contents: the lock for reporting, and one lock per rank.
_LOCKS = 1 << 40
#: Record lock of `fcntl` on Linux: kind, origin, start, length and process.
_LOCK = struct.Struct("@hhqqi")

_now = time.monotonic


class Channel:
    """One node's file, as one rank uses it; made by :func:`open_channel`.

    Parameters
    ----------
    descriptor : int
        The open file; it belongs to the channel.
    ranks : sequence of int
        The ranks on this node, in order of their slots.
    index : int
        This rank's slot.
    """

    def __init__(self, descriptor: int, ranks: tuple[int, ...], index: int) -> None:
        self.ranks = ranks
        self._file = descriptor
        self._inode = _inode(descriptor)
        self._index = index
        self._written = b""
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, _LOCKS + 1 + index)

    # -- this rank's slot ------------------------------------------------------------------------

    def write(self, moves: int, report: dict[str, Any] | None) -> None:
        """Write this rank's moves and a heartbeat; with None its last report remains valid."""
        whole = self._packed(moves, report)
        with contextlib.suppress(OSError):  # such as: no memory left
            # The program may have closed descriptors that are not its own.
            if _inode(self._file) == self._inode:
                os.pwrite(self._file, whole, SLOT * (1 + self._index))

    def last_words(self, moves: int, report: dict[str, Any]) -> tuple[int, bytes, int]:
        """Return the arguments of the write that `write` would do: descriptor, bytes and offset."""
        return self._file, self._packed(moves, report), SLOT * (1 + self._index)

    def _packed(self, moves: int, report: dict[str, Any] | None) -> bytes:
        if report is not None:
            self._written = _packed(report)
        data = self._written
        head = _HEAD.pack(_now(), moves, len(data), zlib.crc32(data))
        return head if report is None else head + data

    # -- all slots -------------------------------------------------------------------------------

    def read(self) -> dict[int, dict[str, Any]]:
        """Return the last report of each rank of the node, by rank.

        Each report also has: `moves`, the number of communication calls and waits that the rank has
        begun; `since_beat`, the seconds since its last heartbeat; `gone`, True if its process has
        ended; `stopped`, True if a signal or a debugger has stopped it; `still`, True if the report
        is about its current communication call.
        """
        return {rank: self._slot(index) for index, rank in enumerate(self.ranks)}

    def _slot(self, index: int) -> dict[str, Any]:
        for _ in range(20):
            data = os.pread(self._file, _FIRST, SLOT * (1 + index))
            if len(data) < _HEAD.size:
                break
            beat, moves, length, check = _HEAD.unpack_from(data)
            if _HEAD.size + length > len(data):
                data += os.pread(self._file, SLOT - len(data), SLOT * (1 + index) + len(data))
            words = data[_HEAD.size : _HEAD.size + length]
            if zlib.crc32(words) == check:
                found: dict[str, Any] = json.loads(words) if words else {}
                found["still"] = found.get("moves") == moves
                found.update(moves=moves, since_beat=_now() - beat, **self._life(index, beat))
                if "since" in found:
                    found["age"] = _now() - found.pop("since")
                return found
            time.sleep(0.001)  # it is being written
        return {"moves": -1, "since_beat": float("inf"), **self._life(index, 0.0)}

    def _life(self, index: int, beat: float) -> dict[str, bool]:
        """Return whether a rank's process has ended (`gone`), and whether it is stopped."""
        if index == self._index:
            return {"gone": False, "stopped": False}
        gone = self._take(1 + index, fcntl.LOCK_SH)
        quiet = not gone and _now() - beat > _QUIET
        return {"gone": gone, "stopped": quiet and self._is_stopped(index)}

    def _is_stopped(self, index: int) -> bool:
        """Return True if the process that holds a rank's lock is stopped; False if unknown."""
        wanted = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, _LOCKS + 1 + index, 1, 0)
        try:
            *_, process = _LOCK.unpack(fcntl.fcntl(self._file, fcntl.F_GETLK, wanted))
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in "Tt"

    def _take(self, place: int, kind: int, keep: bool = False) -> bool:
        """Return True if a lock can be taken; it is released at once unless `keep`."""
        try:
            fcntl.lockf(self._file, kind | fcntl.LOCK_NB, 1, _LOCKS + place)
        except OSError:
            return False
        if not keep:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _LOCKS + place)
        return True

    # -- common to all ranks ---------------------------------------------------------------------

    def claim(self) -> bool:
        """Return True if this rank may report; no other rank may report until `release`."""
        return self._take(0, fcntl.LOCK_EX, keep=True)

    def release(self) -> None:
        """Let another rank report."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _LOCKS)

    def ask(self, late: bool = False) -> None:
        """Ask all ranks of the node to write their activity; `late` if a rank waits too long."""
        overdue = self.asked()[1]
        os.pwrite(self._file, _CALL.pack(_now(), _now() if late else overdue), 0)

    def asked(self) -> tuple[float, float]:
        """Return the times of the last request for reports, and of the last overlong wait found."""
        data = os.pread(self._file, _CALL.size, 0)
        return _CALL.unpack(data) if len(data) == _CALL.size else (0.0, 0.0)

    def append(self, data: bytes) -> tuple[int, int]:
        """Store bytes behind the slots, for all ranks of the node; return offset and length."""
        start = SLOT * (1 + len(self.ranks))
        os.pwrite(self._file, data, start)
        return start, len(data)

    def kept(self, place: tuple[int, int]) -> bytes:
        """Return bytes that :meth:`append` stored."""
        return os.pread(self._file, place[1], place[0])

    def keep_words(self, rank: int, words: bytes) -> None:
        """Store the final report of a rank of another node."""
        os.pwrite(self._file, words.ljust(_FAREWELL), _FAREWELLS + _FAREWELL * rank)

    def words_of(self, rank: int) -> bytes:
        """Return the final report of a rank of another node; empty if there is none."""
        return os.pread(self._file, _FAREWELL, _FAREWELLS + _FAREWELL * rank).strip(b"\0 ")

    def close(self) -> None:
        """Close the file, in a forked child, which is no rank."""
        os.close(self._file)


def _inode(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _packed(report: dict[str, Any]) -> bytes:
    """Return a report as bytes that fit the slot.

    Texts are cut. Then the oldest communication calls are left out, and then the numbers of all
    groups except the first. The description of the communication call in which the rank waits
    always remains.
    """
    data = json.dumps(report).encode()
    if len(data) <= SLOT - _HEAD.size:
        return data
    report = {key: _cut(value) for key, value in report.items()}
    if len(report.get("needs") or ()) > _SPANS:
        report["needs"] = None
    while len(data := json.dumps(report).encode()) > SLOT - _HEAD.size:
        recent, counts = report.get("recent"), report.get("counts")
        if recent:
            report.update(recent=recent[len(recent) // 2 + 1 :], whole=False)
        elif counts:
            report["counts"] = dict(list(counts.items())[: len(counts) // 2])
        else:
            return b""
    return data


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_TEXT]
    if isinstance(value, (list, tuple)) and all(isinstance(line, str) for line in value):
        return [line[:_TEXT] for line in value[:_LINES]]
    return value


def open_channel(near: "MPI.Intracomm", rank: int) -> Channel | None:
    """Open the channel of the ranks of a node; collective over them.

    Parameters
    ----------
    near : mpi4py.MPI.Intracomm
        The ranks of the node.
    rank : int
        This rank's number among all ranks that watch each other.

    Returns
    -------
    Channel or None
        None on all ranks if one cannot open the file.
    """
    descriptor = open_together(near, on_disk=True)
    if descriptor < 0:
        return None
    return Channel(descriptor, tuple(near.allgather(rank)), near.Get_rank())
