"""Atomic creation of directories: written under another name, brought to disk, renamed.

Everything here runs on one rank. A directory is written under a name that begins with a dot and
ends with ``.partial``; it is renamed when all of it is on disk. Where the final name exists, both
names are exchanged in one step if the system can. Otherwise the old directory is moved away for a
moment, under a name from which :func:`recover` brings it back. A directory that is removed loses
its name first: if the process is killed meanwhile, the rest is not taken for the whole, and the
next job that writes to the parent directory removes it.
"""

import ctypes
import errno
import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

from distarray.io.leftovers import (
    active,
    beside,
    is_abandoned,
    is_cut,
    leftovers,
    own_name,
    short,
)

__all__ = [
    "begin",
    "begin_file",
    "commit",
    "discard",
    "flush",
    "flush_all",
    "flush_up",
    "keep",
    "recover",
    "recover_all",
    "remove",
    "tidy",
]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
#: Seconds for which :func:`recover` waits for a living process.
_PATIENCE = 5.0
#: Entries from which on it takes a while to list a directory, and seconds between two looks.
_MANY, _PAUSE = 1000, 10.0
#: When directories of so many entries are looked through again.
_next_look: dict[Path, float] = {}


def begin(final: Path) -> Path:
    """Make the directory that will become `final`, and remove what killed jobs have left."""
    final.parent.mkdir(parents=True, exist_ok=True)
    tidy(final.parent)
    aside = beside(final, "partial")
    active.add(aside)  # first: another thread may look for what nobody owns
    try:
        aside.mkdir()
    except OSError as error:  # names the file that the caller knows
        active.discard(aside)
        raise type(error)(error.errno, error.strerror, str(final)) from None
    return aside


def begin_file(final: Path, size: int = 0) -> Path:
    """Make an empty file that will become `final`, and remove what killed jobs have left.

    Parameters
    ----------
    final : Path
    size : int
        The length to give the file.
    """
    if _is_due(final.parent):
        tidy(final.parent)
    aside = _new_file(final)
    try:
        os.truncate(aside, size)
    except BaseException:
        discard(aside)
        raise
    return aside


def _new_file(final: Path) -> Path:
    """Make an empty file in the same directory, whose name is no longer than it allows."""
    try:
        return _made(beside(final, "partial"))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    return _made(beside(final, "partial", brief=True))


def _made(aside: Path) -> Path:
    """Make an empty file of this process."""
    active.add(aside)  # first: another thread may look for what nobody owns
    try:
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except BaseException:
        active.discard(aside)
        raise
    try:
        os.close(handle)
    except OSError:
        discard(aside)
        raise
    return aside


def _is_due(directory: Path) -> bool:
    """Whether to look for what killed jobs have left: seldom in a directory of many entries."""
    now = time.monotonic()
    if now < _next_look.get(directory, 0.0):
        return False
    try:
        many = len(os.listdir(directory)) > _MANY
    except OSError:
        return False
    if many:
        _next_look[directory] = now + _PAUSE
    return True


def tidy(directory: Path) -> None:
    """Remove the unfinished files and directories that no living job owns.

    Those that are being removed have no owner.
    """
    for found in leftovers(directory):
        if found.what == "removed":
            _delete(found.path)
        elif found.what == "previous" and not _is_there(directory, found.of):
            recover_all(directory)
        elif is_abandoned(found):
            with suppress(OSError):  # another user's, or another job has just renamed it
                _delete(_renamed(found.path, own_name(found)))


def _is_there(directory: Path, of: str) -> bool:
    """Whether a directory has an entry of this name."""
    with suppress(OSError):
        return of in map(short, os.listdir(directory))
    return False


def _renamed(old: Path, new: Path) -> Path:
    os.rename(old, new)
    return new


def commit(aside: Path, final: Path, older: str = "") -> None:
    """Give a directory, whose files are on disk, its final name; an old entry is replaced.

    Parameters
    ----------
    aside, final : Path
    older : str, optional
        The name within the new directory under which the old one is kept; it is removed if not
        given.
    """
    if not os.path.lexists(aside):
        raise FileNotFoundError(
            f"{final} is not saved: another job has removed {aside}, where it was written"
        )
    flush(aside)
    old: Path | None = None
    try:
        os.rename(aside, final)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
            raise
        old = _exchange(aside, final)
    flush(final.parent)
    active.discard(aside)
    if old is not None and older:
        keep(old, final / older)
    elif old is not None:
        remove(old)


def keep(old: Path, place: Path) -> None:
    """Move a directory into its successor; what it has kept so itself is removed."""
    gone = beside(place.parent, "removed")
    try:
        with suppress(FileNotFoundError):
            os.rename(old / place.name, gone)
        os.rename(old, place)
    except OSError:  # at the border of a quota, for example, directories cannot be moved
        remove(old)
    _delete(gone)


def _exchange(aside: Path, final: Path) -> Path:
    """Put `aside` in the place of `final`; returns the place of the old entry."""
    if _exchange_at_once(aside, final):
        return aside
    old = beside(final, "previous")
    active.add(old)
    os.rename(final, old)
    try:
        os.rename(aside, final)
    except BaseException:
        os.rename(old, final)
        raise
    finally:
        active.discard(old)
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
    """Bring back a directory that was moved away by an exchange in two steps whose job was killed.

    A living job is given time to finish the exchange.
    """
    until = time.monotonic() + _PATIENCE
    while not os.path.lexists(final):
        previous = [
            found
            for found in leftovers(final.parent)
            if found.what == "previous" and found.of == short(final.name)
        ]
        if not previous:
            return
        if is_abandoned(previous[-1]) or time.monotonic() > until:
            with suppress(FileNotFoundError):  # another rank or job was first
                os.rename(previous[-1].path, final)
                flush(final.parent)
        else:
            time.sleep(0.01)


def recover_all(directory: Path) -> None:
    """Bring back everything in a directory that exchanges in two steps have moved away."""
    for found in leftovers(directory):
        if found.what == "previous" and not is_cut(found.of):
            recover(directory / found.of)


def discard(aside: Path) -> None:
    """Remove an unfinished directory or file of this process."""
    active.discard(aside)
    _delete(aside)


def remove(directory: Path, near: Path | None = None) -> None:
    """Remove a directory; first its name, so that half of it is not taken for the whole.

    Its name in the meantime is beside `near`, by default beside its own.
    """
    with suppress(FileNotFoundError):  # another job was first
        _delete(_renamed(directory, beside(near or directory, "removed")))


def _delete(entry: Path) -> None:
    """Delete a directory with all its entries, or a file; without errors."""
    if os.path.isdir(entry) and not os.path.islink(entry):
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
        # Some network file systems cannot flush directories; their renames are synchronous.
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
