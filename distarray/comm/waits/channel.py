"""What the ranks of a node tell one another without MPI: a file in memory, a slot for each.

The file has no name any more when it is in use, so that nothing is left of it however the job ends.
Each rank writes its own slot and reads all; a lock on one byte, which the kernel gives up with the
process, says that a rank is alive.
"""

import contextlib
import fcntl
import json
import os
import struct
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

__all__ = ["Channel", "open_channel"]

_PREFIX = "distarray-waits-"
#: Bytes of a slot, of which only what is written takes memory. The first belongs to all.
SLOT = 1 << 14
#: When the slot was looked after last, where the rank is, and the words that follow.
_HEAD = struct.Struct("<dqII")
_CALL = struct.Struct("<dd")
#: Where the last words are of ranks of other nodes, and the bytes of each.
_FAREWELLS, _FAREWELL = 1 << 36, 512
#: Where the locks are, beyond all that is written: one for who speaks, and one for each rank.
_LOCKS = 1 << 40
#: Seconds after which a file that nobody holds has been left by a job that was killed.
_OLD = 60.0

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
        """Say where this rank is, and that it is alive; None: what it said last still holds."""
        whole = self._packed(moves, report)
        with contextlib.suppress(OSError):  # no memory left: nothing is told
            if (
                _inode(self._file) == self._inode
            ):  # the program may have closed what it did not open
                os.pwrite(self._file, whole, SLOT * (1 + self._index))

    def last_words(self, moves: int, report: dict[str, Any]) -> tuple[int, bytes, int]:
        """What `write` would write: descriptor, bytes and place."""
        return self._file, self._packed(moves, report), SLOT * (1 + self._index)

    def _packed(self, moves: int, report: dict[str, Any] | None) -> bytes:
        if report is not None:
            self._written = _packed(report)
        data = self._written
        head = _HEAD.pack(_now(), moves, len(data), zlib.crc32(data))
        return head if report is None else head + data

    # -- all slots -------------------------------------------------------------------------------

    def read(self) -> dict[int, dict[str, Any]]:
        """What each rank of the node has said last, by rank.

        Besides its words: `moves`, where it is; `since_beat`, the seconds since it last showed
        that it is alive; `gone`, whether its process is; `still`, whether its words are about where
        it is.
        """
        return {rank: self._slot(index) for index, rank in enumerate(self.ranks)}

    def _slot(self, index: int) -> dict[str, Any]:
        for _ in range(20):
            data = os.pread(self._file, SLOT, SLOT * (1 + index))
            if len(data) < _HEAD.size:
                break
            beat, moves, length, check = _HEAD.unpack_from(data)
            words = data[_HEAD.size : _HEAD.size + length]
            if zlib.crc32(words) == check:
                found: dict[str, Any] = json.loads(words) if words else {}
                found["still"] = found.get("moves") == moves
                found.update(moves=moves, since_beat=_now() - beat, gone=self._is_gone(index))
                if "since" in found:
                    found["age"] = _now() - found.pop("since")
                return found
            time.sleep(0.001)  # it is being written
        return {"moves": -1, "since_beat": float("inf"), "gone": self._is_gone(index)}

    def _is_gone(self, index: int) -> bool:
        return index != self._index and self._take(1 + index, fcntl.LOCK_SH)

    def _take(self, place: int, kind: int, keep: bool = False) -> bool:
        """Whether a lock can be had."""
        try:
            fcntl.lockf(self._file, kind | fcntl.LOCK_NB, 1, _LOCKS + place)
        except OSError:
            return False
        if not keep:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _LOCKS + place)
        return True

    # -- what concerns all -----------------------------------------------------------------------

    def claim(self) -> bool:
        """Whether this rank is the one that speaks; it stays so until `release`."""
        return self._take(0, fcntl.LOCK_EX, keep=True)

    def release(self) -> None:
        """Let another rank speak."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _LOCKS)

    def ask(self, late: bool = False) -> None:
        """Have all ranks of the node write what they do; `late`: some rank has waited too long."""
        overdue = self.asked()[1]
        os.pwrite(self._file, _CALL.pack(_now(), _now() if late else overdue), 0)

    def asked(self) -> tuple[float, float]:
        """When ranks were asked last, and when some rank was found to have waited too long."""
        data = os.pread(self._file, _CALL.size, 0)
        return _CALL.unpack(data) if len(data) == _CALL.size else (0.0, 0.0)

    def append(self, data: bytes) -> tuple[int, int]:
        """Keep something behind the slots, for all ranks of the node: its place and length."""
        start = SLOT * (1 + len(self.ranks))
        os.pwrite(self._file, data, start)
        return start, len(data)

    def kept(self, place: tuple[int, int]) -> bytes:
        """What was appended."""
        return os.pread(self._file, place[1], place[0])

    def keep_words(self, rank: int, words: bytes) -> None:
        """Keep what a rank of another node has said last."""
        os.pwrite(self._file, words.ljust(_FAREWELL), _FAREWELLS + _FAREWELL * rank)

    def words_of(self, rank: int) -> bytes:
        """What was kept; empty if nothing was."""
        return os.pread(self._file, _FAREWELL, _FAREWELLS + _FAREWELL * rank).strip(b"\0 ")

    def close(self) -> None:
        """Give the file up: in a forked child, which is no rank."""
        os.close(self._file)


def _inode(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


def _packed(report: dict[str, Any]) -> bytes:
    """A report as bytes that fit the slot; what happened before is left out first."""
    data = json.dumps(report).encode()
    while len(data) > SLOT - _HEAD.size and report.get("recent"):
        report = {**report, "recent": report["recent"][len(report["recent"]) // 2 + 1 :]}
        data = json.dumps(report).encode()
    if len(data) > SLOT - _HEAD.size:
        short = {key: value for key, value in report.items() if key not in ("counts", "members")}
        data = json.dumps(short | {"members": None}).encode()
    return data if len(data) <= SLOT - _HEAD.size else b""


def _directory() -> str:
    shared = "/dev/shm"
    return shared if os.access(shared, os.W_OK | os.X_OK) else tempfile.gettempdir()


def create_file() -> tuple[int, str]:
    """A new file, open, and its path, which is to be removed when all have opened it."""
    _clear()
    descriptor, path = tempfile.mkstemp(prefix=_PREFIX, dir=_directory())
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, _LOCKS + 1)
    return descriptor, path


def open_channel(near: Any, rank: int) -> Channel | None:
    """The channel of the ranks of a node; collective over them.

    Parameters
    ----------
    near : mpi4py.MPI.Intracomm
        The ranks of the node.
    rank : int
        This rank's number among all that watch one another.

    Returns
    -------
    Channel or None
        None on all of them if one cannot open it.
    """
    descriptor, path = -1, ""
    if near.Get_rank() == 0:
        with contextlib.suppress(OSError):
            descriptor, path = create_file()
    path = near.bcast(path)
    if near.Get_rank() and path:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    found = near.allgather((rank, descriptor >= 0))
    if near.Get_rank() == 0 and path:
        with contextlib.suppress(OSError):
            os.unlink(path)
    if not all(opened for _, opened in found):
        if descriptor >= 0:
            os.close(descriptor)
        return None
    return Channel(descriptor, tuple([number for number, _ in found]), near.Get_rank())


def _clear() -> None:
    """Remove what jobs have left that were killed in the moment in which their file had a name."""
    for path in Path(_directory()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            old = time.time() - path.stat().st_mtime > _OLD
            if path.stat().st_uid == os.getuid() and old:
                _remove_unless_held(path)


def _remove_unless_held(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, _LOCKS)
        path.unlink()
    finally:
        os.close(descriptor)
