"""New files take their names when they are whole: written aside, brought to disk, renamed.

While a file is written it has another name in the same directory, which gives the owning process
(see :mod:`distarray.io.leftovers`), so that the next job removes what a killed one has left. A file
that must remain the same one, because it has several names or an owner that cannot be given to
another file, gets the new content when that is on disk. Where nothing can be written beside the
path, or the path is no regular file, the content is written to the path as it comes.
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

#: Errors of making a file beside one that may itself be written to.
_NOT_BESIDE = (errno.EACCES, errno.EPERM, errno.ENAMETOOLONG)
#: Errors of renaming onto a file that stays where it is: others have mounted it.
_STAYS = (errno.EBUSY, errno.EXDEV)
#: Attributes of files that users set; others are the system's own.
_USERS = ("user.", "system.posix_acl_access")
#: Links that may follow one another, on Linux.
_LINKS = 40


class Place(NamedTuple):
    """The place of a new file.

    Attributes
    ----------
    path : str
        The file's name, as the caller has given it.
    target : str
        The file that is replaced or made, behind all links.
    aside : str
        The name under which it is written; empty if it is written to `path` as it comes.
    """

    path: str
    target: str
    aside: str


def begin(path: str, size: int = 0) -> Place:
    """Make an empty file beside a path that is to be written, if it can be; on one rank.

    It has the rights of a new file at the path. What killed jobs have left there is removed.

    Parameters
    ----------
    path : str
    size : int
        The length to give the file.

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
    """Give a file, whose bytes are on disk, its name; on one rank.

    It gets owner, rights and attributes of a file that it replaces.
    """
    if not place.aside:
        return
    if not _is_put_in_place(place):
        _write_over(place)
    if config.durable:
        with suppress(PermissionError):  # a directory that may not be listed
            directories.flush(Path(place.target).parent)
    active.discard(Path(place.aside))


def discard(place: Place) -> None:
    """Remove a file that does not take its name; on one rank."""
    if place.aside:
        directories.discard(Path(place.aside))


@contextmanager
def taking_its_name(place: Place, group: Group) -> Iterator[None]:
    """At the end of the block all ranks have brought their bytes to disk; collective.

    When the block ends with an error, which must be one that all ranks raise, the file is removed
    and `path` is what it was.

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
    """A name to write a file under, which becomes `path` when the block ends well; collective.

    Parameters
    ----------
    path : str
        The file's name in the end.
    group : Group
        The ranks that write it.
    writers : {"all", "one"}
        Whether every rank writes, or rank 0 alone. Ranks that write bring their bytes to disk.

    Cost
    ----
    A small broadcast and three allreduces of an integer; fsync of the file and its directory.
    """
    witnesses: list[int] = []  # opened before anything is written: errors count from then on

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
            with suppress(OSError):  # what it has to tell it has told
                os.close(witness)


@contextmanager
def discarded_on_error(aside: str, final: str, discards: bool) -> Iterator[None]:
    """Remove an unfinished file or directory after an error, which then names the final one.

    Parameters
    ----------
    aside, final : str
        The name that it is written under, and the name that the caller knows.
    discards : bool
        Whether this rank removes it.
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
    """An error of the system that names the final file, which the caller knows, not `aside`."""
    if not isinstance(error, OSError) or error.errno is None:
        return error
    if error.filename is not None and not str(error.filename).startswith(aside):
        return error
    return OSError(error.errno, os.strerror(error.errno), final)


def _begun_beside(path: str) -> Place:
    """As :func:`begin`, for libraries that write files in their own way: not as they come."""
    place = begin(path)
    if place.aside:
        return place
    directory = os.path.dirname(place.target)
    if os.path.exists(path) and not os.path.isfile(path):
        raise OSError(f"{path} is no regular file; it is not replaced")
    raise PermissionError(f"cannot write {path}: no file can be made beside it, in {directory}")


def _is_written_as_it_comes(path: str) -> bool:
    """Whether a path is to be opened as it is; raises if it cannot be written to."""
    if not path or path.endswith(os.sep):
        return True  # opening it tells what is wrong
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
    """Whether a path stands for a file that a process has open, as /dev/stdout does."""
    for _ in range(_LINKS):
        directory = os.path.realpath(os.path.dirname(path))
        if directory.startswith("/proc/"):
            return True
        if not os.path.islink(path):
            return False
        path = os.path.join(directory, os.readlink(path))
    return False


def _is_put_in_place(place: Place) -> bool:
    """Rename a file, unless the file that it replaces has to remain the same one."""
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
    """Give a new file the owner, rights and attributes of the one that it is to replace.

    False if that cannot be done, or the old file has other names.
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
    """Give a new file the extended attributes of the old one, lists of rights among them."""
    old, new = _attributes(place.target), _attributes(place.aside)
    for name in new.keys() - old.keys():
        os.removexattr(place.aside, name)
    for name, value in old.items():
        if new.get(name) != value:
            os.setxattr(place.aside, name, value)


def _attributes(path: str) -> dict[str, bytes]:
    """The extended attributes of a file that users set."""
    try:
        names = os.listxattr(path)
    except (OSError, AttributeError):  # a file system, or a system, without them
        return {}
    return {name: os.getxattr(path, name) for name in names if name.startswith(_USERS)}


def _write_over(place: Place) -> None:
    """Copy a file over the one that it is to replace, if there is room, and remove it."""
    size, old = os.path.getsize(place.aside), os.stat(place.target)
    disk = os.statvfs(place.target)
    if size - 512 * old.st_blocks > disk.f_bavail * disk.f_frsize:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), place.path)
    with open(place.aside, "rb") as source, open(place.target, "wb") as final:
        shutil.copyfileobj(source, final, 1 << 24)
        final.flush()
        bring_to_disk(final.fileno())
    os.unlink(place.aside)
