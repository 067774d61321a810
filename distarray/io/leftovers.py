"""Names of unfinished files and directories, which contain the final name and the owning process.

A killed process leaves unfinished files. The next process that writes to the same directory must
detect that the owner has ended: on the same machine by the process ID and start time, on another
machine by an hour without changes.
"""

import os
import re
import socket
import time
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = [
    "Leftover",
    "active",
    "beside",
    "is_abandoned",
    "is_cut",
    "leftovers",
    "own_name",
    "short",
]

What = Literal["partial", "previous", "removed"]
_NAME = re.compile(
    r"\.(?P<of>.+)~(?P<host>[^~]*)~(?P<pid>\d+)(-(?P<began>\d+))?~\d+"
    r"\.(?P<what>partial|previous|removed)"
)
#: Seconds without changes after which an entry of another machine counts as abandoned.
IDLE = 3600.0
#: Pattern of a long name that has been shortened.
_CUT = re.compile(r".{20}#[0-9a-f]{16}")
#: Maximum length of an unshortened name, in bytes; it leaves room for the owner.
_LONGEST = 120
#: Initial namespace of process IDs on Linux.
_FIRST_NAMESPACE = "pid:[4026531836]"
_ENDED = -1
_serial = count()
#: Unfinished files and directories of this process.
active: set[Path] = set()


class Leftover(NamedTuple):
    """Unfinished file or directory.

    Attributes
    ----------
    path : Path
    of : str
        The final name, as returned by :func:`short`.
    what : {"partial", "previous", "removed"}
        "partial": being written. "previous": renamed until its successor has the final name.
        "removed": being removed.
    host, pid, began : str, int, int or None
        Machine, process ID and start time of the process that owns the entry.
    """

    path: Path
    of: str
    what: str
    host: str
    pid: int
    began: int | None


def short(name: str) -> str:
    """Return a name; for a long name its beginning and a hash."""
    return name if len(os.fsencode(name)) <= _LONGEST else f"{name[:20]}#{_hash(name)}"


def _hash(name: str) -> str:
    return sha256(os.fsencode(name)).hexdigest()[:16]


def is_cut(of: str) -> bool:
    """Return True if a name has been shortened, so that the full name is unknown."""
    return _CUT.fullmatch(of) is not None


def beside(final: Path, what: What, *, brief: bool = False) -> Path:
    """Return a new name in `final`'s directory, owned by this process; 140 bytes if `brief`."""
    return _named(final, f"#{_hash(final.name)}" if brief else short(final.name), what)


def own_name(leftover: Leftover) -> Path:
    """Return a name, owned by this process, for an entry that this process removes."""
    return _named(leftover.path, leftover.of, "removed")


def _named(near: Path, of: str, what: What) -> Path:
    pid = os.getpid()
    began = _began(pid)
    owner = pid if began is None else f"{pid}-{began}"
    return near.with_name(f".{of}~{_host()}~{owner}~{next(_serial)}.{what}")


def leftovers(directory: Path) -> list[Leftover]:
    """List the unfinished files and directories in a directory, which need not exist."""
    try:
        names = sorted(name for name in os.listdir(directory) if name.startswith("."))
    except OSError:
        return []
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            began = None if match["began"] is None else int(match["began"])
            owner = match["host"], int(match["pid"]), began
            found.append(Leftover(directory / name, match["of"], match["what"], *owner))
    return found


def is_abandoned(leftover: Leftover) -> bool:
    """Return True if the owner has ended, or no longer lists the entry as active."""
    if leftover.host != _host():
        return time.time() - _last_change(leftover.path) > IDLE
    if leftover.pid == os.getpid() and leftover.began in (None, _began(leftover.pid)):
        return leftover.path not in active
    return not _is_alive(leftover.pid, leftover.began)


def _last_change(entry: Path) -> float:
    """Return the time of the last change in a file or directory tree, in seconds since 1970."""
    times = []
    with suppress(OSError):
        times.append(entry.lstat().st_mtime)
    for place, _, names in os.walk(entry):
        for name in ("", *names):
            with suppress(OSError):
                times.append(os.lstat(os.path.join(place, name)).st_mtime)
    return max(times, default=0.0)


@lru_cache(1)
def _host() -> str:
    """Return the machine's name, and the namespace of process IDs if it is a container's."""
    name = re.sub(r"[^\w.-]", "", socket.gethostname())
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return name
    return name if space == _FIRST_NAMESPACE else f"{name}.{space[5:-1]}"


def _is_alive(pid: int, began: int | None) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # the process exists and belongs to another user
    found = _began(pid)
    return found != _ENDED and (None in (began, found) or found == began)


def _began(pid: int) -> int | None:
    """Return the start time of a process, in clock ticks since boot; process IDs are reused.

    The result is None if the time is not known, and `_ENDED` for a zombie process.
    """
    try:
        words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return _ENDED if words[0] in (b"Z", b"X") else int(words[19])
    except (OSError, IndexError, ValueError):
        return None
