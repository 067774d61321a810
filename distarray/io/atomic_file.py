"""Atomic writes of files: written under another name beside their place, and renamed onto it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar

from distarray.comm import Group
from distarray.comm.agree import agreed
from distarray.io import directories
from distarray.io.rank_zero import on_rank_zero

__all__ = ["discarded_on_error", "replacing", "with_final_name"]

E = TypeVar("E", bound=BaseException)


@contextmanager
def replacing(path: str, group: Group, *, writers: Literal["all", "one"] = "all") -> Iterator[str]:
    """A name to write a file under, which becomes `path` when the block ends well; collective.

    When the block ends with an error, which must be one that all ranks raise, the file is removed
    and `path` is what it was. What killed jobs have left is removed by the next job that writes
    the same file. A link is followed: the file that it points to is replaced.

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
    target = os.path.realpath(path)
    first = group.rank == 0
    name = on_rank_zero(group, lambda: _begun(target))
    with discarded_on_error(name, target, first):
        yield name
        agreed(group, lambda: _synced(name) if first or writers == "all" else None)
        agreed(group, lambda: _renamed(name, target) if first else None)


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
        if discards:
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


def _begun(target: str) -> str:
    """The name of a new file in the same directory."""
    _check(target)
    return str(directories.begin_file(Path(target)))


def _check(target: str) -> None:
    """Refuse, before anything is written, a path that cannot be replaced."""
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
    with suppress(OSError):  # keep the access rights of the file that is replaced
        os.chmod(name, os.stat(target).st_mode & 0o7777)
    directories.rename_file(Path(name), Path(target))
