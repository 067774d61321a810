"""Atomic creation of files: written under a temporary name, flushed to disk, then renamed.

While a file is written it has a temporary name in the same directory. The name contains the owning
process (see :mod:`distarray.io.leftovers`), so that the next job removes the unfinished files of a
killed job. Some files must keep their inode, because they have several names or an owner that
cannot be set on a new file: the new content is copied into them once it is on disk. If no file can
be made in the directory, or the path is no regular file, the content is written to the path
directly.
"""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from distarray.comm import Group
from distarray.comm.agree import agreed
from distarray.comm.files import bring_to_disk
from distarray.config import config
from distarray.io import directories
from distarray.io.leftovers import active
from distarray.io.rank_zero import on_rank_zero

__all__ = [
    "Place",
    "begin",
    "discard",
    "discarded_on_error",
    "finish",
    "replacing",
    "taking_its_name",
    "with_final_name",
]

E = TypeVar("E", bound=BaseException)

#: Errors of making a file in a directory whose existing file may still be writeable.
_NOT_BESIDE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
#: Errors of renaming onto a file that cannot be replaced because it is a mount point.
_STAYS = (errno.EBUSY, errno.EXDEV)
#: Prefixes of the extended attributes that users set; the system sets all others.
_USERS = ("user.", "system.posix_acl_access")
#: Maximum length of a chain of symbolic links, on Linux.
_LINKS = 40


class Place(NamedTuple):
    """Names of a new file.

    Attributes
    ----------
    path : str
        The file's name, as given by the caller.
    target : str
        The file that is replaced or made, after resolving all symbolic links.
    aside : str
        The temporary name of the file; empty if it is written to `path` directly.
    """

    path: str
    target: str
    aside: str


def begin(path: str, size: int = 0) -> Place:
    """Make an empty temporary file in the directory of a path, if possible; on one rank.

    The file has the permissions of a new file at the path. Unfinished files of killed jobs in the
    directory are removed.

    Parameters
    ----------
    path : str
    size : int
        Initial length of the file.

    Raises
    ------
    OSError
        If the path cannot be opened for writing, as by Python's ``open``.
    """
    target = os.path.realpath(path)
    if _is_written_as_it_comes(path):
        return Place(path, target, "")
    try:
        aside = directories.begin_file(Path(target), size)
    except OSError as error:
        if error.errno in _NOT_BESIDE:
            return Place(path, target, "")
        raise OSError(error.errno, os.strerror(error.errno or 0), path) from None
    return Place(path, target, str(aside))


def finish(place: Place) -> None:
    """Rename a file whose bytes are on disk to its final name; on one rank.

    The new file gets owner, permissions and attributes of the file that it replaces.
    """
    if not place.aside:
        return
    if not _is_put_in_place(place):
        _write_over(place)
    if config.durable:
        with suppress(PermissionError):  # the directory may be unreadable
            directories.flush(Path(place.target).parent)
    active.discard(Path(place.aside))


def discard(place: Place) -> None:
    """Remove a temporary file that does not get its final name; on one rank."""
    if place.aside:
        directories.discard(Path(place.aside))


@contextmanager
def taking_its_name(place: Place, group: Group) -> Iterator[None]:
    """Rename the file at the end of the ``with`` block; collective.

    By then every rank must have brought its bytes to disk. If the block ends with an error, which
    all ranks must raise, the temporary file is removed and `path` is unchanged.

    Cost
    ----
    An allreduce of an integer.
    """
    first = group.rank == 0
    with discarded_on_error(place.aside, place.path, first):
        yield
        agreed(group, lambda: finish(place) if first else None)


@contextmanager
def replacing(path: str, group: Group, *, writers: Literal["all", "one"] = "all") -> Iterator[str]:
    """Yield a temporary name; the file is renamed to `path` if the block succeeds; collective.

    Parameters
    ----------
    path : str
        The file's final name.
    group : Group
        The ranks that write the file.
    writers : {"all", "one"}
        "all" if every rank writes, "one" if rank 0 alone writes. Here the writing ranks also bring
        their bytes to disk.

    Cost
    ----
    A small broadcast and three allreduces of an integer; fsync of the file and its directory.
    """
    # Opened before the first write: fsync reports the write errors since a descriptor was opened.
    witnesses: list[int] = []

    def begin_here() -> Place:
        place = _begun_beside(path)
        witnesses.append(os.open(place.aside, os.O_RDONLY | os.O_CLOEXEC))
        return place

    place = on_rank_zero(group, begin_here)
    try:
        with taking_its_name(place, group):
            if writers == "all" and group.rank:
                witnesses.append(os.open(place.aside, os.O_RDONLY | os.O_CLOEXEC))
            yield place.aside
            agreed(group, lambda: bring_to_disk(witnesses[0]) if witnesses else None)
    finally:
        for witness in witnesses:
            with suppress(OSError):  # fsync has already reported the errors
                os.close(witness)


@contextmanager
def discarded_on_error(aside: str, final: str, discards: bool) -> Iterator[None]:
    """Remove an unfinished file or directory after an error; the error gets the final name.

    Parameters
    ----------
    aside, final : str
        The temporary name of the file or directory, and the name that the caller has given.
    discards : bool
        True on the rank that removes the file or directory.
    """
    try:
        yield
    except BaseException as error:
        if discards and aside:  # nothing is written aside for open files, pipes and devices
            directories.discard(Path(aside))
        known = with_final_name(error, aside, final)
        if known is error:
            raise
        raise known from None


def with_final_name(error: E, aside: str, final: str) -> E | OSError:
    """Return an OSError with the final name that the caller knows in place of `aside`."""
    if not isinstance(error, OSError) or error.errno is None:
        return error
    if error.filename is not None and not str(error.filename).startswith(aside):
        return error
    return OSError(error.errno, os.strerror(error.errno), final)


def _begun_beside(path: str) -> Place:
    """Make a temporary file, as :func:`begin`; raise where only a direct write is possible."""
    place = begin(path)
    if place.aside:
        return place
    directory = os.path.dirname(place.target)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path} is no regular file; it is not replaced")
    raise PermissionError(f"cannot write {path}: no file can be made beside it, in {directory}")


def _is_written_as_it_comes(path: str) -> bool:
    """Return True if a path is to be written directly; raise if it cannot be written to."""
    if not path or path.endswith(os.sep):
        return True  # opening the path raises the appropriate error
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode) or _is_descriptor(path):
        return True
    if not os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return False


def _is_descriptor(path: str) -> bool:
    """Return True if a path, such as /dev/stdout, refers to an open file of a process."""
    for _ in range(_LINKS):
        directory = os.path.realpath(os.path.dirname(path))
        if directory.startswith("/proc/"):
            return True
        if not os.path.islink(path):
            return False
        path = os.path.join(directory, os.readlink(path))
    return False


def _is_put_in_place(place: Place) -> bool:
    """Rename a file, unless the existing file has to keep its inode; return True if renamed."""
    if not _is_made_alike(place):
        return False
    try:
        os.replace(place.aside, place.target)
    except OSError as error:
        if error.errno in _STAYS:
            return False
        raise
    return True


def _is_made_alike(place: Place) -> bool:
    """Give a new file the owner, permissions and attributes of the file that it replaces.

    Return False if this is impossible, or if the old file has several names (hard links).
    """
    try:
        old = os.stat(place.target)
    except FileNotFoundError:
        return True
    if old.st_nlink > 1:
        return False
    new = os.stat(place.aside)
    try:
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            os.chown(place.aside, old.st_uid, old.st_gid)
        _give_attributes(place)
        if old.st_mode != new.st_mode:
            os.chmod(place.aside, stat.S_IMODE(old.st_mode))
    except OSError:
        return False
    return True


def _give_attributes(place: Place) -> None:
    """Copy the extended attributes of the old file, ACLs included, to the new file."""
    old, new = _attributes(place.target), _attributes(place.aside)
    for name in new.keys() - old.keys():
        os.removexattr(place.aside, name)
    for name, value in old.items():
        if new.get(name) != value:
            os.setxattr(place.aside, name, value)


def _attributes(path: str) -> dict[str, bytes]:
    """Return those extended attributes of a file that users set."""
    try:
        names = os.listxattr(path)
    except (OSError, AttributeError):  # not supported by the file system, or by the system
        return {}
    return {name: os.getxattr(path, name) for name in names if name.startswith(_USERS)}


def _write_over(place: Place) -> None:
    """Copy a file into the file that it replaces, if the disk has room, and remove it."""
    size, old = os.path.getsize(place.aside), os.stat(place.target)
    disk = os.statvfs(place.target)
    if size - 512 * old.st_blocks > disk.f_bavail * disk.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place.path)
    with open(place.aside, "rb") as source, open(place.target, "wb") as final:
        shutil.copyfileobj(source, final, 1 << 24)
        final.flush()
        bring_to_disk(final.fileno())
    os.unlink(place.aside)
