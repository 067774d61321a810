"""Atomic creation of directories: written under a temporary name, flushed to disk, then renamed.

All functions here run on one rank. A directory is written under a name that begins with a dot and
ends with ``.partial``. It is renamed when all of its content is on disk. If the final name exists,
the two names are exchanged in one step where the system supports this. Otherwise the old directory
is renamed for a moment, and :func:`recover` can restore its name. A directory is renamed before it
is deleted: if the process is killed during the deletion, the rest is not mistaken for a complete
directory, and the next job that writes to the parent directory removes the rest.
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
#: Seconds for which :func:`recover` waits for a running process.
_PATIENCE = 5.0
#: Number of entries above which listing a directory is slow; seconds between two listings of it.
_MANY, _PAUSE = 1000, 10.0
#: Time of the next listing of a directory with more than `_MANY` entries.
_next_look: dict[Path, float] = {}


def begin(final: Path) -> Path:
    """Make the directory that will become `final`, and remove unfinished entries of killed jobs."""
    final.parent.mkdir(parents=True, exist_ok=True)
    tidy(final.parent)
    aside = beside(final, "partial")
    active.add(aside)  # before the creation: another thread may be removing abandoned entries
    try:
        aside.mkdir()
    except OSError as error:  # raised again with the name that the caller knows
        active.discard(aside)
        raise type(error)(error.errno, error.strerror, str(final)) from None
    return aside


def begin_file(final: Path, size: int = 0) -> Path:
    """Make an empty file that will become `final`, and remove unfinished entries of killed jobs.

    Parameters
    ----------
    final : Path
    size : int
        Initial length of the file.
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
    """Make an empty file in the same directory, with a short name if the full one is too long."""
    try:
        return _made(beside(final, "partial"))
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
    return _made(beside(final, "partial", brief=True))


def _made(aside: Path) -> Path:
    """Make an empty file that this process owns."""
    active.add(aside)  # before the creation: another thread may be removing abandoned entries
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
    """Return True if unfinished entries are to be removed now: seldom in a large directory."""
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
    """Remove the unfinished files and directories that no running job owns.

    An entry whose removal has begun has no owner.
    """
    for found in leftovers(directory):
        if found.what == "removed":
            _delete(found.path)
        elif found.what == "previous" and not _is_there(directory, found.of):
            recover_all(directory)
        elif is_abandoned(found):
            with suppress(OSError):  # belongs to another user, or another job has just renamed it
                _delete(_renamed(found.path, own_name(found)))


def _is_there(directory: Path, of: str) -> bool:
    """Return True if a directory has an entry of this name."""
    with suppress(OSError):
        return of in map(short, os.listdir(directory))
    return False


def _renamed(old: Path, new: Path) -> Path:
    os.rename(old, new)
    return new


def commit(aside: Path, final: Path, older: str = "") -> None:
    """Rename a directory whose files are on disk to its final name, replacing an old entry.

    Parameters
    ----------
    aside, final : Path
        The temporary and the final name.
    older : str, optional
        Name within the new directory under which the old directory is kept. If not given, the old
        directory is removed.
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
    """Move a directory into its successor; remove the predecessor that the directory has kept."""
    gone = beside(place.parent, "removed")
    try:
        with suppress(FileNotFoundError):
            os.rename(old / place.name, gone)
        os.rename(old, place)
    except OSError:  # a directory cannot be moved to another quota's tree, for example
        remove(old)
    _delete(gone)


def _exchange(aside: Path, final: Path) -> Path:
    """Rename `aside` to `final`; return the new name of the old entry."""
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
    """Restore the name of a directory whose job was killed during an exchange in two steps.

    A running job gets time to finish the exchange.
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
            with suppress(FileNotFoundError):  # another rank or job has restored the name
                os.rename(previous[-1].path, final)
                flush(final.parent)
        else:
            time.sleep(0.01)


def recover_all(directory: Path) -> None:
    """Restore the names of all entries of a directory after killed exchanges in two steps."""
    for found in leftovers(directory):
        if found.what == "previous" and not is_cut(found.of):
            recover(directory / found.of)


def discard(aside: Path) -> None:
    """Remove an unfinished directory or file of this process."""
    active.discard(aside)
    _delete(aside)


def remove(directory: Path, near: Path | None = None) -> None:
    """Rename and then delete a directory: a partly deleted one must not look complete.

    Its temporary name is in the directory of `near`, by default in its own parent directory.
    """
    with suppress(FileNotFoundError):  # another job has renamed it already
        _delete(_renamed(directory, beside(near or directory, "removed")))


def _delete(entry: Path) -> None:
    """Delete a directory with all its entries, or a file; ignore errors."""
    if os.path.isdir(entry) and not os.path.islink(entry):
        shutil.rmtree(entry, ignore_errors=True)
    else:
        with suppress(OSError):
            entry.unlink()


def flush(directory: Path) -> None:
    """Bring the list of entries of a directory to disk (fsync)."""
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
    """Bring the lists of entries of several directories to disk, subdirectories first."""
    for directory in sorted(directories, reverse=True):
        flush(directory)


def flush_all(directory: Path) -> None:
    """Bring a whole directory tree to disk: the files, then the lists of entries."""
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
