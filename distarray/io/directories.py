"""Directories that come into being all at once: written aside, brought to disk, renamed.

Everything here runs on one rank. A directory is written under a name that begins with a dot and
ends with ``.partial``; only when all of it is on disk is it renamed. Where the final name is taken,
both names are exchanged in one step if the system can, and otherwise the old directory is moved out
of the way for a moment, under a name from which :func:`recover` brings it back. What is removed
loses its name first: whoever is killed while he removes it leaves nothing that could be taken for
the whole, and what is left is removed by the next one that writes to the directory.
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
    short,
    taken,
)

__all__ = [
    "begin",
    "begin_file",
    "commit",
    "discard",
    "flush",
    "flush_all",
    "flush_up",
    "recover",
    "recover_all",
    "remove",
    "rename_file",
    "tidy",
]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
#: Seconds that a living process has to finish an exchange in two steps.
_PATIENCE = 5.0


def begin(final: Path) -> Path:
    """Make the directory in which what is to become `final` is written; clear away old ones."""
    final.parent.mkdir(parents=True, exist_ok=True)
    tidy(final.parent)
    aside = beside(final, "partial")
    try:
        aside.mkdir()
    except OSError as error:  # of a name that the caller knows
        raise type(error)(error.errno, error.strerror, str(final)) from None
    active.add(aside)
    return aside


def begin_file(final: Path) -> Path:
    """A name for what is to become the file `final`; clear away what killed jobs have left."""
    tidy(final.parent)
    aside = beside(final, "partial")
    active.add(aside)
    return aside


def rename_file(aside: Path, final: Path) -> None:
    """Give a file its name, in place of what bears it now; it is on disk already."""
    os.replace(aside, final)
    flush(final.parent)
    active.discard(aside)


def tidy(directory: Path) -> None:
    """Remove what no living job owns: unfinished files and directories, whatever their names.

    What is being removed already has no owner.
    """
    for found in leftovers(directory):
        if found.what == "removed":
            _delete(found.path)
        elif found.what == "previous" and not _is_there(directory, found.of):
            recover_all(directory)
        elif is_abandoned(found):
            with suppress(OSError):  # it is another user's, or another job has just taken it
                _delete(_renamed(found.path, taken(found)))


def _is_there(directory: Path, of: str) -> bool:
    """Whether there is something by a name."""
    with suppress(OSError):
        return of in map(short, os.listdir(directory))
    return False


def _renamed(old: Path, new: Path) -> Path:
    os.rename(old, new)
    return new


def commit(aside: Path, final: Path) -> None:
    """Give the directory its name, in place of what bears it now; its files are on disk already."""
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
    if old is not None:
        remove(old)


def _exchange(aside: Path, final: Path) -> Path:
    """Put `aside` in the place of `final`; where the old one is now."""
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
    """Bring back what an exchange in two steps had moved away when the job was killed.

    A job that lives is given time to finish.
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
            with suppress(FileNotFoundError):  # another rank or job has been quicker
                os.rename(previous[-1].path, final)
                flush(final.parent)
        else:
            time.sleep(0.01)


def recover_all(directory: Path) -> None:
    """Bring back all that exchanges in two steps have moved away in a directory."""
    for found in leftovers(directory):
        if found.what == "previous" and not is_cut(found.of):
            recover(directory / found.of)


def discard(aside: Path) -> None:
    """Give up a directory or file that was begun."""
    active.discard(aside)
    _delete(aside)


def remove(directory: Path) -> None:
    """Remove a directory; first of all its name, lest a half of it be taken for the whole."""
    with suppress(FileNotFoundError):  # another job has been quicker
        _delete(_renamed(directory, beside(directory, "removed")))


def _delete(entry: Path) -> None:
    """Delete a directory with all that is in it, or a file; as far as one may."""
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
