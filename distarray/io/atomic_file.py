"""Files that are there whole or not at all: written beside their place, and renamed onto it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from distarray.comm import Group
from distarray.comm.agree import agree, agreed
from distarray.errors import ArgumentsDiffer
from distarray.io import directories

__all__ = ["named", "on_first", "replacing"]

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


def on_first(
    group: Group, act: Callable[[], T], said: str = "", error: Exception | None = None
) -> T:
    """What `act` gives on rank 0, on all ranks of the group; its error on all of them. Collective.

    Parameters
    ----------
    group : Group
        All ranks that want it.
    act : callable
        Called on rank 0, without arguments.
    said : str
        What they want, in words.
    error : Exception, optional
        What this rank has found wrong already; raised on all ranks.

    Raises
    ------
    ArgumentsDiffer
        On all ranks, if they do not say the same of what they want.

    Cost
    ----
    A small broadcast, and an allreduce of an integer.
    """
    result: T | None = None
    if group.rank == 0 and error is None:
        try:
            result = act()
        except Exception as caught:
            error = caught
    words, found = group.broadcast_object((said, result), 0)
    if error is None and words != said:
        error = ArgumentsDiffer(
            f"the ranks want different things of one file:\n    rank 0  {words}"
            f"\n    rank {group.rank}  {said}"
        )
    agree(group, error)
    shared: T = found
    return shared


@contextmanager
def replacing(path: str, group: Group, *, writers: str = "all") -> Iterator[str]:
    """A name to write a file under, which becomes `path` when the block ends well; collective.

    When the block ends with an error, which must be one that all ranks raise, the file is removed
    and `path` is what it was. What killed jobs have left is removed by the next one that writes the
    same file. A link is followed: what it points to is replaced.

    Parameters
    ----------
    path : str
        The file's name in the end.
    group : Group
        All ranks that write it.
    writers : {"all", "one"}
        Whether rank 0 alone writes. Every rank that writes brings what it wrote to disk.

    Cost
    ----
    A small broadcast and three allreduces of an integer; fsync of the file and its directory.
    """
    target = os.path.realpath(path)
    first = group.rank == 0
    name = on_first(group, lambda: _begun(target))
    try:
        yield name
        agreed(group, lambda: _synced(name) if first or writers == "all" else None)
        agreed(group, lambda: _renamed(name, target) if first else None)
    except BaseException as error:
        if first:
            directories.discard(Path(name))
        known = named(error, name, target)
        if known is error:
            raise
        raise known from None


def named(error: E, aside: str, final: str) -> E | OSError:
    """An error of the system with the name that the caller knows, not that of what is aside."""
    if not isinstance(error, OSError) or error.errno is None:
        return error
    if error.filename is not None and not str(error.filename).startswith(aside):
        return error
    return OSError(error.errno, os.strerror(error.errno), final)


def _begun(target: str) -> str:
    """The name of a new file in the same directory."""
    _check(target)
    return str(directories.begin_file(Path(target)))


def _check(target: str) -> None:
    """Refuse what cannot be replaced before anything is written."""
    directory = os.path.dirname(target)
    if os.path.isdir(target):
        raise IsADirectoryError(f"{target} is a directory; it is not replaced by a file")
    if os.path.exists(target) and not os.path.isfile(target):
        raise OSError(f"{target} is no regular file; it is not replaced")
    if not os.path.isdir(directory):
        raise FileNotFoundError(f"cannot write {target}: there is no directory {directory}")
    if not os.access(directory, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise PermissionError(f"cannot write {target}: {directory} is not writable")


def _synced(name: str) -> None:
    """Bring to disk what this machine still has of a file in memory."""
    descriptor = os.open(name, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _renamed(name: str, target: str) -> None:
    with suppress(OSError):  # keep the access rights of what is replaced
        os.chmod(name, os.stat(target).st_mode & 0o7777)
    directories.rename_file(Path(name), Path(target))
