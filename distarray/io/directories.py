"""Directories that come into being all at once: written aside, brought to disk, renamed.

Everything here runs on one rank. A directory is written under a name that begins with a dot and
ends with ``.partial``; only when all of it is on disk is it renamed. Where the final name is taken,
both names are exchanged in one step if the system can, and otherwise the old directory is moved out
of the way for a moment, under a name from which :func:`recover` brings it back.
"""

import ctypes
import errno
import os
import re
import shutil
import socket
import threading
import time
from contextlib import suppress
from itertools import count
from pathlib import Path

__all__ = [
    "begin",
    "begin_file",
    "commit",
    "discard",
    "finish_removing",
    "flush",
    "flush_up",
    "recover",
    "remove",
    "rename_file",
    "tidy",
]

_NAME = re.compile(r"\.(?P<of>.+)~(?P<host>[^~]*)~(?P<pid>\d+)~\d+\.(?P<what>partial|previous)")
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
#: Seconds after which what another machine has left behind is taken for abandoned.
_ABANDONED = 86400.0
_serial = count()
_active: set[Path] = set()
_removing: list[threading.Thread] = []


def begin(final: Path) -> Path:
    """Make the directory in which what is to become `final` is written; clear away old ones."""
    finish_removing()
    final.parent.mkdir(parents=True, exist_ok=True)
    tidy(final)
    aside = _beside(final, "partial")
    aside.mkdir()
    _active.add(aside)
    return aside


def begin_file(final: Path) -> Path:
    """A name for what is to become the file `final`; clear away what killed jobs have left."""
    tidy(final)
    aside = _beside(final, "partial")
    _active.add(aside)
    return aside


def rename_file(aside: Path, final: Path) -> None:
    """Give a file its name, in place of what bears it now; it is on disk already."""
    os.replace(aside, final)
    flush(final.parent)
    _active.discard(aside)


def _beside(final: Path, what: str) -> Path:
    host = re.sub(r"[^\w.-]", "", socket.gethostname())
    return final.with_name(f".{final.name}~{host}~{os.getpid()}~{next(_serial)}.{what}")


def tidy(final: Path) -> None:
    """Remove what killed jobs have left of earlier attempts to write `final`."""
    whole = os.path.lexists(final)
    for entry, found in _leftovers(final):
        needless = found["what"] == "partial" or whole
        if needless and entry not in _active and _abandoned(entry, found):
            remove(entry)


def _leftovers(final: Path) -> list[tuple[Path, re.Match[str]]]:
    try:
        names = sorted(os.listdir(final.parent))
    except FileNotFoundError:
        return []
    matches = [(name, _NAME.fullmatch(name)) for name in names]
    return [
        (final.with_name(n), found) for n, found in matches if found and found["of"] == final.name
    ]


def _abandoned(entry: Path, found: re.Match[str]) -> bool:
    """Whether nobody is writing there any more."""
    if found["host"] == re.sub(r"[^\w.-]", "", socket.gethostname()):
        pid = int(found["pid"])
        return pid == os.getpid() or not _alive(pid)
    try:
        return time.time() - entry.lstat().st_mtime > _ABANDONED
    except OSError:
        return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def commit(aside: Path, final: Path) -> None:
    """Give the directory its name, in place of what bears it now; its files are on disk already."""
    flush(aside)
    try:
        os.rename(aside, final)
        old = None
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        old = _exchange(aside, final)
    flush(final.parent)
    _active.discard(aside)
    if old is not None:
        remove(old)


def _exchange(aside: Path, final: Path) -> Path:
    """Put `aside` in the place of `final`; where the old one is now."""
    if _exchange_at_once(aside, final):
        return aside
    old = _beside(final, "previous")
    os.rename(final, old)
    os.rename(aside, final)
    return old


def _exchange_at_once(a: Path, b: Path) -> bool:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if rename(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(b))


def recover(final: Path) -> None:
    """Bring back what an exchange in two steps had moved away when the job was killed."""
    if os.path.lexists(final):
        return
    previous = [path for path, found in _leftovers(final) if found["what"] == "previous"]
    if previous:
        os.rename(previous[-1], final)
        flush(final.parent)


def discard(aside: Path) -> None:
    """Give up a directory or file that was begun."""
    _active.discard(aside)
    _delete(aside)


def remove(directory: Path) -> None:
    """Remove a directory; first of all its name, lest a half of it be taken for the whole.

    The rest goes on behind the program's back: gigabytes take a while to be given back.
    """
    hidden = directory
    if not _NAME.fullmatch(directory.name):
        hidden = _beside(directory, "partial")
        os.rename(directory, hidden)
    thread = threading.Thread(target=_delete, args=(hidden,), name=f"removing {hidden}")
    try:
        thread.start()
    except RuntimeError:  # the program is ending
        _delete(hidden)
    else:
        _removing.append(thread)


def finish_removing() -> None:
    """Wait until what has been removed is gone."""
    while True:
        try:
            thread = _removing.pop()
        except IndexError:
            return
        thread.join()


def _delete(entry: Path) -> None:
    """Delete a directory with all that is in it, or a file; as far as one may."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        with suppress(OSError):
            entry.unlink()


def flush(directory: Path) -> None:
    """Bring a directory's list of names to disk."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network file systems have no such thing; their renames are synchronous.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def flush_up(directories: set[Path]) -> None:
    """Bring the lists of names of many directories to disk."""
    for directory in sorted(directories, reverse=True):
        flush(directory)


def flush_all(directory: Path) -> None:
    """Bring a whole directory to disk: the files, then the lists of names."""
    below = set()
    for place, _, names in os.walk(directory):
        below.add(Path(place))
        for name in names:
            handle = os.open(os.path.join(place, name), os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    flush_up(below)
